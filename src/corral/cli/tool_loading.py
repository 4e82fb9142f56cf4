"""Loads the tools of `--tools`: `module`, `module:attribute` or `path/to/file.py[:attribute]`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeAlias, cast

import corral
from corral import Tool, tools_from
from corral.errors import ConfigError
from corral.rendering.suggestions import NearNames
from corral.tools import ToolRegistry, ToolSource

Tools: TypeAlias = list[Tool | ToolSource | Callable[..., Any]]

_USUAL_NAMES = ("tools", "registry")
_MODULES_NAMED = 10
_NOT_THE_HOSTS = (str(Path(corral.__file__).parent), str(Path(importlib.__file__).parent), "<frozen importlib")
"""Files whose frames in a traceback are not the host's own code."""


def load_tools(places: Sequence[str], mcp_configs: Sequence[Path] = (), *, required: bool = False) -> Tools:
    """Loads the tools of all `places` and the servers of all configurations. Imports are resolved from the current
    directory.

    Raises:
        ConfigError: a place does not exist, cannot be imported or has no tools; a configuration is invalid; or
            `required` is true and there are neither.
        MissingExtra: there are MCP servers, but `corral[mcp]` is not installed.
    """
    if required and not (places or mcp_configs):
        raise ConfigError("there are no tools; pass --tools PLACE or --mcp-config FILE")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return [*(tool for place in places for tool in _load(place)), *tools_from(*mcp_configs)]


def _load(place: str) -> Tools:
    name, colon, attribute = place.partition(":")
    module = _import_file(name) if name.endswith(".py") else _import_module(name)
    return _attribute(module, name, attribute) if colon else _tools_of(module, name)


def _import_module(name: str) -> ModuleType:
    # importlib would treat an empty part as a relative name, or as no name.
    if not all(name.split(".")) or Path(name).is_file():
        raise ConfigError(f"--tools {name!r}: neither the name of a module nor a path that ends in .py{_as_file(name)}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"there is no module {error.name!r} here or on Python's path{_as_file(name)}") from None
        raise _import_failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error) from error


def _as_file(name: str) -> str:
    """Returns a hint for a path without its suffix, or for a folder."""
    path = Path(name)
    if path.with_name(f"{path.name}.py").is_file():
        return f"; did you mean {path}.py?"
    if path.is_dir():
        return f"; {name} is a folder: name one of its files"
    return ""


def _import_file(name: str) -> ModuleType:
    path = Path(name).resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {name}")
    # Not under its stem, because a file may be called types.py.
    specification = importlib.util.spec_from_file_location(f"tools of {path}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error) from error
    return module


def _import_failed(name: str, error: Exception | SystemExit) -> ConfigError:
    """Prints the host's part of the traceback, and returns the error that ends the command."""
    if isinstance(error, SystemExit):
        return ConfigError(
            f'{name} cannot be imported: it exits the process; do that below `if __name__ == "__main__":`'
        )
    explained = traceback.TracebackException.from_exception(error)
    explained.stack[:] = [frame for frame in explained.stack if not frame.filename.startswith(_NOT_THE_HOSTS)]
    print(*explained.format(), sep="", end="", file=sys.stderr)
    return ConfigError(f"{name} cannot be imported")


def _attribute(module: ModuleType, module_name: str, attribute: str) -> Tools:
    place = f"{module_name}:{attribute}"
    if not hasattr(module, attribute):
        holders = [name for name, value in vars(module).items() if _as_tools(value)]
        near = NearNames(holders).of(attribute)
        hint = f"; did you mean {near[0]}?" if near else f"; it has: {', '.join(holders)}" if holders else ""
        raise ConfigError(f"{module_name} has no {attribute!r}{hint}")
    value: object = getattr(module, attribute)
    tools = _as_tools(value)
    if tools is None and callable(value):
        value = _made_by(value, place)
        tools = _as_tools(value)
    if tools is None:
        raise ConfigError(f"{place} is not a tool, list of tools or ToolRegistry, but {type(value).__name__}")
    if not tools:
        raise ConfigError(f"{place} has no tools")
    return tools


def _made_by(function: Callable[..., object], place: str) -> object:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise ConfigError(f"{place} takes arguments; make it a tool with @tool, or put it into a list") from None
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise _import_failed(place, error) from error


def _tools_of(module: ModuleType, name: str) -> Tools:
    for usual in _USUAL_NAMES:
        value: object = getattr(module, usual, None)
        if not isinstance(value, Tool) and (listed := _as_tools(value)):
            return listed
    tools: dict[Any, None] = {
        value: None for value in cast("Iterable[Any]", vars(module).values()) if isinstance(value, Tool | ToolSource)
    }
    if not tools and hasattr(module, "__path__") and (inside := _modules_in(module)):
        raise ConfigError(f"{name} has no tools itself; name one of its modules: {', '.join(inside)}")
    if not tools:
        raise ConfigError(f"{name} has no tools; decorate functions with @tool, or name the list of tools, {name}:NAME")
    return list(tools)


def _modules_in(package: ModuleType) -> list[str]:
    return [each.name for each in islice(iter_modules(package.__path__, f"{package.__name__}."), _MODULES_NAMED)]


def _as_tools(value: object) -> Tools | None:
    match value:
        case ToolRegistry():
            return list(value.snapshot().values())
        case Tool() | ToolSource():
            return [value]
        case list() | tuple():
            members = cast("list[object]", value)
            tools = [each for each in members if isinstance(each, ToolSource) or callable(each)]
            return tools if len(tools) == len(members) else None
        case _:
            return None

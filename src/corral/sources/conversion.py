"""`tools_from`: converts tools, toolsets and servers of other libraries to tools of Corral."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

from typing_extensions import Unpack

from corral.arguments import checked_as, methods_of
from corral.errors import ToolDefinitionError
from corral.tools import Tool, ToolRegistry, ToolSource, as_tool
from corral.tools.tool import ToolSettings, check_settings

Converted: TypeAlias = list[Tool | ToolSource]

_KNOWN_BY: Mapping[str, str] = {
    "pydantic_ai": "corral.integrations.pydantic_ai",
    "langchain_core": "corral.integrations.langchain",
    "agents": "corral.integrations.openai_agents",
    "mcp": "corral.sources.mcp",
}
"""Modules that convert objects, by package. Each has `tools_of(thing, namespace)`."""
_SERVERS = "corral.sources.mcp"
_KINDS = (
    "a function, a tool or toolset of pydantic-ai, LangChain or openai-agents, an MCP server, or mcpServers as a dict "
    "or the path of a JSON file"
)
_OPENAPI = "an OpenAPI document is OpenApi(namespace, document) of corral.sources.openapi"


@checked_as(ToolDefinitionError)
def tools_from(*things: object, **settings: Unpack[ToolSettings]) -> Converted:
    """Converts tools of other libraries to tools and tool sources, for `Corral(tools=tools_from(...))`.

    Accepts functions; tools and toolsets of pydantic-ai, LangChain and openai-agents; MCP servers in this process or to
    be started; configurations with `mcpServers` as a mapping or a path; our own tools; and lists of all these.
    `namespace` applies to all of them, except that a configuration names its servers and a `ToolSource` has its own.
    Other settings also apply to all of them, as by `Tool.with_settings`; settings that are not passed stay unchanged.

    Raises:
        ToolDefinitionError: an object has another type, cannot be a tool or cannot be in that namespace, or a setting
            is invalid. ConfigError: a configuration is invalid.
        MissingExtra: the extra that converts them is not installed.
    """
    check_settings("tools_from", **settings)
    namespace = settings.pop("namespace", None)
    tools = [tool for thing in things for tool in _convert(thing, namespace)]
    return [each.with_settings(**settings) for each in tools] if settings else tools


def _convert(thing: object, namespace: str | None) -> Converted:
    match thing:
        case Tool():
            tool = cast("Tool", thing)
            return [tool if namespace is None else replace(tool, namespace=namespace)]
        case ToolSource():
            if namespace is not None:
                kind = type(thing).__name__
                raise ToolDefinitionError(f"{kind} has its own namespace: pass {namespace!r} to its constructor")
            return [thing]
        case ToolRegistry():
            return tools_from(*thing.snapshot().values(), namespace=namespace)
        case list() | tuple():
            return tools_from(*cast("Iterable[object]", thing), namespace=namespace)
        case Mapping() | Path() | str():
            _require_servers(cast("Mapping[str, Any] | Path | str", thing))
            return list(import_module(_SERVERS).mcp_servers(thing))
        case _:
            return _foreign(thing, namespace)


def _foreign(thing: object, namespace: str | None) -> Converted:
    for kind in type(thing).__mro__:
        if module := _KNOWN_BY.get(kind.__module__.partition(".")[0]):
            return list(import_module(module).tools_of(thing, namespace))
    if isinstance(thing, type):
        raise ToolDefinitionError(f"the class {thing.__name__} cannot be a tool; pass an instance of it")
    if inspect.iscoroutine(thing):
        thing.close()
        raise ToolDefinitionError(f"{thing.__name__}() is a coroutine: pass the function, not its call")
    if not callable(thing) or not inspect.isroutine(type(thing).__call__):
        methods = ", ".join(methods_of(thing))
        hint = f"; or pass its methods, tools_from({methods})" if methods else ""
        named = _with_article(type(thing).__name__)
        raise ToolDefinitionError(f"{named} cannot be converted to tools; pass {_KINDS}{hint}")
    tool = as_tool(cast("Callable[..., Any]", thing))
    return [tool if namespace is None else replace(tool, namespace=namespace)]


def _require_servers(config: Mapping[str, Any] | Path | str) -> None:
    """Raises ToolDefinitionError if a value does not look like a configuration of MCP servers."""
    if isinstance(config, Mapping):
        if config.keys() & {"openapi", "swagger"}:
            raise ToolDefinitionError(_OPENAPI)
        if config and all(map(callable, config.values())):
            raise ToolDefinitionError("tools_from takes functions one by one, or a list of them, not a dict")
    elif "://" in str(config):
        raise ToolDefinitionError("for an MCP server at a URL, use McpServer(name, url=...) of corral.sources.mcp")
    elif "\n" in str(config) or str(config).endswith((".yaml", ".yml")):
        raise ToolDefinitionError(_OPENAPI)


def _with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"

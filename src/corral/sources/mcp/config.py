"""Makes servers from configurations (JSON with `mcpServers`, or `servers` as in VS Code) and from objects of mcp."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from mcp import Client, StdioServerParameters
from mcp.server import MCPServer, Server
from typing_extensions import override

from corral.arguments import checked
from corral.errors import ConfigError, StartFailed, ToolDefinitionError
from corral.logs import get_logger
from corral.sources.mcp.server import McpServer
from corral.tools import Offer
from corral.tools.names import namespace_identifier

logger = get_logger("corral.sources.mcp")

_MAX_BYTES = 1_000_000
_ROOTS = ("mcpServers", "servers")
_HTTP = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
_OF_A_PROCESS = frozenset({"command", "args", "env", "cwd"})
_OF_A_URL = frozenset({"url", "headers"})
_KNOWN = _OF_A_PROCESS | _OF_A_URL | {"type", "disabled"}
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{([^}]*)\}")


@checked
def mcp_servers(config: str | Path | Mapping[str, Any]) -> list[McpServer]:
    """Makes the servers of a file or mapping, except `disabled` ones. Starts none of them.

    `${NAME}`, `${env:NAME}` and `${NAME:-otherwise}` in strings are environment variables of this process. Unknown keys
    are logged as warnings. An error in the configuration of one server is logged, and reported to programs that call
    that server, which is never connected.

    Raises:
        ConfigError: the file as a whole is invalid; the message says where.
    """
    if isinstance(config, Mapping):
        return list(_servers(config, _Place("the configuration of MCP servers")))
    return list(_servers(_read(Path(config)), _Place(str(config))))


class _Place:
    """Location in a configuration, for error messages."""

    def __init__(self, text: str, separator: str = ": ") -> None:
        self._text = text
        self._separator = separator

    def __truediv__(self, key: str | int) -> _Place:
        step = f"[{key}]" if isinstance(key, int) else f"{self._separator}{key}"
        return _Place(f"{self._text}{step}", ".")

    def wrong(self, problem: str) -> ConfigError:
        return ConfigError(f"{self._text} {problem}")

    def __str__(self) -> str:
        return self._text


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error


def _servers(config: Any, place: _Place) -> Iterator[McpServer]:
    root = _mapping(config, place)
    key = next((each for each in _ROOTS if each in root), None)
    if key is None:
        raise place.wrong("has neither mcpServers nor servers")
    for name, entry in _mapping(root[key], place / key).items():
        here = place / key / name
        try:
            server = _mapping(entry, here)
            disabled = server.get("disabled", False)
            if not isinstance(disabled, bool):
                raise (here / "disabled").wrong(f"must be true or false, not {_kind(disabled)}")
            if not disabled:
                yield _server(name, server, here)
        except ConfigError as error:
            logger.warning("%s; the other servers are used", error)
            yield _Misconfigured(name, problem=str(error).removeprefix(f"{place}: "))


@dataclass(frozen=True, eq=False)
class _Misconfigured(McpServer):
    """Server that is never connected, because its configuration has an error."""

    problem: str = field(default="", repr=False)

    @override
    def __post_init__(self) -> None:
        try:
            namespace_identifier(self.namespace or self.name)
            object.__setattr__(self, "namespace", self.namespace or self.name)
        except ToolDefinitionError:  # its name cannot be a namespace
            object.__setattr__(self, "namespace", None)

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        problem = f"the MCP server {self.name!r} is not connected: {self.problem}"
        if self.required:
            raise StartFailed(problem)
        offer((), problem=problem)
        yield


def _server(name: str, entry: Mapping[str, Any], place: _Place) -> McpServer:
    kind = entry.get("type") or ("stdio" if "command" in entry else "http")
    if kind == "sse":
        raise (place / "type").wrong("is sse, which Corral does not support; use the server's streamable HTTP")
    if kind != "stdio" and kind not in _HTTP:
        raise (place / "type").wrong("must be stdio or http")
    if unused := sorted(entry.keys() - _KNOWN | entry.keys() & (_OF_A_URL if kind == "stdio" else _OF_A_PROCESS)):
        logger.warning("%s: ignored: %s", place, ", ".join(unused))
    needed = "command" if kind == "stdio" else "url"
    if needed not in entry:
        raise place.wrong(f"has no {needed}")
    try:
        if kind == "stdio":
            args = entry.get("args", [])
            if not isinstance(args, list):
                raise (place / "args").wrong(f"must be a list, not {_kind(args)}")
            listed = enumerate(cast("list[object]", args))
            return McpServer(
                name,
                command=[
                    _text(entry["command"], place / "command"),
                    *(_text(each, place / "args" / number) for number, each in listed),
                ],
                env=_texts(entry.get("env"), place / "env"),
                cwd=None if entry.get("cwd") is None else _text(entry["cwd"], place / "cwd"),
            )
        url = _text(entry["url"], place / "url")
        return McpServer(name, url=url, headers=_texts(entry.get("headers"), place / "headers"))
    except ConfigError as error:
        if str(error).startswith(str(place)):
            raise
        raise place.wrong(f"is wrong: {error}") from error


def _mapping(value: object, place: _Place) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise place.wrong(f"must be an object, not {_kind(value)}")
    return {str(key): each for key, each in cast("Mapping[object, Any]", value).items()}


def _texts(value: object, place: _Place) -> dict[str, str]:
    return {} if value is None else {key: _text(each, place / key) for key, each in _mapping(value, place).items()}


def _text(value: object, place: _Place) -> str:
    if not isinstance(value, str):
        raise place.wrong(f"must be a string, not {_kind(value)}")

    def expanded(match: re.Match[str]) -> str:
        name, otherwise, unknown = match.groups()
        if unknown is not None:
            raise place.wrong(
                f"has ${{{unknown}}}; only ${{NAME}}, ${{env:NAME}} and ${{NAME:-otherwise}} are supported"
            )
        variable = os.environ.get(name)
        if not variable and otherwise is not None:  # `:-` also replaces empty variables, as in a shell
            variable = otherwise
        if variable is None:
            raise place.wrong(f"needs the environment variable {name}, which is not set")
        return variable

    return _VARIABLE.sub(expanded, value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


# --- objects of mcp -----------------------------------------------------------------------------------------


def tools_of(thing: object, namespace: str | None) -> list[McpServer]:
    """Makes a source from a server in this process, `StdioServerParameters`, or the target of a `Client`.

    Without a namespace, uses the name of the server or of its program, or the host of its URL.

    Raises:
        ToolDefinitionError: the object has another type, or is a client that answers requests of servers.
    """
    target = _target(thing) if isinstance(thing, Client) else thing
    match target:
        case MCPServer() | Server():
            server = cast("MCPServer | Server[Any]", target)
            return [McpServer(namespace or server.name, server=server)]
        case StdioServerParameters(command=command, args=args, env=env, cwd=cwd):
            name = namespace or PurePath(command).name
            return [McpServer(name, command=[command, *args], env=env or {}, cwd=cwd)]
        case str():
            return [McpServer(namespace or _host(target), url=target)]
        case _:
            raise ToolDefinitionError(
                f"{type(target).__name__} cannot be converted to tools; pass McpServer(name, command=..., url=... or "
                "server=...) of corral.sources.mcp"
            )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        raise ToolDefinitionError("the URL of a Client cannot be parsed") from None


def _target(client: Client) -> object:
    """Returns the client's target. Corral makes its own clients, because each Corral needs its own connection."""
    answers = [
        name
        for name in ("sampling_callback", "list_roots_callback", "elicitation_callback", "extensions")
        if getattr(client, name)
    ]
    if answers:
        raise ToolDefinitionError(
            f"a Client with {answers[0]} cannot be used: Corral answers no requests of MCP servers"
        )
    return client.server

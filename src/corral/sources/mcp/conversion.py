"""Converts servers and clients of mcp to sources of tools."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from mcp import Client, StdioServerParameters
from mcp.server import MCPServer, Server

from corral.errors import ToolDefinitionError
from corral.sources.mcp.server import McpServer


def tools_of(thing: object, namespace: str | None) -> list[McpServer]:
    """Makes a source of a server in this process, of `StdioServerParameters`, or of the target of a `Client`.

    Without a namespace, the server's name is used: that of the server, the program, or the host of its URL.

    Raises:
        ToolDefinitionError: the object has another type, or is a client that answers servers.
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
    """Returns the client's target: Corral makes its own clients, because each Corral has its own connection."""
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

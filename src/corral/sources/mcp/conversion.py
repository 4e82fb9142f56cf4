"""Servers and clients of mcp as sources of tools."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from mcp import Client, StdioServerParameters
from mcp.server import MCPServer, Server

from corral.errors import ToolDefinitionError
from corral.sources.mcp.server import McpServer


def tools_of(thing: object, namespace: str | None) -> list[McpServer]:
    """The tools of a server in this process, of `StdioServerParameters`, or of what a `Client` would connect to.

    Without a namespace, they are where the server's own name says: that of the program, or of the host of its URL.

    Raises:
        ToolDefinitionError: it is none of these, or a client that answers servers.
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
                f"no tools can be made of {type(target).__name__}; give McpServer(name, command=..., url=... or "
                "server=...) of corral.sources.mcp"
            )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        raise ToolDefinitionError("the URL of a Client is not one that can be read") from None


def _target(client: Client) -> object:
    """Corral makes clients of its own, because each Corral has its own connection, and connects again."""
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

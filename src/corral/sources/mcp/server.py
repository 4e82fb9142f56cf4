"""`McpServer`: the address of an MCP server, and the selection of its tools for programs."""

from __future__ import annotations

import base64
import logging
import math
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import mcp_types as types
from mcp import Client
from mcp.client import Transport
from mcp.server import MCPServer, Server
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.task_groups import plain_task_group
from corral.errors import ConfigError, StartFailed
from corral.rendering.secret_names import names_a_secret
from corral.sources.mcp.bounded_transport import BoundedMessages
from corral.sources.mcp.connection import Connection, Link
from corral.sources.mcp.http import streamable_http
from corral.sources.mcp.stdio import stdio
from corral.sources.mcp.tool_listing import CallTool, Log, made
from corral.tools import Approval, Offer, Tool, ToolSource
from corral.tools.rates import RateLimit
from corral.tools.tool import OutputValidation, ToolSettings, check_settings
from corral.types import ExecutionContext

Chosen: TypeAlias = Collection[str] | Callable[[types.Tool], bool] | None
"""Tools by name, or a function that decides for each tool."""
_SHORTEST_SECRET = 6
"""Minimum length of a secret: shorter texts occur in others by chance."""
_PARTS = re.compile(r"[\s;,=]+")
"""Separators of the parts of a header, such as those of a cookie."""


@checked
@dataclass(frozen=True, eq=False)
class McpServer(ToolSource):
    """The tools of an MCP server: one to start (`command`), at a URL (`url`), or in this process (`server`).

    Opening waits for at most `connect_timeout_seconds`. While the server is disconnected, its tools fail, and
    Corral keeps trying to connect.

    Raises:
        ConfigError: not exactly one of `command`, `url` and `server` is set, or one of the options is wrong.
    """

    name: str
    _: KW_ONLY
    command: Sequence[str] | None = field(default=None, repr=False)
    """The program and its arguments."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables for the process, besides PATH, HOME, LOGNAME, SHELL, TERM and USER of this process."""
    cwd: str | Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers of its streamable HTTP requests."""
    server: MCPServer | Server[Any] | None = field(default=None, repr=False)
    namespace: str | None = None
    """Namespace of its tools for programs; None for its name."""
    include: Chosen = None
    """The tools to use; None for all."""
    exclude: Chosen = None
    """The tools of these to leave out."""
    needs_approval: Literal["annotated"] | bool | Callable[[types.Tool], Approval] = "annotated"
    """Calls that need approval: of tools that the server declares destructive, of all or of none; a function decides
    for each tool."""
    scopes: Iterable[str] = frozenset()
    """Scopes that a caller needs for any of its tools."""
    sequential: Chosen = ()
    """The tools whose calls run without other calls of an execution."""
    rate_limit: RateLimit | None = None
    """Rate limit of each tool."""
    meta: Callable[[ExecutionContext], Mapping[str, Any]] | None = field(default=None, repr=False)
    """Returns the `_meta` to send with a call, such as the user for whom a program runs."""
    required: bool = False
    """True if a Corral must not open without it."""
    connect_timeout_seconds: float = 30.0
    timeout_seconds: float = 30.0
    max_message_bytes: int = 10_000_000
    """Maximum size of one message of the server, which is one result or one page of its tools."""
    validate_output: OutputValidation | bool = "warn"
    """Treatment of results that do not match the server's own output schemas."""

    def __post_init__(self) -> None:
        if self.namespace is None:
            object.__setattr__(self, "namespace", self.name)
        check_settings(
            f"MCP server {self.name!r}",
            namespace=self.namespace,
            rate_limit=self.rate_limit,
            validate_output=self.validate_output,
        )
        targets = [name for name in ("command", "url", "server") if getattr(self, name) is not None]
        if len(targets) != 1:
            names = " and ".join(targets) or "none"
            raise self._wrong(f"needs exactly one of command, url and server; it has {names}")
        if self.command is not None and not self.command:
            raise self._wrong('command is empty; pass a list: ["program", "argument"]')
        if self.url is not None:
            self._check_url(self.url)
        for name in ("connect_timeout_seconds", "timeout_seconds", "max_message_bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise self._wrong(f"{name} must be positive, not {getattr(self, name)}")

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise self._wrong("url has an invalid host or port") from None
        if parts.scheme not in ("http", "https"):
            raise self._wrong("url must begin with http:// or https://")

    def _wrong(self, text: str) -> ConfigError:
        return ConfigError(f"MCP server {self.name!r}: {text}")

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        """As `ToolSource.open`.

        Raises:
                StartFailed: the server is `required` and not available.
                ToolDefinitionError: its tools conflict with others.
        """
        link = Link(
            self.name,
            offer,
            connect=self._client,
            make=self._make_tools,
            without_secrets=self._without_secrets,
            connect_timeout_seconds=self.connect_timeout_seconds,
            meta=self.meta,
        )
        async with plain_task_group() as tasks:
            tasks.start_soon(link.run)
            try:
                await link.settled.wait()
                if link.refused is not None:
                    raise link.refused
                if self.required and link.problem is not None:
                    raise StartFailed(link.problem)
                yield
            finally:
                link.close()

    def _client(self, connection: Connection, link: Link) -> Client:
        return Client(
            self._target(connection, link.log),
            cache=None,
            client_info=types.Implementation(name="corral", version=version("corral")),
            message_handler=link.notified,
        )

    def _target(self, connection: Connection, log: Log) -> MCPServer | Server[Any] | Transport:
        if self.server is not None:
            return self.server
        if self.url is not None:
            transport = streamable_http(
                self.url,
                headers=self.headers,
                connect_timeout_seconds=self.connect_timeout_seconds,
                max_message_bytes=self.max_message_bytes,
                lists=connection.lists,
                log=log,
                refused=connection.refuse,
                lost=connection.lose,
            )
        else:
            transport = stdio(
                cast("Sequence[str]", self.command),
                env=self.env,
                cwd=self.cwd,
                max_message_bytes=self.max_message_bytes,
                lists=connection.lists,
                log=log,
                lost=connection.lose,
            )
        connection.messages = BoundedMessages(partial(connection.lose, "it closed the connection"), connection.lists)
        return connection.messages.over(transport)

    def _make_tools(self, listed: Sequence[types.Tool], call: CallTool, log: Log) -> Sequence[Tool]:
        chosen = [each for each in listed if _has(self.include, each, without=True) and not _has(self.exclude, each)]
        for names in (self.include, self.exclude, self.sequential):
            missing = [] if names is None or callable(names) else sorted({*names} - {each.name for each in listed})
            if missing:
                log(logging.WARNING, f"has no tool {', '.join(missing)}")
        return made(chosen, owner=f"the MCP server {self.name!r}", call=call, settings=self._settings, log=log)

    def _settings(self, tool: types.Tool) -> ToolSettings:
        hints = tool.annotations or types.ToolAnnotations()
        return ToolSettings(
            namespace=self.namespace,
            scopes=self.scopes,
            rate_limit=self.rate_limit,
            needs_approval=self._approval(tool, hints),
            read_only=hints.read_only_hint is True,
            idempotent=hints.idempotent_hint is True,
            sequential=_has(self.sequential, tool),
            timeout_seconds=self.timeout_seconds,
            validate_output=self.validate_output,
        )

    def _approval(self, tool: types.Tool, hints: types.ToolAnnotations) -> Approval:
        if callable(self.needs_approval):
            return self.needs_approval(tool)
        if self.needs_approval == "annotated":
            return hints.destructive_hint is True and hints.read_only_hint is not True
        return self.needs_approval

    def _without_secrets(self, text: str) -> str:
        """Removes credentials from a text of the server or of a library."""
        for secret in self._secrets():
            text = text.replace(secret, "…")
        return text

    def _secrets(self) -> Iterable[str]:
        parts = urlsplit(self.url or "")
        user, password = (unquote(each or "") for each in (parts.username, parts.password))
        values = [
            *(value for name, value in self.env.items() if names_a_secret(name)),
            *(
                word
                for value in self.headers.values()
                for word in (value, *value.split()[1:], *_PARTS.split(value)[1:])
            ),
            *(value for _, value in parse_qsl(parts.query)),
            *(each.partition("=")[2] for each in parts.query.split("&")),
            *(user, password, parts.username or "", parts.password or ""),
            base64.b64encode(f"{user}:{password}".encode()).decode() if parts.username or parts.password else "",
        ]
        return sorted((each for each in values if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)


def _has(chosen: Chosen, tool: types.Tool, *, without: bool = False) -> bool:
    """True if a tool is among the chosen ones; `without` is the result for None."""
    if chosen is None:
        return without
    return chosen(tool) if callable(chosen) else tool.name in chosen

"""Session and log level of a request's client."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, get_args

from mcp.server import ServerRequestContext
from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""In ascending order, as in the literal."""

_SESSION_HEADER = "mcp-session-id"
_MOST_SESSIONS = 10_000
"""The SDK's own limit of open sessions."""


def session_of(request: ServerRequestContext[Any, Any]) -> str | None:
    """Returns the id of a request's MCP session, if it has one: over HTTP, in the handshake era.

    Without sessions the header can have any value, and is ignored.
    """
    http = request.request
    return http.headers.get(_SESSION_HEADER) if isinstance(http, Request) and request.session.can_send_request else None


class LogLevels:
    """Clients' log levels for the console output of programs."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[str | None, LoggingLevel] = OrderedDict()

    def choose(self, request: ServerRequestContext[Any, Any], level: LoggingLevel) -> None:
        """Sets the level of the request's session, or of the only client on standard input; in the handshake era."""
        session = session_of(request)
        if session is None and request.request is not None:
            return  # the request belongs to no session
        self._chosen[session] = level
        self._chosen.move_to_end(session)
        if len(self._chosen) > _MOST_SESSIONS:
            self._chosen.popitem(last=False)

    def of(self, request: ServerRequestContext[Any, Any]) -> LoggingLevel | None:
        """Returns the level; None: no output. Since 2026-07-28 each request has it; before, the default is debug."""
        if request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            chosen: object = (request.meta or {}).get(LOG_LEVEL_META_KEY)
            return next((level for level in LEVELS if level == chosen), None)
        return self._chosen.get(session_of(request), "debug")

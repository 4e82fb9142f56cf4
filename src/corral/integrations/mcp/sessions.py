"""A server's knowledge of the client of a request."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, get_args

from mcp.server import ServerRequestContext
from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""In rising order, as the literal has them."""

_SESSION_HEADER = "mcp-session-id"
_MOST_SESSIONS = 10_000
"""As many as the SDK lets be open."""


def session_of(request: ServerRequestContext[Any, Any]) -> str | None:
    """The id of the MCP session that a request belongs to, if it has one: over HTTP, in the handshake era.

    Where there are no sessions the header may hold anything; nothing is made of it then.
    """
    http = request.request
    return http.headers.get(_SESSION_HEADER) if isinstance(http, Request) and request.session.can_send_request else None


class LogLevels:
    """Log levels that clients have chosen for the console output of programs."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[str | None, LoggingLevel] = OrderedDict()

    def choose(self, request: ServerRequestContext[Any, Any], level: LoggingLevel) -> None:
        """For the session of the request, or the only client of standard input; in the handshake era."""
        session = session_of(request)
        if session is None and request.request is not None:
            return  # the request belongs to no session
        self._chosen[session] = level
        self._chosen.move_to_end(session)
        if len(self._chosen) > _MOST_SESSIONS:
            self._chosen.popitem(last=False)

    def of(self, request: ServerRequestContext[Any, Any]) -> LoggingLevel | None:
        """Level; None: no output. Each request names it since 2026-07-28; before, the default is debug."""
        if request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            chosen: object = (request.meta or {}).get(LOG_LEVEL_META_KEY)
            return next((level for level in LEVELS if level == chosen), None)
        return self._chosen.get(session_of(request), "debug")

"""Responses: whole, streamed, and errors of whole requests, which each protocol formats in its own way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import anyio
from pydantic_core import to_json
from typing_extensions import override

from corral.bridges.base import Receive, Scope, Send
from corral.errors import AccessDenied, BridgeError, error_class
from corral.types import CallError

_STATUS = {
    "malformed_message": 400,
    "invalid_token": 401,
    "execution_ended": 401,
    "tool_not_found": 404,
    "message_too_large": 413,
    "invalid_arguments": 422,
    "tool_error": 422,
    "call_budget_exceeded": 429,
    "rate_limited": 429,
    "cancelled": 503,
}

NOT_JSON = CallError.of(BridgeError("the request's content-type must be application/json"))
"""Error for a body that is not declared as JSON, with status 415. A web page's form cannot declare JSON."""
_NO_STORE = MappingProxyType({"cache-control": "no-store"})
_EVENT_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_PAGE_DIRECTIVES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


class Response:
    """App that sends a complete response: JSON by default, and never cached."""

    def __init__(
        self,
        content: bytes,
        status: int = 200,
        headers: Mapping[str, str] = _NO_STORE,
        media_type: str = "application/json",
    ) -> None:
        self._content = content
        self._status = status
        self._headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        self._headers += (b"content-length", b"%d" % len(content)), (b"content-type", media_type.encode())

    @classmethod
    def json(cls, value: object) -> Response:
        return cls(to_json(value))

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._content})


class ResponseStream:
    """Streamed body of one response with status 200. The head is sent with the first part."""

    def __init__(self, send: Send, *headers: tuple[bytes, bytes]) -> None:
        self.started = False
        self._send = send
        self._headers = headers

    async def write(self, data: bytes, /, *, last: bool = False) -> None:
        """Sends a part, preceded by the head if it is the first; `last` ends the response."""
        if not self.started:
            self.started = True
            length = [(b"content-length", b"%d" % len(data))] if last else []
            await self._send({"type": "http.response.start", "status": 200, "headers": [*self._headers, *length]})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})


class EventStream(ResponseStream):
    """Streamed body of server-sent events. Writers take turns, so events stay whole."""

    heartbeat_event = b":\n\n"
    """Heartbeat: an SSE comment by default. Some clients need an event instead."""

    def __init__(self, send: Send) -> None:
        super().__init__(send, *_EVENT_HEADERS)
        self._busy = False
        self._free: anyio.Event | None = None
        """Set when the current writer is done, if others wait. An anyio lock would cost an event loop iteration per
        event."""

    async def heartbeat(self) -> None:
        """Sends a heartbeat, if it is already known that the response is a stream."""
        if self.begins:
            await self.write(self.heartbeat_event)

    @property
    def begins(self) -> bool:
        """True once it is known that the response is a stream."""
        return self.started

    @override
    async def write(self, data: bytes, /, *, last: bool = False) -> None:
        while self._busy:
            self._free = self._free or anyio.Event()
            await self._free.wait()
        self._busy = True
        try:
            await super().write(data, last=last)
        finally:
            self._busy = False
            free, self._free = self._free, None
            if free is not None:
                free.set()


def status_of(error: CallError) -> int:
    """Returns the HTTP status for an error: by its code, else 403 for denials and 502 for others."""
    return _STATUS.get(error.code, 403 if issubclass(error_class(error.code), AccessDenied) else 502)


def failed(content: bytes, error: CallError, status: int, media_type: str = "application/json") -> Response:
    """Makes the response to a request that failed as a whole; `content` is the error in the protocol's form."""
    headers = {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    return Response(content, status, headers, media_type)


def page_headers(**directives: str) -> dict[str, str]:
    """Returns headers that let a page load only from its own origin. `style_src="..."` sets that directive."""
    policy = _PAGE_DIRECTIVES | {name.replace("_", "-"): sources for name, sources in directives.items()}
    return {
        "content-security-policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }

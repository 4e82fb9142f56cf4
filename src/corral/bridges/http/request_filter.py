"""Checks of every request before its body is read: bounds on its headers, and Host and Origin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RequestFilter", "RequestHead", "not_json", "refusal"]

_HEADERS = 100
_HEADER_BYTES = 32_768
_PATH_BYTES = 2_048
_DIGITS = 18


_COUNTING = {
    name.replace("_", "-").encode(): name
    for name in ("authorization", "content_length", "content_type", "host", "origin")
}


class RequestHead:
    """Headers that the bridge uses, unparsed; None for a missing header."""

    __slots__ = ("authorization", "content_length", "content_type", "host", "origin", "size", "twice")

    def __init__(self, scope: Scope) -> None:
        self.host: bytes | None = None
        self.origin: bytes | None = None
        self.authorization: bytes | None = None
        self.content_type: bytes | None = None
        self.content_length: bytes | None = None
        self.size = 0
        self.twice = False
        """True if one of them came twice, so that a proxy might read the request differently."""
        for name, value in scope["headers"]:
            self.size += len(name) + len(value)
            if (attribute := _COUNTING.get(name)) is not None:
                self.twice |= getattr(self, attribute) is not None
                setattr(self, attribute, value)

    @property
    def token(self) -> str | None:
        """Token of a Bearer authorization."""
        scheme, _, token = (self.authorization or b"").partition(b" ")
        return token.strip().decode("latin-1") or None if scheme.lower() == b"bearer" else None

    @property
    def length(self) -> int | None:
        """Announced bytes of the body, if any; an unreadable length counts as too large."""
        announced = self.content_length
        if announced is None:
            return None
        return int(announced) if announced.isdigit() and len(announced) < _DIGITS else 10**_DIGITS

    @property
    def is_json(self) -> bool:
        kind = self.content_type or b""
        return kind == b"application/json" or kind.partition(b";")[0].strip().lower() == b"application/json"


FastPath: TypeAlias = Callable[[RequestHead, Receive, Send], Awaitable[None]]


class RequestFilter:
    """Refuses requests that are too large, or that a web page of another site may have sent; routes the others.

    A page of another site can send requests to a bridge on this machine; its Origin gives it away. With DNS rebinding,
    its Host does. `POST /calls` goes straight to `calls`, past the router.
    """

    def __init__(self, app: ASGIApp, calls: FastPath, *, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self._app = app
        self._calls = calls
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            head = RequestHead(scope)
            refused = self._refused(scope, head)
            if refused is not None:
                await refused(scope, receive, send)
            elif scope["method"] == "POST" and scope["path"].removeprefix(scope.get("root_path", "")) == "/calls":
                await self._calls(head, receive, send)
            else:
                await self._app(scope, receive, send)

    def _refused(self, scope: Scope, head: RequestHead) -> JSONResponse | None:
        if head.size > _HEADER_BYTES or len(scope["headers"]) > _HEADERS:
            return refusal(431, "message_too_large", "the request has too many headers, or too long ones")
        if len(scope["path"]) + len(scope["query_string"]) > _PATH_BYTES:
            return refusal(414, "message_too_large", "the request's address is too long")
        if head.twice:
            return refusal(400, "malformed_message", "a header came twice")
        if not self._knows((head.host or b"").decode("latin-1")):
            return refusal(
                421, "access_denied", "the request's Host is not allowed; add it to HttpBridge(allowed_hosts=[...])"
            )
        if head.origin is not None and head.origin.decode("latin-1") not in self._origins:
            message = "the request's Origin is not allowed; add it to HttpBridge(allowed_origins=[...])"
            return refusal(403, "access_denied", message)
        return None

    def _knows(self, host: str) -> bool:
        name = host.lower()
        if not name.endswith("]"):  # else an IPv6 address without a port
            before, colon, port = name.rpartition(":")
            name = before if colon and port.isdigit() else name
        return name in self._hosts or ("*" in self._hosts and bool(name))


def not_json() -> JSONResponse:
    """Refuses a body that is not declared as JSON: the form of a web page cannot declare JSON."""
    return refusal(415, "bridge_error", "the request's content-type must be application/json")


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Makes the response to a refused request: `{"error": {code, name, message}}`."""
    name = "".join(part.capitalize() for part in code.split("_"))
    return JSONResponse({"error": {"code": code, "name": name, "message": message}}, status, headers)

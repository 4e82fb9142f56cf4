"""Checks every request before its body is read: header bounds, Host and Origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from corral.bridges.base import ASGIApp, Message, PeerHosts, Receive, Scope, Send
from corral.errors import AccessDenied, BridgeError, CorralError, MalformedMessage, MessageTooLarge
from corral.types import CallError

_HEADERS = 100
_HEADER_BYTES = 32_768
_PATH_BYTES = 2_048
_DIGITS = 18
_PARSED = "corral.head"
"""Key in the ASGI scope under which the filter stores the parsed head."""


FORWARDED = b"x-corral-forwarded"
"""Header with the proof that a peer has forwarded a request."""
PEER_PATH = "/.peers/"
"""Start of the paths at which hosts reach each other's apps."""
_COUNTING = (b"authorization", b"content-length", b"content-type", b"host", b"origin", FORWARDED)


class RequestHead:
    """Head of a request: the headers that bridges use, unparsed. None for a missing header."""

    def __init__(self, scope: Scope) -> None:
        headers = scope["headers"]
        by_name: dict[bytes, bytes] = dict(headers)
        self.scope = scope
        self.host = by_name.get(b"host")
        self.origin = by_name.get(b"origin")
        self.authorization = by_name.get(b"authorization")
        self.content_type = by_name.get(b"content-type")
        self.content_length = by_name.get(b"content-length")
        self.forwarded = by_name.get(FORWARDED)
        """Proof of the peer that forwarded the request. Behind the filter it is valid."""
        self.size = len(b"".join(chain.from_iterable(headers)))
        self.twice = len(by_name) < len(headers) and _comes_twice(headers)
        """True if a header occurs twice, so a proxy may have read the request differently."""

    @classmethod
    def of(cls, scope: Scope) -> RequestHead:
        """Returns the head that the filter parsed."""
        head: RequestHead | None = scope.get(_PARSED)
        return cls(scope) if head is None else head

    @property
    def method(self) -> str:
        return self.scope["method"]

    @property
    def path(self) -> str:
        """Path relative to the app's mount point."""
        return self.scope["path"].removeprefix(self.scope.get("root_path", ""))

    @property
    def token(self) -> str | None:
        """Token of a Bearer authorization."""
        scheme, _, token = (self.authorization or b"").partition(b" ")
        return token.strip().decode("latin-1") or None if scheme.lower() == b"bearer" else None

    @property
    def length(self) -> int | None:
        """Content-Length, if any; an invalid one counts as too large."""
        announced = self.content_length
        if announced is None:
            return None
        return int(announced) if announced.isdigit() and len(announced) < _DIGITS else 10**_DIGITS

    @property
    def is_json(self) -> bool:
        kind = self.content_type or b""
        return kind == b"application/json" or kind.partition(b";")[0].strip().lower() == b"application/json"


Refuse: TypeAlias = Callable[[RequestHead, CallError, int], ASGIApp]
"""Returns the response to a request that fails with this error and HTTP status."""


class RequestFilter:
    """Passes requests to `app`, except those that are too large or could come from another site's web page.

    Another site's page can send requests to a bridge on this machine. Their Origin gives them away or, with DNS
    rebinding, their Host.
    """

    def __init__(
        self,
        app: ASGIApp,
        refuse: Refuse,
        *,
        hosts: frozenset[str],
        origins: frozenset[str],
        options_of: str,
        same_origin: bool = False,
        peers: PeerHosts | None = None,
    ) -> None:
        """`same_origin`: the app also serves a page, so an Origin that matches the request's Host is accepted.

        `peers` have checked the Host and Origin of the requests that they forward.
        """
        self._peers = peers
        self._app = app
        self._refuse = refuse
        self._options_of = options_of
        """Name of the class that has the options, for error messages."""
        self._hosts = hosts
        self._origins = origins
        self._same_origin = same_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            head = RequestHead(scope)
            refused = self._refused(scope, head)
            if refused is not None:
                error, status = refused
                await self._refuse(head, CallError.of(error), status)(scope, receive, send)
                return
            if self._peers is not None and head.forwarded is not None and head.path.startswith(PEER_PATH):
                await self._peers.receive(scope, receive, send)
                return
            if head.origin is not None and head.origin.decode("latin-1") in self._origins:
                if scope["method"] == "OPTIONS":
                    await _allow(head, send)
                    return
                send = with_headers(send, _cors_headers(head.origin))
            scope[_PARSED] = head
            await self._app(scope, receive, send)

    def _refused(self, scope: Scope, head: RequestHead) -> tuple[CorralError, int] | None:
        if head.size > _HEADER_BYTES or len(scope["headers"]) > _HEADERS:
            return MessageTooLarge("the request's headers are too many or too long"), 431
        if len(scope["path"]) + len(scope["query_string"]) > _PATH_BYTES:
            return MessageTooLarge("the request's address is too long"), 414
        if head.twice:
            return MalformedMessage("a header occurs twice"), 400
        if head.forwarded is not None:
            if self._peers is not None and self._peers.has_sent(head.forwarded, head.scope):
                return None
            return AccessDenied(f"the header {FORWARDED.decode()} is not from a peer of this host; leave it out"), 403
        if self._peers is not None and head.path.startswith(PEER_PATH):
            return BridgeError("there is no such path"), 404
        if not self._knows((head.host or b"").decode("latin-1")):
            remedy = f"add it to {self._options_of}(allowed_hosts=[...])"
            return AccessDenied(f"the request's Host is not allowed; {remedy}"), 421
        if head.origin is not None and not self._accepts(head.origin.decode("latin-1"), head):
            remedy = f"add it to {self._options_of}(allowed_origins=[...])"
            return AccessDenied(f"the request's Origin is not allowed; {remedy}"), 403
        return None

    def _accepts(self, origin: str, head: RequestHead) -> bool:
        own = self._same_origin and origin.partition("://")[2] == (head.host or b"").decode("latin-1")
        return own or origin in self._origins

    def _knows(self, host: str) -> bool:
        name = host.lower()
        if not name.endswith("]"):  # else an IPv6 address without a port
            before, colon, port = name.rpartition(":")
            name = before if colon and port.isdigit() else name
        return name in self._hosts or ("*" in self._hosts and bool(name))


def _comes_twice(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    names = [name for name, _ in headers]
    return any(names.count(name) > 1 for name in _COUNTING)


def with_headers(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> Send:
    """Adds headers to a response."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return marked


async def _allow(head: RequestHead, send: Send) -> None:
    """Answers the preflight of a listed origin. Allows everything that it asks for, because the token decides."""
    requested = dict(head.scope["headers"]).get(b"access-control-request-headers", b"authorization, content-type")
    headers = [
        *_cors_headers(head.origin or b""),
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", requested),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _cors_headers(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"retry-after"),
        (b"vary", b"origin"),
    ]

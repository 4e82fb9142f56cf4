"""Base of bridge protocols that are mounted in a web server, and of their apps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar, TypeAlias
from urllib.parse import urlsplit

import anyio.lowlevel
from typing_extensions import override

from corral.bridges.base import ASGIApp, BridgeHost, BridgeProtocol, Receive, Scope, Send
from corral.bridges.web.request_filter import RequestFilter, RequestHead, with_headers
from corral.bridges.web.request_load import parse_json, read_body
from corral.bridges.web.request_watch import ended, watch_request
from corral.bridges.web.responses import Response, status_of
from corral.calls.calls import Call
from corral.calls.grants import Grant, IssuedElsewhere
from corral.errors import AccessDenied, BridgeError, CallBudgetExceeded, ConfigError, CorralError, InvalidToken
from corral.types import CallError, CallRequest, Endpoint, HttpEndpoint, Language

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_RUNTIMES: Mapping[str, tuple[Language, str]] = {
    "/corral.mjs": ("typescript", "text/javascript; charset=utf-8"),
    "/corral_tools.py": ("python", "text/x-python; charset=utf-8"),
}
"""Language and media type of the runtime at each path."""

Answer: TypeAlias = Callable[[RequestHead, Grant, Receive, Send], Awaitable[ASGIApp | None]]
"""Answers a request with a valid token: returns the response, or None after sending it.

It raises BridgeError, AccessDenied or CallBudgetExceeded for a request that fails as a whole.
"""


class WebBridge(BridgeProtocol):
    """Base of protocols over HTTP. Its app checks the headers of each request, including Host and Origin.

    `url` is the bridge's address for programs; only executions whose sandbox runs elsewhere need it. The Host of a
    request must be that of `url`, one of `allowed_hosts`, or a loopback name; `"*"` allows any. Requests with an Origin
    come from web pages, and are only accepted if it is one of `allowed_origins`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    def __init__(
        self, url: str | None = None, *, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = ()
    ) -> None:
        hosts = {*_LOOPBACK, *(host.lower() for host in allowed_hosts)}
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"url={url!r} is not an http or https URL")
            hosts.add(f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname)
        self.url = None if url is None else url.rstrip("/")
        self._hosts = frozenset(hosts)
        self._origins = frozenset(allowed_origins)
        self._has_page = False
        """True if the app itself serves a page, whose requests are then accepted."""

    @abstractmethod
    def routes(self, host: BridgeHost) -> ASGIApp:
        """Returns the app that handles requests after the checks, such as a `BridgeApp`."""

    @abstractmethod
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        """Returns the response to a request that failed the checks, in the protocol's form."""

    @override
    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        if self.url is None:
            name = type(self).__name__
            raise ConfigError(
                f"the bridge {self.name!r} has no URL, so programs elsewhere cannot reach it; set {name}(url=...)"
            )
        yield HttpEndpoint(url=self.url, token=host.issue(grant), protocol=self.name)

    @override
    def asgi_app(self, host: BridgeHost) -> ASGIApp:
        """Returns the app, to mount in a Starlette or FastAPI app or to serve directly."""
        return RequestFilter(
            self.routes(host),
            self.refusal,
            hosts=self._hosts,
            origins=self._origins,
            options_of=type(self).__name__,
            same_origin=self._has_page,
            peers=host.peers,
        )


class BridgeApp(ABC):
    """App of a bridge, behind its checks: `/health` and the runtimes need no token, everything else does."""

    prefix: ClassVar[str] = ""
    """Optional prefix of every path."""

    def __init__(self, bridge: WebBridge, host: BridgeHost) -> None:
        self._bridge = bridge
        self._host = host

    @abstractmethod
    def answers(self, path: str) -> Mapping[str, Answer]:
        """Returns a path's handlers by method; empty if there is no such path."""

    def page(self, path: str) -> ASGIApp | None:
        """Returns the response to a GET that needs no token; None for other paths."""
        if path == "/health":
            return Response.json({"status": "ok"})
        if path in _RUNTIMES:
            language, media_type = _RUNTIMES[path]
            return Response(self._bridge.guest_runtime(language).encode(), headers={}, media_type=media_type)
        return None

    def refuse(self, head: RequestHead, error: CallError | CorralError, status: int | None = None) -> ASGIApp:
        """Makes the response to a request that failed as a whole. `status` overrides that of the error."""
        if not isinstance(error, CallError):
            error = CallError.of(error)
        return self._bridge.refusal(head, error, status or status_of(error))

    async def renew(self, head: RequestHead, grant: Grant, receive: Receive, _send: Send) -> ASGIApp:
        """Answers with a fresh token."""
        async with watch_request(grant, receive, anyio.lowlevel.checkpoint) as watch:
            parse_json(await read_body(head, receive, 1_000))
            token, expires = self._host.renew(grant)
            return Response.json({"token": token, "expires": expires})
        return self.refuse(head, watch.reason)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._respond(RequestHead.of(scope), receive, send)
        if response is not None:
            await response(scope, receive, send)

    async def _respond(self, head: RequestHead, receive: Receive, send: Send) -> ASGIApp | None:
        path = head.path.removeprefix(self.prefix)
        if head.method in ("GET", "HEAD") and (page := self.page(path)) is not None:
            return page
        answers = self.answers(path)
        answer = answers.get(head.method)
        if answer is None:
            return self._without_answer(head, [*answers] or ["GET"] * (self.page(path) is not None))
        try:
            try:
                grant = self._host.find(head.token)
            except InvalidToken as error:
                peers = self._host.peers if head.forwarded is None else None
                if isinstance(error, IssuedElsewhere) and peers is not None and await peers.knows(error.host):
                    return await peers.forward(error.host, head.scope, receive, send)
                return self.refuse(head, await _refusal(self._host, head, self._bridge.name))
            return await answer(head, grant, receive, send)
        except (BridgeError, AccessDenied, CallBudgetExceeded) as error:
            return self.refuse(head, error)

    def _without_answer(self, head: RequestHead, methods: list[str]) -> ASGIApp:
        if not methods:
            return self.refuse(head, BridgeError("there is no such path"), 404)
        refused = self.refuse(head, BridgeError(f"the method must be {' or '.join(methods)}"), 405)
        allowed = [(b"allow", ", ".join(methods).encode())]

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            await refused(scope, receive, with_headers(send, allowed))

        return refuse


async def grant_of(host: BridgeHost, head: RequestHead, protocol: str) -> Grant | CallError:
    """Finds the grant of a request's token, or returns the error that refuses the token."""
    try:
        return host.find(head.token)
    except InvalidToken:
        return await _refusal(host, head, protocol)


async def _refusal(host: BridgeHost, head: RequestHead, protocol: str) -> CallError:
    """Returns the error of a refused token, which passes through the pipeline as a call, so that it is audited."""
    reply = await host.handle(Call(CallRequest("", None, 0), protocol=protocol, token=head.token))
    return reply.error or ended()

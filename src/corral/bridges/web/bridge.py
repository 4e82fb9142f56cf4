"""`WebBridge`: base of bridge protocols that are mounted in a web server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from typing_extensions import override

from corral.bridges.base import ASGIApp, BridgeHost, BridgeProtocol
from corral.bridges.web.refusals import ended
from corral.bridges.web.request_filter import FastPath, RequestFilter, RequestHead
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.errors import ConfigError, InvalidToken
from corral.types import CallError, CallRequest, Endpoint, HttpEndpoint

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class WebBridge(BridgeProtocol):
    """Base of protocols over HTTP. Its app checks the headers of each request, including Host and Origin.

    `url` is the bridge's address for programs; only executions whose sandbox runs elsewhere need it. The Host of a
    request must be that of `url`, one of `allowed_hosts`, or a loopback name; `"*"` allows any. A request with an
    Origin comes from a web page, and is only accepted from `allowed_origins`.

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
        """True if the app serves a page, whose requests are accepted."""

    @abstractmethod
    def routes(self, host: BridgeHost) -> ASGIApp:
        """Returns the app for requests that passed the checks and are not on a fast path."""

    def fast_paths(self, host: BridgeHost) -> Mapping[tuple[str, str], FastPath]:  # noqa: ARG002
        """Returns endpoints that bypass `routes`, by method and path, such as `("POST", "/calls")`."""
        return {}

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
            self.fast_paths(host),
            self.refusal,
            hosts=self._hosts,
            origins=self._origins,
            options_of=type(self).__name__,
            same_origin=self._has_page,
        )


async def grant_of(host: BridgeHost, head: RequestHead, protocol: str) -> Grant | CallError:
    """Finds the grant of a request's token, or returns the error that refuses the token.

    A refused token passes through the pipeline as a call, so that it is audited.
    """
    try:
        return host.find(head.token)
    except InvalidToken:
        reply = await host.handle(Call(CallRequest("", None, 0), protocol=protocol, token=head.token))
        return reply.error or ended()

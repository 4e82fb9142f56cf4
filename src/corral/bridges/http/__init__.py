"""Bridge over HTTP, for programs that run elsewhere. docs/http.md specifies the protocol.

Needs the extra `http`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import ClassVar
from urllib.parse import urlsplit

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeProtocol
from corral.bridges.calls import Handler
from corral.bridges.grants import Grant, Grants
from corral.errors import ConfigError, MissingExtra
from corral.types import Endpoint, HttpEndpoint

try:
    from corral.bridges.http.app import bridge_app
    from corral.bridges.http.calls import CallsEndpoint
    from corral.bridges.http.request_filter import RequestFilter
except ModuleNotFoundError as error:
    raise MissingExtra(f"HttpBridge needs the module {error.name}: pip install 'corral[http]'") from error

__all__ = ["HttpBridge"]

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@checked
class HttpBridge(BridgeProtocol):
    """Calls as JSON over HTTP, to an app that is mounted in a web server.

    `url` is the address that programs use; only executions whose sandbox runs elsewhere need it. The Host of a request
    must be that of `url`, one of `allowed_hosts`, or a loopback name; `"*"` allows any. A request with an Origin comes
    from a web page, and is accepted from `allowed_origins` only.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "http"

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
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

    @asynccontextmanager
    async def serve(self, handler: Handler, grant: Grant, grants: Grants) -> AsyncGenerator[Endpoint]:  # noqa: ARG002
        if self.url is None:
            raise ConfigError(
                "the HTTP bridge has no URL, so programs elsewhere cannot reach it; set HttpBridge(url=...)"
            )
        yield HttpEndpoint(url=self.url, token=grants.issue(grant))

    def asgi_app(self, handler: Handler, grants: Grants) -> ASGIApp:
        """Returns the app, to mount in a Starlette or FastAPI app, or to serve as it is."""
        app = bridge_app(handler, grants)
        return RequestFilter(app, CallsEndpoint(handler, grants), hosts=self._hosts, origins=self._origins)

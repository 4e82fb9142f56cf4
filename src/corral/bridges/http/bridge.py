"""`HttpBridge`: calls as JSON over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import ClassVar

from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document
from corral.bridges.http.app import bridge_app
from corral.bridges.http.calls import CallsEndpoint
from corral.bridges.http.messages import failed
from corral.bridges.http.openapi import openapi
from corral.bridges.web import FastPath, RequestHead, WebBridge
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.guest import Transport, http_transport
from corral.types import CallError, Language


@checked
class HttpBridge(WebBridge):
    """Calls as JSON over HTTP, to an app that is mounted in a web server.

    `url` is the address that programs use, by default the environment variable TOOL_BRIDGE_URL if that is set; only
    executions whose sandbox runs elsewhere need it. The Host of a request
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
        url = os.environ.get("TOOL_BRIDGE_URL") if url is None else url
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self._documents = DocumentCache(lambda tools: openapi(tools))

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return bridge_app(self, host)

    @override
    def fast_paths(self, host: BridgeHost) -> Mapping[tuple[str, str], FastPath]:
        return {("POST", "/calls"): CallsEndpoint(host)}

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        return Document(await self._documents.of(grant), "application/json")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return http_transport(language)

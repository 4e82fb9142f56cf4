"""`ConnectBridge`: the methods of the gRPC bridge, by the Connect protocol over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document
from corral.bridges.web import RequestHead, WebBridge
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.guest import Transport
from corral.protocols.connect.app import ConnectApp
from corral.protocols.connect.forms import form_of, refusal
from corral.protocols.grpc.bridge.proto_text import proto_document
from corral.protocols.grpc.bridge.schema import ToolSchema
from corral.protocols.transports import transport
from corral.types import CallError, Language


@checked
class ConnectBridge(WebBridge):
    """The methods of `GrpcBridge` by the Connect protocol, to an app that is mounted in a web server.

    Messages are JSON or protobuf; methods are unary or stream their responses. `url`, `allowed_hosts` and
    `allowed_origins` are those of every `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "connect"

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self._documents: DocumentCache[ToolSchema] = DocumentCache(ToolSchema, lambda schema: schema.size)

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return ConnectApp(host, self._documents)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return refusal(form_of(head), error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        """Returns the `.proto` of the tools that the scopes of a grant allow."""
        return await proto_document(self._documents, grant)

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("connect", language, "messages")

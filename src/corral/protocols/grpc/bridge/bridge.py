"""`GrpcBridge`: calls over gRPC, to a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, ClassVar

import grpc
import grpc.aio
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import BridgeHost, BridgeProtocol, Document
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.errors import ConfigError
from corral.guest import Transport
from corral.protocols.grpc.bridge.proto_text import proto_document
from corral.protocols.grpc.bridge.schema import ToolSchema
from corral.protocols.grpc.bridge.service import BridgeService
from corral.protocols.transports import transport
from corral.types import Endpoint, HttpEndpoint, Language

_MESSAGE_BYTES = 8_000_000
"""Bytes of one message as it arrives; the limits of an execution are lower."""
_METADATA_BYTES = 32_768
_STREAMS = 256
"""Requests at once on one connection."""
_CLOSE_SECONDS = 2.0
_PING_SECONDS = 10
"""Least time between two pings of a client that waits for a slow call; more often ends its connection."""


@checked
class GrpcBridge(BridgeProtocol):
    """Calls over gRPC. It opens a server on `host` and `port` with its Corral; 0 is any free port.

    `url` is the address that programs use, such as `https://tools.example.org:443`; by default that of the server.
    `certificate` and `private_key` are PEM texts. A server without them that is not on a loopback address has to be
    allowed by `allow_plaintext`, for a proxy in front of it that has a certificate.

    Raises:
        ConfigError: plaintext is not allowed, or one of `certificate` and `private_key` is missing.
    """

    name: ClassVar[str] = "grpc"

    def __init__(
        self,
        url: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: bytes | None = None,
        private_key: bytes | None = None,
        allow_plaintext: bool = False,
        max_requests: int = 1_000,
    ) -> None:
        if (certificate is None) != (private_key is None):
            raise ConfigError("GrpcBridge needs both `certificate` and `private_key`; give both or neither")
        if certificate is None and not (allow_plaintext or _is_loopback(host)):
            raise ConfigError(
                f"GrpcBridge on {host!r} would send tokens in plaintext; set `certificate` and `private_key`, or "
                "`allow_plaintext=True` behind a proxy that has them"
            )
        self.url = url
        self._host = host
        self._port = port
        self._key = None if certificate is None or private_key is None else [(private_key, certificate)]
        self._max_requests = max_requests
        self._server: grpc.aio.Server | None = None
        self._bound_port = port
        self._refused = 0
        self._documents: DocumentCache[ToolSchema] = DocumentCache(ToolSchema, lambda schema: schema.size)

    @property
    def address(self) -> str:
        """Address of the server, such as `127.0.0.1:50051`.

        Raises:
            ConfigError: the server is not open.
        """
        if self._server is None:
            raise ConfigError("the server of GrpcBridge is not open; open its Corral first (`async with corral`)")
        return _joined(self._host, self._bound_port)

    @override
    async def open(self, host: BridgeHost) -> None:
        """Starts the server.

        Raises:
            ConfigError: it is open, the event loop is not asyncio's, or the address is taken.
        """
        if self._server is not None:
            self._refused += 1
            raise ConfigError("a GrpcBridge belongs to one Corral; make another one")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("GrpcBridge needs asyncio; it does not run on trio") from None
        options: list[tuple[str, Any]] = [
            ("grpc.so_reuseport", 0),  # else a second server would share the port without a word
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_metadata_size", _METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
            ("grpc.max_concurrent_streams", _STREAMS),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_SECONDS * 1000),
            ("grpc.http.overload_protection", 0),  # it counts ended streams too, and refuses calls within the bound
        ]
        server = grpc.aio.server(
            handlers=[BridgeService(host, self._documents)],
            options=options,
            maximum_concurrent_rpcs=self._max_requests,
        )
        address = _joined(self._host, self._port)
        try:
            if self._key is None:
                self._bound_port = server.add_insecure_port(address)
            else:
                self._bound_port = server.add_secure_port(address, grpc.ssl_server_credentials(self._key))
        except RuntimeError as error:
            raise ConfigError(f"GrpcBridge cannot listen on {address}; is the port taken?") from error
        self._server = server
        await server.start()

    @override
    async def aclose(self) -> None:
        if self._refused:  # a Corral closes what it failed to open, which is another one's server
            self._refused -= 1
            return
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_CLOSE_SECONDS)

    async def drain(self, seconds: float) -> None:
        """Refuses new calls, and waits until those that run have ended; cancels them after `seconds`."""
        if self._server is not None:
            await self._server.stop(seconds)

    @override
    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        url = self.url or f"{'http' if self._key is None else 'https'}://{self.address}"
        yield HttpEndpoint(url=url, token=host.issue(grant), protocol=self.name)

    @override
    async def document(self, grant: Grant) -> Document:
        """Returns the `.proto` of the tools that the scopes of a grant allow."""
        return await proto_document(self._documents, grant)

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("grpc", language, "messages")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _joined(host: str, port: int) -> str:
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"

"""Calls in the format of corral's gRPC bridge, with the library grpcio.

The calls of a batch are one request of corral.v1.Bridge/Calls, whose replies are one message each.
corral.v1.Bridge/Renew returns a fresh token.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from corral.guest.python.client import (
    Bridge,
    BridgeReply,
    BridgeRequest,
    Failure,
    Reading,
    Refused,
    ReplyReader,
    Transport,
    WrongReply,
    bridge_transport,
)
from corral.guest.python.transports.lines import encode_call
from corral.protocols.guests.messages import SERVICE, calls_message, read_message

_ALIVE_SECONDS = 30
"""Seconds without a message after which the client pings the server, and seconds to wait for its answer."""
_RENEWAL_TIMEOUT_SECONDS = 10.0
_BESIDE_LINE_BYTES = 16
_FINAL = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"})
"""Statuses with which the host refuses to renew the token."""


class _GrpcTransport:
    batch_calls = 64
    encode = staticmethod(encode_call)
    renewal_path = f"{SERVICE}/Renew"

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        return BridgeRequest(f"{SERVICE}/Calls", calls_message(calls), "application/grpc")

    def reader(self, _sequences: Sequence[int], _max_bytes: int, /) -> ReplyReader:
        return _Messages()

    def refusal(self, _body: bytes, /) -> Failure:
        raise WrongReply  # the reason is in the status


class _Messages:
    """Reads each message; the library has already split them."""

    def feed(self, chunk: bytes, /) -> Iterator[BridgeReply]:
        if chunk:
            yield read_message(chunk)

    def end(self) -> tuple[BridgeReply, ...]:
        return ()


class _GrpcBridge(Bridge):
    """Bridge over a channel of grpcio."""

    def __init__(self, url: str, token: str, transport: Transport, max_output_bytes: int) -> None:
        try:
            import grpc
        except ModuleNotFoundError:
            raise ImportError(
                "calls over gRPC need grpcio where the program runs: pip install grpcio there, or use ConnectBridge"
            ) from None
        super().__init__(url, token, transport, max_output_bytes)
        self._error: type[Exception] = grpc.RpcError
        host = self.parts.netloc if self.parts.port else f"{self.parts.netloc}:{_PORTS[self.parts.scheme]}"
        options = [
            ("grpc.max_receive_message_length", max_output_bytes + _BESIDE_LINE_BYTES),
            ("grpc.keepalive_time_ms", _ALIVE_SECONDS * 1000),
            ("grpc.keepalive_timeout_ms", _ALIVE_SECONDS * 1000),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channel: Any = (
            grpc.insecure_channel(host, options)
            if self.parts.scheme == "http"
            else grpc.secure_channel(host, grpc.ssl_channel_credentials(_roots()), options)
        )

    def close(self) -> None:
        super().close()
        self._channel.close()

    def replies(self, request: BridgeRequest, reader: ReplyReader, reading: Reading) -> Generator[BridgeReply]:
        messages = self._channel.unary_stream(request.path)(request.body, metadata=self._metadata())
        reading.stop = messages.cancel
        try:
            for message in messages:
                yield from reader.feed(message)
        except self._error as error:
            raise _refusal_reason(error) from None
        finally:
            reading.stop = None
            messages.cancel()

    def fresh_token(self) -> str | None:
        renew = self._channel.unary_unary(self.transport.renewal_path)
        try:
            message: bytes = renew(b"", metadata=self._metadata(), timeout=_RENEWAL_TIMEOUT_SECONDS)
        except self._error as error:
            status: Any = error
            if status.code().name in _FINAL:
                return None
            raise
        return _token_in(message)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


_PORTS = {"http": 80, "https": 443}


def _roots() -> bytes | None:
    """Returns the certificates of SSL_CERT_FILE, which the library does not read itself; None for the library's own."""
    file = os.environ.get("SSL_CERT_FILE")
    return Path(file).read_bytes() if file else None


def _refusal_reason(error: Any) -> Exception:
    """Returns the host's reason for refusing a request, or the library's description of the connection error."""
    metadata: dict[str, str] = dict(error.trailing_metadata() or ())
    details: str = error.details() or error.code().name
    if "corral-error-code" not in metadata:
        return ConnectionError(details)
    seconds = metadata.get("corral-retry-after-seconds")
    name = metadata.get("corral-error-name", "")
    return Refused((metadata["corral-error-code"], name, details, None if seconds is None else float(seconds)))


def _token_in(message: bytes) -> str:
    """Returns the first field of the reply to a renewal."""
    if message[:1] != b"\x0a":
        raise WrongReply
    size = shift = 0
    at = 1
    while True:
        byte = message[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return message[at : at + size].decode()


connect, connect_from_environment = bridge_transport(_GrpcTransport(), _GrpcBridge)

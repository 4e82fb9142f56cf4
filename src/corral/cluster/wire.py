"""Records between a host and a worker, version 1. docs/workers.md specifies them.

u32 length of the payload, big endian | u8 kind | payload
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib.metadata import version
from typing import Any, cast

from corral.errors import ConfigError
from corral.sandboxes.cpython import interpreter_version
from corral.sandboxes.deno import deno_version
from corral.sandboxes.framed.guest_files import guest_files
from corral.types import Language, SandboxConfig

VERSION = 1
HEAD = struct.Struct(">IB")
SECONDS = struct.Struct(">d")
MAX_RECORD = 256 * 1024
MAX_BEFORE_PROOF = 4096
"""Maximum bytes of everything that a peer sends before it has proved that it knows the secret."""
MAX_TLS_HANDSHAKE = 64 * 1024
"""Maximum bytes of a peer's part of the TLS handshake: mostly its certificates."""
HANDSHAKE_SECONDS = 5.0
HIGH_BYTES = 256 * 1024
"""Unsent bytes of a direction above which its source is not read."""
NONCE_BYTES = 16
PROOF_BYTES = hashlib.sha256().digest_size
SECRET_VARIABLE = "CORRAL_WORKER_SECRET"  # noqa: S105  # the variable's name
_LEAST_SECRET_BYTES = 16
_TLS_RECORD_BYTES = 16 * 1024
_BESIDE_RECORD_BYTES = 64
"""Bytes of a TLS record beside its content, at most: TLS 1.3 adds 22 (RFC 8446, section 5.2)."""
_UNREACHABLE_SECONDS = 15
"""Seconds without acknowledgements after which a connection is lost. A suspended peer's kernel still sends them."""
_PROBE_SECONDS = 5


class Kind(IntEnum):
    """Kinds of records. Those below 16 are sent by hosts, the others by workers."""

    HELLO = 1
    JOIN = 2
    OPEN = 3
    DATA = 4
    CLOSE = 5
    LIMIT = 6
    PROOF = 16
    OPENED = 17
    REFUSED = 18
    OUTPUT = 19
    CPU = 20
    END = 21
    CLOSED = 22
    STATE = 23
    ALIVE = 24


class WireError(Exception):
    """The peer broke the protocol, or is not who it should be."""


def record(kind: Kind, payload: bytes | bytearray = b"") -> bytes:
    return HEAD.pack(len(payload), kind) + payload


def json_record(kind: Kind, value: object) -> bytes:
    return record(kind, json.dumps(value, separators=(",", ":")).encode())


def parsed(payload: bytes) -> Any:
    """Returns the JSON value of a payload.

    Raises:
        WireError: it is not JSON.
    """
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise WireError("it sent a record that is not JSON") from error


def records(kind: Kind, data: bytes | bytearray) -> bytes:
    """Returns the data as one record, or as several if it is longer than a record may be."""
    if len(data) <= MAX_RECORD:
        return record(kind, data)
    return b"".join(record(kind, data[at : at + MAX_RECORD]) for at in range(0, len(data), MAX_RECORD))


class _Tls:
    """TLS of one connection. Takes and returns bytes, without a socket.

    It looks for a further record without provoking an exception, so it costs less than asyncio's own TLS transport
    (docs/workers.md has the times).
    """

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self.is_server = server_name is None
        self._content = memoryview(bytearray(_TLS_RECORD_BYTES))
        """Content of one record. Reading into it takes a third of the time of reading a new object of that size."""
        self._early: list[bytes] | None = []
        """Plaintext that is written during the handshake; None after it."""
        self._without_content = 0
        """Bytes received since the handshake that were not records with content: an incomplete record, tickets, or key
        updates, each of which costs processor time and an answer."""

    @property
    def is_established(self) -> bool:
        return self._early is None

    def advance(self, data: bytes = b"") -> bytes:
        """Takes received bytes, and returns their plaintext. Then `outgoing` can have something to send.

        Raises:
            WireError: the handshake fails, a record is not authentic, the other side has ended TLS, or it sends too
            much without content.
        """
        if self.is_established:
            self._without_content += len(data)
        pieces: list[bytes] = []
        try:
            if data:
                self._incoming.write(data)
            if self._early is not None:
                self.object.do_handshake()
                early, self._early = self._early, None
                for each in early:
                    self.encrypt(each)
            while self._incoming.pending or self.object.pending():  # another read would raise an exception
                size = cast("int", self.object.read(_TLS_RECORD_BYTES, self._content))
                if not size:  # after close_notify, what follows is never read
                    raise WireError("it ended TLS")
                pieces.append(bytes(self._content[:size]))
                self._without_content = max(0, self._without_content - size - _BESIDE_RECORD_BYTES)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise WireError(f"TLS with it fails: {error}") from error
        if self._without_content > MAX_TLS_HANDSHAKE:
            raise WireError("it sends TLS records without content")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def encrypt(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)
            return
        written = self.object.write(data)
        while written < len(data):  # a call writes one record
            written += self.object.write(memoryview(data)[written:])

    def outgoing(self) -> bytes:
        return self._outgoing.read() if self._outgoing.pending else b""


class Peer(asyncio.Protocol):
    """One connection, as records. A subclass, or whoever uses it, sets `take` and `lost`, which may be replaced at any
    time. A `WireError` or another exception in `take` ends the connection, and `lost` gets it. With `tls`, this side is
    the client if it has a `server_name`, which the other side's certificate must have, else the server."""

    def __init__(self, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.take: Callable[[int, bytes], None] = self._unexpected
        self.lost: Callable[[Exception | None], None] = lambda _: None
        self.bound = MAX_BEFORE_PROOF
        """Maximum bytes of a payload."""
        self.over = False
        """True once the connection is lost, or this side has abandoned it."""
        self.full = False
        """True while unsent bytes wait above `HIGH_BYTES`."""
        self._buffer = bytearray()
        self._room: asyncio.Event | None = None
        self._violation: Exception | None = None
        self._tls = None if tls is None else _Tls(tls, server_name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        connection = transport.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _UNREACHABLE.items():
                    if hasattr(socket, name):
                        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        transport.set_write_buffer_limits(high=HIGH_BYTES)
        if self._tls is not None:
            self._decrypted(self._tls, b"")

    def peer_certificate(self) -> bytes | None:
        """Returns the certificate that the other side has shown (DER); None without TLS."""
        return None if self._tls is None else self._tls.object.getpeercert(binary_form=True)

    def data_received(self, data: bytes) -> None:
        if self._tls is not None and not (data := self._decrypted(self._tls, data)):
            return
        buffer: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            buffer = self._buffer
        at, end = 0, len(buffer)
        while end - at >= HEAD.size and not self.over:
            length, kind = HEAD.unpack_from(buffer, at)
            if length > self.bound:
                self._violate(WireError(f"a record of {length} bytes; the maximum is {self.bound}"))
                return
            start = at + HEAD.size
            if end - start < length:
                break
            at = start + length
            try:
                self.take(kind, bytes(buffer[start:at]))
            except Exception as error:
                self._violate(error)
                return
        if buffer is self._buffer:
            del self._buffer[:at]
        elif at < end:
            self._buffer += data[at:]

    def _decrypted(self, tls: _Tls, data: bytes) -> bytes:
        if self.over or self.transport is None:
            return b""
        try:
            return tls.advance(data)
        except WireError as error:
            self._violation, self.over = error, True
            if tls.is_server and not tls.is_established:  # `close` would reset the connection, which drops the alert
                self.transport.write(tls.outgoing())
                self.transport.write_eof()
            else:
                self.transport.close()
            return b""
        finally:
            if answer := tls.outgoing():
                self.transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self.resume_writing()
        self.lost(self._violation or exc)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        room, self._room = self._room, None
        if room is not None:
            room.set()

    def write(self, data: bytes) -> None:
        if self.over or self.transport is None:
            return
        if self._tls is not None:
            self._tls.encrypt(data)
            data = self._tls.outgoing()
        self.transport.write(data)

    async def drained(self) -> None:
        """Waits until less is unsent, or the connection is lost."""
        if self.full and not self.over:
            self._room = self._room or asyncio.Event()
            await self._room.wait()

    def pause(self) -> None:
        if not self.over and self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self.over and self.transport is not None:
            self.transport.resume_reading()

    def abort(self) -> None:
        self.over = True
        if self.transport is not None:
            self.transport.abort()

    def _unexpected(self, kind: int, payload: bytes) -> None:
        raise WireError(f"an unexpected record of kind {kind}, {len(payload)} bytes")

    def _violate(self, error: Exception) -> None:
        self._violation = error
        self._buffer.clear()
        self.take = lambda _kind, _payload: None
        self.abort()


_UNREACHABLE = {
    "TCP_USER_TIMEOUT": _UNREACHABLE_SECONDS * 1000,  # in milliseconds: tcp(7)
    "TCP_KEEPIDLE": _UNREACHABLE_SECONDS - 2 * _PROBE_SECONDS,
    "TCP_KEEPINTVL": _PROBE_SECONDS,
    "TCP_KEEPCNT": 2,
}
"""Options of a connection that let the kernel detect a vanished machine."""


@cache
def release() -> str:
    """Returns this release of corral. Reading it takes half a millisecond."""
    return version("corral")


def proof(secret: bytes, role: bytes, ours: bytes, theirs: bytes, certificate: bytes | None) -> bytes:
    """Returns the proof that a side knows the secret, bound to both nonces and to the worker's certificate."""
    bound = hashlib.sha256(certificate or b"").digest()
    return hmac.digest(secret, b"corral-worker-1" + bound + ours + theirs + role, "sha256")


def nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


def checked_secret(secret: str | bytes | None, *, has_tls: bool) -> bytes:
    """Returns the shared secret; without TLS, it has to be there.

    Raises:
        ConfigError: it is missing or too short.
    """
    if secret is None:
        secret = os.environ.get(SECRET_VARIABLE)
    if secret is None:
        if has_tls:
            return b""  # certificates prove who the sides are
        raise ConfigError(f"workers need a shared secret or TLS: set {SECRET_VARIABLE}, or pass certificates")
    content = secret.encode() if isinstance(secret, str) else secret
    if len(content) < _LEAST_SECRET_BYTES:
        raise ConfigError(f"the workers' secret has {len(content)} bytes; use at least {_LEAST_SECRET_BYTES}")
    return content


@cache
def guest_digest(language: Language) -> str:
    """Returns a digest of a language's guest, which host and worker must have in common."""
    digest = hashlib.sha256()
    for name, content in sorted(guest_files(SandboxConfig(language=language)).files.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]


def engine_version(language: Language) -> str:
    """Returns the version of a language's engine here, which host and worker must have in common for a durable
    execution."""
    return _ENGINE_VERSIONS[language]()


_ENGINE_VERSIONS: dict[Language, Callable[[], str]] = {"typescript": deno_version, "python": interpreter_version}


def split_address(address: str) -> tuple[str, int]:
    """Returns the host and port of "host:port" or "[address]:port".

    Raises:
        ConfigError: it is something else.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ConfigError(f"{address!r} is not the address of a worker; use host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)

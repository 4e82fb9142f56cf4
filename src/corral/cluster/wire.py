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
import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any, cast

from corral.errors import ConfigError
from corral.sandboxes.framed.guest_files import guest_files
from corral.types import Language, SandboxConfig

VERSION = 1
HEAD = struct.Struct(">IB")
SECONDS = struct.Struct(">d")
MAX_RECORD = 256 * 1024
MAX_BEFORE_PROOF = 4096
"""Maximum bytes of everything that a peer sends before it has proved that it knows the secret."""
HANDSHAKE_SECONDS = 5.0
HIGH_BYTES = 256 * 1024
"""Unsent bytes of a direction above which its source is not read."""
NONCE_BYTES = 16
PROOF_BYTES = hashlib.sha256().digest_size
SECRET_VARIABLE = "CORRAL_WORKER_SECRET"  # noqa: S105  # the variable's name
_LEAST_SECRET_BYTES = 16


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


class Peer(asyncio.Protocol):
    """One connection, as records. A subclass, or whoever uses it, sets `take` and `lost`, which may be replaced at any
    time. A `WireError` or another exception in `take` ends the connection, and `lost` gets it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.take: Callable[[int, bytes], None] = self._unexpected
        self.lost: Callable[[Exception | None], None] = lambda _: None
        self.bound = MAX_BEFORE_PROOF
        """Maximum bytes of a payload."""
        self.over = False
        self.full = False
        """True while unsent bytes wait above `HIGH_BYTES`."""
        self._buffer = bytearray()
        self._room: asyncio.Event | None = None
        self._violation: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        connection = transport.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
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
        if not self.over and self.transport is not None:
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
        if self.transport is not None:
            self.transport.abort()

    def _unexpected(self, kind: int, payload: bytes) -> None:
        raise WireError(f"an unexpected record of kind {kind}, {len(payload)} bytes")

    def _violate(self, error: Exception) -> None:
        self._violation = error
        self._buffer.clear()
        self.take = lambda _kind, _payload: None
        self.abort()


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


def split_address(address: str) -> tuple[str, int]:
    """Returns the host and port of "host:port" or "[address]:port".

    Raises:
        ConfigError: it is something else.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ConfigError(f"{address!r} is not the address of a worker; use host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)

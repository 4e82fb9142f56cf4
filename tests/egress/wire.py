"""Real loopback servers, most of them hostile, and a record of every connection that this process tries to make."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import sys
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

__all__ = ["Attempts", "Server", "bomb", "recorded", "serve"]

# --- what this process tries


@dataclass
class Attempts:
    """Addresses that were dialled and names that were looked up."""

    dialled: list[str] = field(default_factory=list[str])
    looked_up: list[str] = field(default_factory=list[str])


_recording: list[Attempts] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _recording:
        return
    if event == "socket.connect":
        connecting, address = arguments
        assert isinstance(connecting, socket.socket)
        if connecting.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            host = str(address[0])  # pyright: ignore[reportUnknownArgumentType]
            _recording[-1].dialled.append(host)
            if not ip_address(host).is_loopback:
                raise ConnectionRefusedError("tests stay on the loopback")
    elif event == "socket.getaddrinfo":
        _recording[-1].looked_up.append(str(arguments[0]))


sys.addaudithook(_audit)


@contextmanager
def recorded() -> Generator[Attempts]:
    """Records what the interpreter itself says of connections; none leaves the loopback."""
    _recording.append(attempts := Attempts())
    try:
        yield attempts
    finally:
        _recording.remove(attempts)


# --- servers


@dataclass
class Server:
    """One that listens, and what arrived."""

    host: str
    port: int
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list[tuple[str, dict[str, str]]])
    """Targets and headers, in lower case."""
    connections: int = 0
    left: anyio.Event = field(default_factory=anyio.Event)
    """The client has closed a connection."""

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"


@asynccontextmanager
async def serve(host: str = "127.0.0.2", port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """Serves what `_answer` does for each path."""
    listener = await anyio.create_tcp_listener(local_host=host, local_port=port, reuse_port=False)
    server = Server(host, listener.extra(SocketAttribute.local_port))  # noqa: S610 - not Django

    async def handle(stream: ByteStream) -> None:
        server.connections += 1
        async with stream:
            try:
                await _converse(server, stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
                server.left.set()

    async with anyio.create_task_group() as tasks:
        secured = listener if tls is None else TLSListener(listener, tls, standard_compatible=False)
        tasks.start_soon(secured.serve, handle)
        yield server
        tasks.cancel_scope.cancel()
    await listener.aclose()


async def _converse(server: Server, stream: ByteStream) -> None:
    incoming = BufferedByteReceiveStream(stream)
    while True:
        head = (await incoming.receive_until(b"\r\n\r\n", 65_536)).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        target = head[0].split(" ")[1]
        server.requests.append((target, headers))
        await _answer(target, headers, stream)


async def _answer(target: str, headers: dict[str, str], stream: ByteStream) -> None:
    path, query = urlsplit(target).path, {key: values[0] for key, values in parse_qs(urlsplit(target).query).items()}

    async def send(body: bytes, *lines: str, status: str = "200 OK") -> None:
        head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", ""])
        await stream.send(head.encode() + body)

    async def send_for_ever(head: str, again: bytes, seconds: float = 0) -> None:
        await stream.send(head.encode())
        while True:
            await stream.send(again)
            await anyio.sleep(seconds)

    match path:
        case "/redirect":
            await send(b"", f"Location: {query['to']}", status="302 Found")
        case "/moved":
            await send(b"", f"Location: {query['to']}", "Connection: close", status="307 Temporary Redirect")
        case "/loop":
            await send(b"", "Location: /loop", status="302 Found")
        case "/cookie":
            await send(b"", "Set-Cookie: a=b")
        case "/sized":
            await send(b"x" * int(query["bytes"]))
        case "/zipped":
            await send(gzip.compress(b"x" * int(query["bytes"]), 1), "Content-Encoding: gzip")
        case "/deflated":
            await send(zlib.compress(b"x" * int(query["bytes"])), "Content-Encoding: deflate")
        case "/encoded":
            await send(gzip.compress(b"x"), f"Content-Encoding: {query['as']}")
        case "/lie":
            await send(b"no gzip at all", "Content-Encoding: gzip")
        case "/bomb":
            await send(bomb(1000), "Content-Encoding: gzip")
        case "/close":
            await send(b"bye", "Connection: close")
        case "/switch":
            await stream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        case "/huge":
            await send_for_ever("HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536)
        case "/slow":
            await send_for_ever("HTTP/1.1 200 OK\r\n\r\n", b"x", 0.02)
        case "/silent":
            await stream.receive()
        case "/slow-header":
            await send_for_ever("HTTP/1.1 200 OK\r\nA: ", b"x", 0.02)
        case "/endless-header":
            await send_for_ever("HTTP/1.1 200 OK\r\nA: ", b"x" * 4096)
        case "/many-headers":
            await send_for_ever("HTTP/1.1 200 OK\r\n", b"a:\r\n" * 1024)
        case "/interim":
            await send_for_ever("", b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        case "/extensions":
            head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            await send_for_ever(head, b"1;" + b"x" * 20_000 + b"\r\nx\r\n")
        case _:
            await send(json.dumps({"target": target, **headers}).encode())


def bomb(megabytes: int) -> bytes:
    """The beginning of a gzip stream: a megabyte of nothing, again and again."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = stream.compress(bytes(1_000_000)) + stream.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes

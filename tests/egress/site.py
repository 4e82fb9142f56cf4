"""A well-behaved site on the loopback, which reads bodies and knows who has left."""

from __future__ import annotations

import gzip
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote

import anyio
import h11
from anyio.abc import ByteStream, Listener, SocketAttribute
from anyio.streams.tls import TLSListener

__all__ = ["Site", "site"]

EVENTS = b": hello\r\n\r\ndata: one\ndata: two\n\nid: 7\rdata:three\r\revent: end\ndata\n\n"


@dataclass
class Site:
    """What it was asked, by path."""

    host: str
    port: int
    scheme: str = "http"
    files: Path | None = None
    """What it serves besides."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list[tuple[str, dict[str, str]]])
    asked: dict[str, anyio.Event] = field(default_factory=lambda: defaultdict(anyio.Event))
    left: dict[str, anyio.Event] = field(default_factory=lambda: defaultdict(anyio.Event))
    go: anyio.Event = field(default_factory=anyio.Event)

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    async def wait_until_left(self, path: str) -> None:
        await self.left[path].wait()

    async def wait_until_asked(self, path: str) -> None:
        await self.asked[path].wait()


@asynccontextmanager
async def site(host: str, *, tls: ssl.SSLContext | None = None, files: Path | None = None) -> AsyncGenerator[Site]:
    """Serves until the end of the block."""
    listener: Listener[ByteStream] = await anyio.create_tcp_listener(local_host=host, reuse_port=False)
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
    made = Site(host, port, "https" if tls else "http", files)
    if tls is not None:
        listener = TLSListener(listener, tls, standard_compatible=False)
    async with listener, anyio.create_task_group() as tasks:

        async def handle(stream: ByteStream) -> None:
            await _Visit(made, stream).serve()

        tasks.start_soon(listener.serve, handle)
        yield made
        tasks.cancel_scope.cancel()


class _Visit:
    def __init__(self, made: Site, stream: ByteStream) -> None:
        self.site = made
        self.stream = stream
        self.http = h11.Connection(h11.SERVER)

    async def event(self) -> h11.Event:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            try:
                self.http.receive_data(await self.stream.receive())
            except anyio.EndOfStream:
                self.http.receive_data(b"")
        assert not isinstance(event, type)
        return event

    async def send(self, event: h11.Event) -> None:
        if data := self.http.send(event):
            await self.stream.send(data)

    async def serve(self) -> None:
        path = ""
        async with self.stream:
            try:
                while isinstance(request := await self.event(), h11.Request):
                    body = b""
                    while isinstance(part := await self.event(), h11.Data):
                        body += part.data
                    path, _, query = request.target.decode().partition("?")
                    headers = {name.decode(): value.decode() for name, value in request.headers}
                    self.site.requests.append((path, headers))
                    self.site.asked[path].set()
                    await self.answer(request.method.decode(), path, query, headers, body)
                    if self.http.our_state is h11.MUST_CLOSE:
                        break
                    self.http.start_next_cycle()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.ProtocolError):
                pass
            finally:
                self.site.left[path].set()

    async def reply(self, body: bytes, *headers: tuple[str, str], status: int = 200) -> None:
        bare = status == 204
        sized = [] if bare else [("content-length", str(len(body)))]
        await self.send(h11.Response(status_code=status, headers=[*sized, *headers], reason=b"OK"))
        await self.send(h11.Data(data=b"" if bare else body))
        await self.send(h11.EndOfMessage())

    async def stream_of(self, parts: AsyncIterator[bytes]) -> None:
        await self.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        async for part in parts:
            await self.send(h11.Data(data=part))
        await self.send(h11.EndOfMessage())

    async def until_gone(self) -> None:
        try:
            await self.stream.receive()
        except anyio.EndOfStream:
            raise anyio.ClosedResourceError from None

    async def answer(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> None:
        named = {key: values[0] for key, values in parse_qs(query).items()}
        match path.split("/")[1:]:
            case ["binary"]:
                data = (bytes(range(256)) * (int(named["size"]) // 256 + 1))[: int(named["size"])]
                await self.reply(data, ("content-type", "application/octet-stream"))
            case ["mirror"]:
                await self.reply(body)
            case ["status", code]:
                await self.reply(code.encode(), status=int(code))
            case ["gzip"]:
                await self.reply(gzip.compress(b"x" * 1000), ("content-encoding", "gzip"))
            case ["redirect"]:
                await self.reply(b"", ("location", unquote(query.removeprefix("to="))), status=302)
            case ["say-headers"]:
                secret = headers.get("authorization", "")
                await self.reply(f"<{secret}> {secret[7:]}".encode(), ("x-said", secret))
            case ["silent"]:
                await self.until_gone()
            case ["wait-for"]:
                await self.site.wait_until_asked(named["path"])
                await self.reply(b"")
            case ["go"]:
                self.site.go.set()
                await self.reply(b"")
            case ["ticks"]:

                async def ticks() -> AsyncIterator[bytes]:
                    yield b"data: 0\n\n"
                    await self.site.go.wait()
                    yield b"data: 1\n\n"
                    await self.until_gone()

                await self.stream_of(ticks())
            case ["events"]:

                async def events() -> AsyncIterator[bytes]:
                    for start in range(0, len(EVENTS), 7):
                        yield EVENTS[start : start + 7]

                await self.stream_of(events())
            case _ if self.site.files is not None and (found := self.site.files / path[1:]).is_file():
                await self.reply(found.read_bytes())
            case _:
                told = {"method": method, "query": query, "size": len(body), "headers": headers}
                await self.reply(json.dumps(told).encode(), ("content-type", "application/json"))

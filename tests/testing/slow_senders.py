"""Clients that send the body of a request byte by byte, over HTTP/1.1 and over gRPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import h2.config
import h2.connection
import h2.events
import h11

__all__ = ["call_slowly", "post_slowly"]

Pause = Callable[[], Awaitable[object]]


async def post_slowly(
    port: int, path: str, headers: list[tuple[str, str]], body: bytes, pause: Pause
) -> tuple[int, bytes]:
    """Returns status and body of the reply as soon as it is there."""
    line = h11.Connection(h11.CLIENT)
    own = [("host", f"127.0.0.1:{port}"), ("transfer-encoding", "chunked")]
    status, reply = 0, b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream, anyio.create_task_group() as tasks:
        await stream.send(line.send(h11.Request(method="POST", target=path, headers=[*own, *headers])) or b"")

        async def send() -> None:
            for byte in body:
                await stream.send(line.send(h11.Data(bytes([byte]))) or b"")
                await pause()
            await stream.send(line.send(h11.EndOfMessage()) or b"")

        tasks.start_soon(send)
        while True:
            match line.next_event():
                case h11.NEED_DATA:
                    line.receive_data(await stream.receive())
                case h11.Response(status_code=status):
                    pass
                case h11.Data(data=data):
                    reply += data
                case _:
                    tasks.cancel_scope.cancel()
                    break
    return status, reply


async def call_slowly(
    port: int, method: str, metadata: list[tuple[str, str]], message: bytes, pause: Pause
) -> tuple[dict[str, str], bytes]:
    """Returns the trailers and the message of the reply as soon as they are there."""
    line = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    own = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", f"127.0.0.1:{port}")]
    grpc = [("te", "trailers"), ("content-type", "application/grpc")]
    trailers: dict[str, str] = {}
    reply = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream, anyio.create_task_group() as tasks:
        line.initiate_connection()
        line.send_headers(1, [*own, *grpc, *metadata])

        async def send() -> None:
            for byte in b"\0" + len(message).to_bytes(4, "big") + message:
                line.send_data(1, bytes([byte]))
                await stream.send(line.data_to_send())
                await pause()
            line.end_stream(1)
            await stream.send(line.data_to_send())

        tasks.start_soon(send)
        ended = False
        while not ended:
            for event in line.receive_data(await stream.receive()):
                found: Any = event
                match event:
                    case h2.events.DataReceived():
                        reply += found.data
                    case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                        trailers |= dict(found.headers)
                    case h2.events.StreamEnded() | h2.events.StreamReset():
                        ended = True
                    case _:
                        pass
        tasks.cancel_scope.cancel()
    return trailers, reply[5:]

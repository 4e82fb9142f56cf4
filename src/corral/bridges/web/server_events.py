"""Streamed body of server-sent events, which begins with its first event."""

from __future__ import annotations

import anyio

from corral.bridges.base import Send

__all__ = ["EventStream"]

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Streamed body of one response; writers wait for each other."""

    heartbeat_event = b":\n\n"
    """A comment; clients may need another event."""

    def __init__(self, send: Send) -> None:
        self.started = False
        self._send = send
        self._writing = anyio.Lock()

    async def heartbeat(self) -> None:
        """Sends something without meaning, once it is known that the response has events."""
        if self.begins:
            await self.write(self.heartbeat_event)

    @property
    def begins(self) -> bool:
        """True once it is known that the response has events."""
        return self.started

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Sends whole events, before the first of them the response's head; `last` ends the response."""
        async with self._writing:
            if not self.started:
                self.started = True
                length = [(b"content-length", b"%d" % len(data))] if last else []
                await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *length]})
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})

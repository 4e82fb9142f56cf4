"""Streamed body of server-sent events."""

from __future__ import annotations

import anyio
from typing_extensions import override

from corral.bridges.base import Send
from corral.bridges.web.response_stream import ResponseStream

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class EventStream(ResponseStream):
    """Streamed body of whole events; writers wait for each other."""

    heartbeat_event = b":\n\n"
    """A comment; some clients need another event."""

    def __init__(self, send: Send) -> None:
        super().__init__(send, *_HEADERS)
        self._busy = False
        self._free: anyio.Event | None = None
        """Set when the writer is done, if others wait. An anyio lock would cost a loop iteration per event."""

    async def heartbeat(self) -> None:
        """Sends an empty comment or event, once it is known that the response has events."""
        if self.begins:
            await self.write(self.heartbeat_event)

    @property
    def begins(self) -> bool:
        """True once it is known that the response has events."""
        return self.started

    @override
    async def write(self, data: bytes, /, *, last: bool = False) -> None:
        while self._busy:
            self._free = self._free or anyio.Event()
            await self._free.wait()
        self._busy = True
        try:
            await super().write(data, last=last)
        finally:
            self._busy = False
            free, self._free = self._free, None
            if free is not None:
                free.set()

"""Replies in lines: the streamed body of one response."""

from __future__ import annotations

from corral.bridges.base import Send

__all__ = ["NDJSON", "ReplyLines"]

NDJSON = "application/x-ndjson"

_HEADERS = [(b"content-type", NDJSON.encode())]


class ReplyLines:
    """Streamed body of one response."""

    def __init__(self, send: Send) -> None:
        self.started = False
        self._send = send

    async def write(self, data: bytes, *, last: bool = False) -> None:
        if not self.started:
            self.started = True
            length = [(b"content-length", b"%d" % len(data))] if last else []
            await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *length]})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

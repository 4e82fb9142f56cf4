"""Streamed body of a response whose head is sent with the first part."""

from __future__ import annotations

from corral.bridges.base import Send


class ResponseStream:
    """Streamed body of one response with status 200."""

    def __init__(self, send: Send, *headers: tuple[bytes, bytes]) -> None:
        self.started = False
        self._send = send
        self._headers = headers

    async def write(self, data: bytes, /, *, last: bool = False) -> None:
        """Sends a part, preceded by the head if it is the first; `last` ends the response."""
        if not self.started:
            self.started = True
            length = [(b"content-length", b"%d" % len(data))] if last else []
            await self._send({"type": "http.response.start", "status": 200, "headers": [*self._headers, *length]})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

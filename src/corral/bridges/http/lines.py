"""Replies in lines: the streamed body of one response."""

from __future__ import annotations

from corral.bridges.base import Send
from corral.bridges.web.response_stream import ResponseStream

NDJSON = "application/x-ndjson"


class ReplyLines(ResponseStream):
    """Streamed body of one response."""

    def __init__(self, send: Send) -> None:
        super().__init__(send, (b"content-type", NDJSON.encode()))

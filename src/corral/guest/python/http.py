"""Calls as corral's HTTP bridge takes them.

POST {url}/calls has the calls of a batch as JSON; its reply is a stream of lines, one for each call in the order in
which they end; one that streams is alone in its request, and has lines with its items before. POST {url}/token gives a
fresh token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from corral.guest.python.client import (
    ALONE,
    BridgeReply,
    BridgeRequest,
    Failure,
    Items,
    ReplyReader,
    WrongReply,
    bridge_transport,
)
from corral.guest.python.values import Encoded, revive

__all__ = ["connect", "connect_from_environment"]

_MAX_NAME = 100
"""Characters of what an error is called."""


class _HttpTransport:
    batch_calls = 64
    renewal_path = "/token"

    def encode(self, sequence: int, path: str, input: Encoded, /) -> bytes:
        tagged = b',"tagged":true' if input.tagged else b""
        return b'{"sequence":%d,"tool":%b,"input":%b%b}' % (sequence, path.encode(), input.text, tagged)

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        return BridgeRequest("/calls", b'{"calls":[%b],"stream":true}' % b",".join(calls))

    def reader(self, _sequences: Sequence[int], max_bytes: int, /) -> ReplyReader:
        return _Lines(max_bytes)

    def refusal(self, body: bytes, /) -> Failure:
        return _read_failure(json.loads(body)["error"])


class _Lines:
    """Splits a reply into lines. Text after the last line end is no line."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes, /) -> Iterator[BridgeReply]:
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._length += len(first)
        if self._length > self._max_bytes:
            raise WrongReply(f"a line of its reply is longer than {self._max_bytes} bytes")
        if others:
            lines = [b"".join(self._parts), *others[:-1]]
            self._parts, self._length = [others[-1]], len(others[-1])
            yield from (_read_reply(line) for line in lines if line)  # an empty one keeps a slow connection alive

    def end(self) -> tuple[BridgeReply, ...]:
        return ()


def _read_reply(line: bytes) -> BridgeReply:
    try:
        reply: dict[str, Any] = dict(json.loads(line.decode()))
        sequence: object = reply.get("sequence")
        failure = _read_failure(reply["error"]) if "error" in reply else None
        value: Any = reply.get("items", reply.get("value"))
        value = revive(value) if reply.get("tagged") is True else value
        if "items" in reply:
            value = Items(value)
        elif reply.get("alone") is True:
            value = ALONE
        return sequence if type(sequence) is int else -1, failure, value
    except Exception:
        raise WrongReply("it sent a line that is not a reply") from None


def _read_failure(error: dict[str, Any]) -> Failure:
    code, name, message, seconds = (error.get(key) for key in ("code", "name", "message", "retryAfterSeconds"))
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(name, str)):
        raise TypeError("an error has a code, a name and a message")
    if not name.isidentifier() or len(name) > _MAX_NAME:
        raise ValueError("an error is called as a class is")
    return code, name, message, seconds if isinstance(seconds, int | float) else None


connect, connect_from_environment = bridge_transport(_HttpTransport())

"""Calls as JSON, and replies as lines of JSON: the format that several transports share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from corral.guest.python.client import ALONE, BridgeReply, Failure, Items, WrongReply
from corral.guest.python.values import Encoded, revive

_MAX_NAME = 100
"""Maximum length of the name of an error."""


def encode_call(sequence: int, path: str, input: Encoded) -> bytes:
    """Encodes one call as JSON; `path` is the tool's path as JSON."""
    tagged = b',"tagged":true' if input.tagged else b""
    return b'{"sequence":%d,"tool":%b,"input":%b%b}' % (sequence, path.encode(), input.text, tagged)


class Lines:
    """Splits a reply into lines, which `read` parses. Text after the last line end is ignored."""

    def __init__(self, max_bytes: int, read: Callable[[bytes], Iterable[BridgeReply]]) -> None:
        self._read = read
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
            for line in lines:
                if line:
                    yield from self._read(line)  # empty lines keep a slow connection alive

    def end(self) -> tuple[BridgeReply, ...]:
        return ()


def read_reply(line: bytes) -> BridgeReply:
    """Parses the reply to a call from a line of JSON."""
    try:
        reply: dict[str, Any] = dict(json.loads(line.decode()))
        sequence: object = reply.get("sequence")
        failure = read_failure(reply["error"]) if "error" in reply else None
        value: Any = reply.get("items", reply.get("value"))
        value = revive(value) if reply.get("tagged") is True else value
        if "items" in reply:
            value = Items(value)
        elif reply.get("alone") is True:
            value = ALONE
        return sequence if type(sequence) is int else -1, failure, value
    except Exception:
        raise WrongReply("it sent a line that is not a reply") from None


def read_failure(error: dict[str, Any]) -> Failure:
    """Parses an error in the host's format."""
    code, name, message, seconds = (error.get(key) for key in ("code", "name", "message", "retryAfterSeconds"))
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(name, str)):
        raise TypeError("it sent an error without a code, a name or a message")
    if not name.isidentifier() or len(name) > _MAX_NAME:
        raise ValueError("it sent an error whose name is not an identifier")
    return code, name, message, seconds if isinstance(seconds, int | float) else None

"""How much of one execution arrives over HTTP, and how much of it is in memory at the same time."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import anyio
from starlette.types import Receive

from corral.bridges.grants import Grant
from corral.bridges.http.messages import MAX_CALLS, read_json
from corral.bridges.http.request_filter import Head
from corral.errors import CallBudgetExceeded

__all__ = ["Body", "traffic_of"]

_BODY_BYTES = 8_000_000
"""Bodies that are answered at the same time, as they arrive; in Python they can take 25 times as much."""


class Traffic:
    """What requests of one execution take. A sandbox on a pipe is held to the same by its session."""

    def __init__(self, grant: Grant) -> None:
        self._most_calls = grant.limits.calls + MAX_CALLS
        self._calls = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    def count(self, calls: int) -> int:
        """Counts calls as they arrive, whatever becomes of them; gives the number of the first of them.

        Raises:
            CallBudgetExceeded: there are so many more than allowed that nobody needs to be told of each.
        """
        self._calls += calls
        if self._calls > self._most_calls:
            raise CallBudgetExceeded("the execution made many more tool calls than it may")
        return self._calls - calls + 1

    def fits(self, size: int) -> bool:
        """Takes room for a body of that many bytes, if there is room now."""
        if self._waiting or (self._bytes and self._bytes + size > _BODY_BYTES):
            return False
        self._bytes += size
        return True

    async def wait(self, size: int) -> None:
        """Takes room for a body, when there is some."""
        self._waiting.append((size, turn := anyio.Event()))
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.leave(size)
            else:
                self._waiting.remove((size, turn))
            raise

    def leave(self, size: int) -> None:
        """Gives back the room of a body."""
        self._bytes -= size
        while self._waiting and (not self._bytes or self._bytes + self._waiting[0][0] <= _BODY_BYTES):
            waiting, turn = self._waiting.popleft()
            self._bytes += waiting
            turn.set()


class Body:
    """A block with a parsed body and its size in bytes, and room for it. Entering it raises as `read_json`."""

    def __init__(self, head: Head, receive: Receive, most_bytes: int, grant: Grant) -> None:
        self._head = head
        self._receive = receive
        self._most_bytes = most_bytes
        self._room = most_bytes if head.length is None else min(most_bytes, head.length)
        self._traffic = traffic_of(grant)

    async def __aenter__(self) -> tuple[Any, int]:
        if not self._traffic.fits(self._room):
            await self._traffic.wait(self._room)
        try:
            return await read_json(self._head, self._receive, self._most_bytes)
        except BaseException:
            self._traffic.leave(self._room)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._traffic.leave(self._room)


_traffic: WeakKeyDictionary[Grant, Traffic] = WeakKeyDictionary()


def traffic_of(grant: Grant) -> Traffic:
    """That of an execution, from its first request to its end."""
    found = _traffic.get(grant)
    if found is None:
        found = _traffic[grant] = Traffic(grant)
    return found

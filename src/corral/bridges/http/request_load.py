"""How much of one execution arrives over HTTP, and how much of it is in memory at the same time."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from starlette.types import Receive

from corral.bridges.grants import Grant
from corral.bridges.http.messages import MAX_CALLS, read_json
from corral.bridges.http.request_filter import Head
from corral.concurrency.capacity import Capacity
from corral.errors import CallBudgetExceeded

__all__ = ["Body", "traffic_of"]

_BODY_BYTES = 8_000_000
"""Bodies that are answered at the same time, as they arrive; in Python they can take 25 times as much."""


class Traffic:
    """What requests of one execution take. A sandbox on a pipe is held to the same by its session."""

    def __init__(self, grant: Grant) -> None:
        self._most_calls = grant.limits.calls + MAX_CALLS
        self._calls = 0
        self.room = Capacity(_BODY_BYTES)
        """In bytes, of bodies."""

    def count(self, calls: int) -> int:
        """Counts calls as they arrive, whatever becomes of them; gives the number of the first of them.

        Raises:
            CallBudgetExceeded: there are so many more than allowed that nobody needs to be told of each.
        """
        self._calls += calls
        if self._calls > self._most_calls:
            raise CallBudgetExceeded("the execution made many more tool calls than it may")
        return self._calls - calls + 1


class Body:
    """A block with a parsed body and its size in bytes, and room for it. Entering it raises as `read_json`."""

    def __init__(self, head: Head, receive: Receive, most_bytes: int, grant: Grant) -> None:
        self._head = head
        self._receive = receive
        self._most_bytes = most_bytes
        self._size = most_bytes if head.length is None else min(most_bytes, head.length)
        self._room = traffic_of(grant).room

    async def __aenter__(self) -> tuple[Any, int]:
        if not self._room.try_acquire(self._size):
            await self._room.acquire(self._size)
        try:
            return await read_json(self._head, self._receive, self._most_bytes)
        except BaseException:
            self._room.release(self._size)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._room.release(self._size)


_traffic: WeakKeyDictionary[Grant, Traffic] = WeakKeyDictionary()


def traffic_of(grant: Grant) -> Traffic:
    """That of an execution, from its first request to its end."""
    found = _traffic.get(grant)
    if found is None:
        found = _traffic[grant] = Traffic(grant)
    return found

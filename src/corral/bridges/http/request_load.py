"""Bounds on the calls and the bytes in memory that one execution sends over HTTP."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from starlette.types import Receive

from corral.bridges.grants import Grant
from corral.bridges.http.messages import MAX_CALLS, read_json
from corral.bridges.http.request_filter import RequestHead
from corral.concurrency.capacity import Capacity
from corral.errors import CallBudgetExceeded

__all__ = ["Body", "load_of"]

_BODY_BYTES = 8_000_000
"""Bytes of concurrent bodies, as they arrive; as Python objects they can take 25 times as much."""


class RequestLoad:
    """Calls and bytes of the requests of one execution. For a pipe, `GuestSession` has the same bounds."""

    def __init__(self, grant: Grant) -> None:
        self._most_calls = grant.limits.calls + MAX_CALLS
        self._calls = 0
        self.room = Capacity(_BODY_BYTES)
        """In bytes, of bodies."""

    def count(self, calls: int) -> int:
        """Counts calls on arrival; returns the number of the first.

        Raises:
            CallBudgetExceeded: so many calls are over the budget that they are refused without a record.
        """
        self._calls += calls
        if self._calls > self._most_calls:
            raise CallBudgetExceeded("the execution made many more tool calls than it may")
        return self._calls - calls + 1


class Body:
    """Context of a parsed body and its size in bytes, with reserved memory. Entering it raises as `read_json`."""

    def __init__(self, head: RequestHead, receive: Receive, most_bytes: int, grant: Grant) -> None:
        self._head = head
        self._receive = receive
        self._most_bytes = most_bytes
        self._size = most_bytes if head.length is None else min(most_bytes, head.length)
        self._room = load_of(grant).room

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


_load: WeakKeyDictionary[Grant, RequestLoad] = WeakKeyDictionary()


def load_of(grant: Grant) -> RequestLoad:
    """Returns the load of an execution, from its first request to its end."""
    found = _load.get(grant)
    if found is None:
        found = _load[grant] = RequestLoad(grant)
    return found

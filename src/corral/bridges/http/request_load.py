"""Bounds on the calls and the bytes in memory that one execution sends over HTTP."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import anyio
from starlette.types import Receive

from corral.bridges.grants import Grant
from corral.bridges.http.messages import MAX_CALLS, read_json
from corral.bridges.http.request_filter import RequestHead
from corral.errors import CallBudgetExceeded

__all__ = ["Body", "load_of"]

_BODY_BYTES = 8_000_000
"""Bytes of concurrent bodies, as they arrive; as Python objects they can take 25 times as much."""


class RequestLoad:
    """Calls and bytes of the requests of one execution. For a pipe, `GuestSession` has the same bounds."""

    def __init__(self, grant: Grant) -> None:
        self._most_calls = grant.limits.calls + MAX_CALLS
        self._calls = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    def count(self, calls: int) -> int:
        """Counts calls on arrival; returns the number of the first.

        Raises:
            CallBudgetExceeded: so many calls are over the budget that they are refused without a record.
        """
        self._calls += calls
        if self._calls > self._most_calls:
            raise CallBudgetExceeded("the execution made many more tool calls than it may")
        return self._calls - calls + 1

    def fits(self, size: int) -> bool:
        """Reserves memory for a body of `size` bytes; False if there is too little now."""
        if self._waiting or (self._bytes and self._bytes + size > _BODY_BYTES):
            return False
        self._bytes += size
        return True

    async def wait(self, size: int) -> None:
        """Waits for memory for a body, and reserves it."""
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
        """Releases the memory of a body."""
        self._bytes -= size
        while self._waiting and (not self._bytes or self._bytes + self._waiting[0][0] <= _BODY_BYTES):
            waiting, turn = self._waiting.popleft()
            self._bytes += waiting
            turn.set()


class Body:
    """Context of a parsed body and its size in bytes, with reserved memory. Entering it raises as `read_json`."""

    def __init__(self, head: RequestHead, receive: Receive, most_bytes: int, grant: Grant) -> None:
        self._head = head
        self._receive = receive
        self._most_bytes = most_bytes
        self._room = most_bytes if head.length is None else min(most_bytes, head.length)
        self._load = load_of(grant)

    async def __aenter__(self) -> tuple[Any, int]:
        if not self._load.fits(self._room):
            await self._load.wait(self._room)
        try:
            return await read_json(self._head, self._receive, self._most_bytes)
        except BaseException:
            self._load.leave(self._room)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._load.leave(self._room)


_load: WeakKeyDictionary[Grant, RequestLoad] = WeakKeyDictionary()


def load_of(grant: Grant) -> RequestLoad:
    """Returns the load of an execution, from its first request to its end."""
    found = _load.get(grant)
    if found is None:
        found = _load[grant] = RequestLoad(grant)
    return found

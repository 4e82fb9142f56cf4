"""Bounded resource, shared by tasks of one event loop in order of arrival."""

from __future__ import annotations

from collections import deque

import anyio


class Capacity:
    """Semaphore with sizes. A request larger than the total is admitted alone."""

    __slots__ = ("_total", "_used", "_waiting")

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    @property
    def is_free(self) -> bool:
        """True if nothing is acquired and no task waits."""
        return not self._used and not self._waiting

    def try_acquire(self, size: int = 1) -> bool:
        """Acquires without waiting; False if too little is free."""
        if self._waiting or (self._used and self._used + size > self._total):
            return False
        self._used += size
        return True

    async def acquire(self, size: int = 1) -> None:
        """Waits until enough is free. Call it after `try_acquire` has failed."""
        self._waiting.append(place := (size, anyio.Event()))
        try:
            await place[1].wait()
        except BaseException:
            if place[1].is_set():
                self.release(size)
            else:
                self._waiting.remove(place)
                self.release(0)  # this request may have blocked smaller ones
            raise

    def release(self, size: int = 1) -> None:
        self._used -= size
        while self._waiting and (not self._used or self._used + self._waiting[0][0] <= self._total):
            waiting, admitted = self._waiting.popleft()
            self._used += waiting
            admitted.set()

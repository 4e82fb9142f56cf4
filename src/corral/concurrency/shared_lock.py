"""Lock that many tasks can share or one task can hold alone, as a `sequential` tool call does."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable

import anyio


class SharedLock:
    """Readers-writer lock, first come, first served. Callers inline the fast path for an uncontended lock."""

    __slots__ = ("_alone", "_waiting", "contended", "running")

    def __init__(self) -> None:
        self.running = 0
        """Number of holders. Callers that find the lock uncontended change this number themselves."""
        self.contended = False
        """True while a task holds the lock alone or others wait. Callers must then use `wait` and `pass_on`."""
        self._alone = False
        self._waiting: deque[tuple[anyio.Event, bool]] = deque()

    async def wait(self, *, alone: bool) -> None:
        """Waits for the lock and acquires it."""
        place = anyio.Event(), alone
        self._waiting.append(place)
        self._admit()
        if place[0].is_set():
            return
        try:
            await place[0].wait()
        except BaseException:
            if place[0].is_set():
                self.running -= 1
                self.pass_on()
            else:
                self._waiting.remove(place)
                self._admit()  # this task may have been the only obstacle for others
            raise

    @property
    def waited_for(self) -> bool:
        """True if tasks are waiting for it."""
        return bool(self._waiting)

    async def lend(self, until: Awaitable[object], *, alone: bool) -> None:
        """Releases the lock while its holder awaits `until`, then always reacquires it."""
        self.running -= 1
        if self.contended:
            self.pass_on()
        try:
            await until
        finally:
            if alone or self.contended:
                await self._wait_in_any_case(alone=alone)
            else:
                self.running += 1

    async def _wait_in_any_case(self, *, alone: bool) -> None:
        """Like `wait`, but acquires the lock even if cancelled: a shield does not block `asyncio.Task.cancel`."""
        cancelled: BaseException | None = None
        while True:
            try:
                with anyio.CancelScope(shield=True):
                    await self.wait(alone=alone)
                break
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def pass_on(self) -> None:
        """Admits waiting tasks. Call it after a holder has left and is no longer counted."""
        self._alone = False
        self._admit()

    def _admit(self) -> None:
        while self._waiting and not self._alone and not (self._waiting[0][1] and self.running):
            admitted, self._alone = self._waiting.popleft()
            self.running += 1
            admitted.set()
        self.contended = self._alone or bool(self._waiting)

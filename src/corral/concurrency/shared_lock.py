"""Turns of the calls of one execution: a tool that is `sequential` runs alone."""

from __future__ import annotations

from collections import deque

import anyio

__all__ = ["Turns"]


class Turns:
    """Who runs, of the calls of one execution: any number together, or one alone; and who waits, first come first."""

    __slots__ = ("_alone", "_waiting", "contended", "running")

    def __init__(self) -> None:
        self.running = 0
        """Calls that run now. Who enters while nothing is contended counts itself."""
        self.contended = False
        """Whether one runs alone, or some wait: then turns are given by `wait` and `pass_on`."""
        self._alone = False
        self._waiting: deque[tuple[anyio.Event, bool]] = deque()

    async def wait(self, *, alone: bool) -> None:
        """Waits for a turn, and takes it."""
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
                self._admit()  # it may have been all that kept others
            raise

    def pass_on(self) -> None:
        """Gives the turn of a call that has ended, and no longer counts, to those that wait."""
        self._alone = False
        self._admit()

    def _admit(self) -> None:
        while self._waiting and not self._alone and not (self._waiting[0][1] and self.running):
            turn, self._alone = self._waiting.popleft()
            self.running += 1
            turn.set()
        self.contended = self._alone or bool(self._waiting)

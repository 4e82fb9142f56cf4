"""The wall clock of one execution, which stands while a human is asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

__all__ = ["MOST_STANDING_SECONDS", "Clock"]


MOST_STANDING_SECONDS = 3600.0
"""For how long a clock stands in all. A program that has itself asked about again and again must end, too."""


class Clock:
    """Cancels what runs within `running` when its time is over. Within `standing`, which may overlap, it stands."""

    def __init__(self, seconds: float, *, most_standing_seconds: float = MOST_STANDING_SECONDS) -> None:
        self._left = seconds
        self._standing_left = most_standing_seconds
        self._stood_at = 0.0
        self._scope = anyio.CancelScope()
        self._stands = 0

    @property
    def ran_out(self) -> bool:
        """Whether the time was over before what ran had ended."""
        return self._scope.cancelled_caught

    @contextmanager
    def running(self) -> Generator[None]:
        """The block that has to end in time; entered once."""
        self._scope.deadline = anyio.current_time() + self._left
        with self._scope:
            yield

    @contextmanager
    def standing(self) -> Generator[None]:
        """A block during which no time passes. It may be entered in other tasks than `running`."""
        if self._stands == 0:
            self._stood_at = anyio.current_time()
            self._left = self._scope.deadline - self._stood_at
            self._scope.deadline = self._stood_at + self._standing_left + self._left
        self._stands += 1
        try:
            yield
        finally:
            self._stands -= 1
            if self._stands == 0:
                now = anyio.current_time()
                over = max(0.0, now - self._stood_at - self._standing_left)
                self._standing_left = max(0.0, self._standing_left - (now - self._stood_at))
                self._scope.deadline = now + self._left - over

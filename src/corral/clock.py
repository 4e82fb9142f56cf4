"""The wall clock of one execution, which stands while a human is asked."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio

__all__ = ["Clock"]


class Clock:
    """Cancels what runs within `running` when its time is over. Within `standing`, which may overlap, it stands."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
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
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
        self._stands += 1
        try:
            yield
        finally:
            self._stands -= 1
            if self._stands == 0:
                self._scope.deadline = anyio.current_time() + self._left

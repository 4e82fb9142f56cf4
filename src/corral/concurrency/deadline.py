"""Wall-clock deadline of one execution, paused while a human is asked for approval."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

__all__ = ["MAX_PAUSED_SECONDS", "PausableDeadline"]


MAX_PAUSED_SECONDS = 3600.0
"""Maximum of all pauses together: a program that asks for approval again and again must end, too."""


class PausableDeadline:
    """Cancels the `running` block when its time is used up. Time stops within `paused` blocks, which may overlap."""

    def __init__(self, seconds: float, *, max_paused_seconds: float = MAX_PAUSED_SECONDS) -> None:
        self._left = seconds
        self._pause_left = max_paused_seconds
        self._paused_at = 0.0
        self._scope = anyio.CancelScope()
        self._pauses = 0

    @property
    def expired(self) -> bool:
        """True once the `running` block was cancelled."""
        return self._scope.cancelled_caught

    @contextmanager
    def running(self) -> Generator[None]:
        """Block that has to end in time. It can be entered once."""
        self._scope.deadline = anyio.current_time() + self._left
        with self._scope:
            yield

    @contextmanager
    def paused(self) -> Generator[None]:
        """Block during which no time passes. Any task may enter it."""
        if self._pauses == 0:
            self._paused_at = anyio.current_time()
            self._left = self._scope.deadline - self._paused_at
            self._scope.deadline = self._paused_at + self._pause_left + self._left
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                now = anyio.current_time()
                over = max(0.0, now - self._paused_at - self._pause_left)
                self._pause_left = max(0.0, self._pause_left - (now - self._paused_at))
                self._scope.deadline = now + self._left - over

"""Wall-clock deadline of one execution, paused while a human is asked for approval."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident

import anyio

from corral.concurrency.threads import thread_safe_callback

MAX_PAUSED_SECONDS = 3600.0
"""Maximum of all pauses together: a program that asks for approval again and again must end, too."""


class PausableDeadline:
    """Cancels the `running` block when its time is used up. Time stops within `paused` blocks, which may overlap."""

    def __init__(self, seconds: float, *, max_paused_seconds: float = MAX_PAUSED_SECONDS) -> None:
        self._seconds = seconds
        self._pause_left = max_paused_seconds
        self._paused_at = 0.0
        self._scope = anyio.CancelScope()
        self._pauses = 0
        self._thread: int | None = None
        """Thread of the event loop that runs the block."""

    @property
    def expired(self) -> bool:
        """True once the `running` block was cancelled."""
        return self._scope.cancelled_caught

    @contextmanager
    def running(self) -> Generator[None]:
        """Block that has to end in time. It can be entered once."""
        self._scope.deadline = anyio.current_time() + self._seconds
        self._thread = get_ident()
        self._elsewhere = thread_safe_callback(self._pause), thread_safe_callback(self._resume)
        with self._scope:
            yield

    @contextmanager
    def paused(self) -> Generator[None]:
        """Block during which no time passes. Any task of any event loop may enter it."""
        is_here = self._thread in (None, get_ident())
        pause, resume = (self._pause, self._resume) if is_here else self._elsewhere
        pause()
        try:
            yield
        finally:
            resume()

    def _pause(self) -> None:
        if self._pauses == 0:
            self._paused_at = time.monotonic()
            self._scope.deadline += self._pause_left
        self._pauses += 1

    def _resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self._pause_left = max(0.0, self._pause_left - (time.monotonic() - self._paused_at))
            self._scope.deadline -= self._pause_left

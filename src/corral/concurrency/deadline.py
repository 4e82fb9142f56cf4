"""Wall-clock deadline of one execution, paused while a human is asked for approval."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident

import anyio

from corral.concurrency.threads import thread_safe_callback

_MAX_PAUSED_SECONDS = 3600.0
"""Maximum total of all pauses in seconds: even a program that keeps asking for approval has to end."""


class PausableDeadline:
    """Cancels the `running` block when its time is up. The clock stops during `paused` blocks, which can overlap."""

    def __init__(self, seconds: float, *, max_paused_seconds: float = _MAX_PAUSED_SECONDS) -> None:
        self._seconds = seconds
        self._pause_left = max_paused_seconds
        self._paused_at = 0.0
        self._scope = anyio.CancelScope()
        self._pauses = 0
        self._thread: int | None = None
        """Thread of the block's event loop."""

    @property
    def expired(self) -> bool:
        """True once the `running` block was cancelled."""
        return self._scope.cancelled_caught

    @contextmanager
    def running(self) -> Generator[None]:
        """Runs a block under the deadline. Can be entered once."""
        self._scope.deadline = anyio.current_time() + self._seconds
        self._thread = get_ident()
        self._elsewhere = thread_safe_callback(self._pause), thread_safe_callback(self._resume)
        with self._scope:
            yield

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stops the clock during a block. Any task of any event loop can enter it."""
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

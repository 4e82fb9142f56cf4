"""Calls from other threads into an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from anyio.lowlevel import current_token

__all__ = ["soon"]


def soon(function: Callable[[], object]) -> Callable[[], None]:
    """What calls `function` in the event loop that runs now, from any thread; it does nothing if that loop is over."""
    loop: Any = current_token().native_token
    schedule = loop.call_soon_threadsafe if isinstance(loop, asyncio.AbstractEventLoop) else loop.run_sync_soon

    def call() -> None:
        with suppress(RuntimeError):  # trio's RunFinishedError is one
            schedule(function)

    return call

"""Waits until something has happened that a test is not told of."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

__all__ = ["LIMIT_SECONDS", "until", "until_sync"]

LIMIT_SECONDS = 60.0
"""How long a wait may last. It ends tests that fail; those that pass wait a few milliseconds."""
_PAUSE_SECONDS = 0.005


async def until(condition: Callable[[], object]) -> None:
    """Waits until the condition is true, and lets the event loop run meanwhile.

    Raises:
        AssertionError: It was not true within LIMIT_SECONDS.
    """
    end = anyio.current_time() + LIMIT_SECONDS
    while not condition():
        assert anyio.current_time() < end, f"this has not happened within {LIMIT_SECONDS:.0f} s: {condition}"
        await anyio.sleep(_PAUSE_SECONDS)


def until_sync(condition: Callable[[], object]) -> None:
    """The same for tests without an event loop."""
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"this has not happened within {LIMIT_SECONDS:.0f} s: {condition}"
        time.sleep(_PAUSE_SECONDS)

"""Work in a thread of its own, and calls from threads into an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token
from typing_extensions import TypeVarTuple, Unpack

__all__ = ["apart", "scheduler", "soon"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def apart(
    function: Callable[[Unpack[Arguments]], T], *arguments: *Arguments, abandon_on_cancel: bool = False
) -> T:
    """The function's result, from a thread that is none of those that tools share and may all be keeping busy.

    With `abandon_on_cancel` nobody waits for its end when this is cancelled.
    """
    limiter = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=abandon_on_cancel, limiter=limiter)


def scheduler() -> Callable[[Callable[[], object]], object]:
    """The running event loop's own function that takes calls from any thread."""
    loop: Any = current_token().native_token
    return loop.call_soon_threadsafe if isinstance(loop, asyncio.AbstractEventLoop) else loop.run_sync_soon


def soon(function: Callable[[], object]) -> Callable[[], None]:
    """A callback for any thread: has `function` called in the loop that runs now, unless that loop is over by then."""
    schedule = scheduler()

    def call() -> None:
        with suppress(RuntimeError):  # trio's RunFinishedError is one
            schedule(function)

    return call

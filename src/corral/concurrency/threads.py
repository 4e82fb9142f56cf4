"""Threads outside anyio's shared pool, and thread-safe calls into an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token
from typing_extensions import TypeVarTuple, Unpack

from corral.errors import StartFailed

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


def expect_threads() -> None:
    """Starts a test thread, because the code that follows needs threads.

    Raises:
        StartFailed: a thread cannot be started.
    """
    thread = Thread(target=int, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise StartFailed(
            f"cannot start a thread here ({error}): raise the limit of processes (ulimit -u, --pids-limit); if the "
            "container's seccomp profile answers clone3 with EPERM, as before Docker 20.10.10, use a newer one"
        ) from error
    thread.join()


async def run_in_own_thread(
    function: Callable[[Unpack[Arguments]], T], *arguments: *Arguments, abandon_on_cancel: bool = False
) -> T:
    """Runs the function in a thread outside the shared pool, because sync tools can fill that pool.

    With `abandon_on_cancel`, a cancelled caller does not wait for the thread.
    """
    limiter = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=abandon_on_cancel, limiter=limiter)


async def run_shielded_in_thread(function: Callable[[], T]) -> T:
    """Runs work that must finish in its own thread: cancellation does not interrupt it."""
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await run_in_own_thread(function))
    return results[0]


def thread_safe_scheduler() -> Callable[[Callable[[], object]], object]:
    """Returns the running event loop's function that schedules calls from any thread."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop().call_soon_threadsafe
    token: Any = current_token().native_token  # trio's
    return token.run_sync_soon


def thread_safe_callback(function: Callable[[], object]) -> Callable[[], None]:
    """Returns a thread-safe callback that calls `function` in the current event loop, if it still runs."""
    schedule = thread_safe_scheduler()

    def call() -> None:
        with suppress(RuntimeError):  # trio's RunFinishedError is one
            schedule(function)

    return call

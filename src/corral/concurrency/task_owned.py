"""Runs an async context manager in its own task, so that any task can close it.

anyio requires that a task group, and everything built on one, is exited by the task that entered it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import cast

import anyio

from corral.concurrency.event_loop import asyncio_loop
from corral.logs import get_logger

logger = get_logger("corral")

_CLOSE_SECONDS = 5.0
"""Seconds that the exit may take before it is cancelled."""
_tasks: set[asyncio.Task[None]] = set()
"""Strong references to the tasks: asyncio itself keeps only weak ones."""


class TaskOwnedContext:
    """Enters a context manager on `open` and exits it on `aclose`, both in one dedicated task."""

    def __init__(self, manager: AbstractAsyncContextManager[object]) -> None:
        self._manager = manager
        self._scope = anyio.CancelScope()
        self._entered = anyio.Event()
        self._leave = anyio.Event()
        self._left = anyio.Event()
        self._failure: Exception | None = None
        self._started = False

    async def open(self) -> None:
        """Enters the manager. Raises its errors; cancelling this cancels it."""
        self._started = True
        spawn(self._run)
        try:
            await self._entered.wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._left.wait()
            raise
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        """Exits the manager and waits until that is done. Idempotent."""
        if not self._started:
            return
        self._leave.set()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_CLOSE_SECONDS):
                await self._left.wait()
            self._scope.cancel()
            await self._left.wait()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._manager:
                    self._entered.set()
                    await self._leave.wait()
        except Exception as error:
            if self._entered.is_set():
                logger.warning("a tool source ended with an error", exc_info=True)
            self._failure = unwrapped(error)
        finally:
            self._entered.set()
            self._left.set()


def unwrapped(error: Exception) -> Exception:
    """Strips the exception groups with a single member that task groups put around an error."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return unwrapped(inner[0]) if len(inner) == 1 else cast("Exception", error)


def spawn(function: Callable[[], Awaitable[None]]) -> None:
    """Runs the function in a task that belongs to no task group."""
    loop = asyncio_loop()
    if loop is None:
        import_module("trio").lowlevel.spawn_system_task(function)
        return

    async def run() -> None:
        await function()

    task = loop.create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)

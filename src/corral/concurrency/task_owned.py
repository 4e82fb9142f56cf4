"""Keeping an asynchronous context manager open in a task of its own, so that any task may have it left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import cast

import anyio

from corral.logs import get_logger

__all__ = ["Held"]

logger = get_logger("corral")

_CLOSE_SECONDS = 5.0
"""How long leaving may take before it is cancelled."""
_tasks: set[asyncio.Task[None]] = set()
"""asyncio itself keeps only weak references to tasks."""


class Held:
    """One that is entered by `open` and left by `aclose`, both in the same task, whoever calls them.

    anyio's task groups, and all that is made of them, have to be left by the task that entered them.
    """

    def __init__(self, manager: AbstractAsyncContextManager[object]) -> None:
        self._manager = manager
        self._scope = anyio.CancelScope()
        self._entered = anyio.Event()
        self._leave = anyio.Event()
        self._left = anyio.Event()
        self._failure: Exception | None = None
        self._begun = False

    async def open(self) -> None:
        """Raises what entering it raised; if this is cancelled, so is entering it."""
        self._begun = True
        _spawn(self._hold)
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
        """Has it left, and waits until it is. Idempotent."""
        if not self._begun:
            return
        self._leave.set()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_CLOSE_SECONDS):
                await self._left.wait()
            self._scope.cancel()
            await self._left.wait()

    async def _hold(self) -> None:
        try:
            with self._scope:
                async with self._manager:
                    self._entered.set()
                    await self._leave.wait()
        except Exception as error:
            if self._entered.is_set():
                logger.warning("what tools come from ended with an error", exc_info=True)
            self._failure = _bare(error)
        finally:
            self._entered.set()
            self._left.set()


def _bare(error: Exception) -> Exception:
    """An error without the groups that task groups have put around it alone."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = cast("ExceptionGroup[Exception]", error).exceptions
    return _bare(inner[0]) if len(inner) == 1 else cast("Exception", error)


def _spawn(function: Callable[[], Awaitable[None]]) -> None:
    """Runs it as a task that belongs to no other."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import_module("trio").lowlevel.spawn_system_task(function)
        return

    async def run() -> None:
        await function()

    task = loop.create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)

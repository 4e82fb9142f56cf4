"""What watches over the calls of one request: they end with their execution, and when their client has gone.

A server gives each request a task of its own, in which anyio's first cancel scope costs 40 microseconds, as much as all
guards together. So on asyncio this cancels the task itself, and begins to watch only if the calls take their time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import anyio
from starlette.types import Message, Receive

from corral.bridges.grants import Grant

__all__ = ["Attendance"]

_UNATTENDED_SECONDS = 0.05
"""Most calls are answered before anybody has to look whether the client is still there."""
_HEARTBEAT_SECONDS = 15.0
"""After so long without a word, `heartbeat` is due: nobody in between is to take the connection for dead."""


class Attendance:
    """A block of calls under a grant. It ends early, without an exception, if the grant does or the client goes."""

    def __init__(self, grant: Grant, receive: Receive, heartbeat: Callable[[], Any]) -> None:
        self._grant = grant
        self._receive = receive
        self._heartbeat = heartbeat
        self._task: asyncio.Task[Any] | None = None
        self._stop: Callable[[], object]
        self._cut_short = False
        self._stack: AsyncExitStack | None = None

    async def __aenter__(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            await self._attend_with_anyio()
            return
        self._task = asyncio.current_task()
        self._stop = loop.call_later(_UNATTENDED_SECONDS, self._begin, loop).cancel
        self._grant.cutting.add(self._cut)

    async def _attend_with_anyio(self) -> None:
        self._stack = AsyncExitStack()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(self._attend)
        self._stop = tasks.cancel_scope.cancel
        self._grant.cutting.add(self._stop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stop = loop.create_task(self._attend()).cancel

    def _cut(self) -> None:
        if self._task is None:
            self._stop()
        elif not self._cut_short:
            self._cut_short = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._stop()
        if self._stack is not None:
            self._grant.cutting.discard(self._stop)
            return bool(await self._stack.__aexit__(kind, error, traceback))
        self._grant.cutting.discard(self._cut)
        if not self._cut_short or self._task is None:
            return False
        others = self._task.uncancel()
        return kind is asyncio.CancelledError and others == 0

    async def _attend(self) -> None:
        while True:
            message: Message | None = None
            with anyio.move_on_after(_HEARTBEAT_SECONDS):
                message = await self._receive()
            if message is None:
                await self._heartbeat()
            elif message["type"] == "http.disconnect":
                self._cut()
                return

"""Ends a request with its execution, when its body is late, and when its client disconnects.

A server gives each request its own task, in which anyio's first task group costs more than all guards together. So on
asyncio this cancels the task itself, and watches the client only if the calls take more than a moment.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio

from corral.bridges.base import Message, Receive
from corral.bridges.grants import Grant

__all__ = ["BODY_SECONDS", "RequestWatch", "watch_request"]

BODY_SECONDS = 30.0
_UNWATCHED_SECONDS = 0.05
"""Most calls have a reply before this, and need no watch of their client."""
_HEARTBEAT_SECONDS = 15.0
"""Silence after which `heartbeat` is called, so that no proxy takes the connection for dead."""


def watch_request(grant: Grant, receive: Receive, heartbeat: Callable[[], Any]) -> RequestWatch:
    """Context that ends early, without an exception, if the grant ends, the body is late or the client disconnects."""
    try:
        return _OnAsyncio(asyncio.get_running_loop(), grant, receive, heartbeat)
    except RuntimeError:
        return _OnAnyLoop(grant, receive, heartbeat)


class RequestWatch:
    """See `watch_request`. Before `body_received` only the block itself may call `receive`."""

    def __init__(self, grant: Grant, receive: Receive, heartbeat: Callable[[], Any]) -> None:
        self._grant = grant
        self._receive = receive
        self._heartbeat = heartbeat

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        raise NotImplementedError

    def body_received(self) -> None:
        """Ends the time limit of the body, and starts to watch the client."""
        raise NotImplementedError

    def _cut(self) -> None:
        """Ends the block; called in its event loop."""
        raise NotImplementedError

    async def _watch(self) -> None:
        while True:
            message: Message | None = None
            with anyio.move_on_after(_HEARTBEAT_SECONDS):
                message = await self._receive()
            if message is None:
                await self._heartbeat()
            elif message["type"] == "http.disconnect":
                self._cut()
                return


class _OnAsyncio(RequestWatch):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, grant: Grant, receive: Receive, heartbeat: Callable[[], Any]
    ) -> None:
        super().__init__(grant, receive, heartbeat)
        self._loop = loop
        self._task = asyncio.current_task()
        self._cut_short = False

    async def __aenter__(self) -> Self:
        self._stop: Callable[[], object] = self._loop.call_later(BODY_SECONDS, self._cut).cancel
        self._grant.on_end.add(self._cut_from_anywhere)
        return self

    def body_received(self) -> None:
        self._stop()
        self._stop = self._loop.call_later(_UNWATCHED_SECONDS, self._begin).cancel

    def _begin(self) -> None:
        self._stop = self._loop.create_task(self._watch()).cancel

    def _cut_from_anywhere(self) -> None:
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        if self._cut_from_anywhere in self._grant.on_end and not self._cut_short and self._task is not None:
            self._cut_short = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._stop()
        self._grant.on_end.discard(self._cut_from_anywhere)
        if not self._cut_short or self._task is None:
            return False
        others = self._task.uncancel()
        return kind is asyncio.CancelledError and others == 0


class _OnAnyLoop(RequestWatch):
    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.cancel_scope.deadline = anyio.current_time() + BODY_SECONDS
        self._grant.on_end.add(self._cut)
        return self

    def body_received(self) -> None:
        self._tasks.cancel_scope.deadline = math.inf
        self._tasks.start_soon(self._watch)

    def _cut(self) -> None:
        self._tasks.cancel_scope.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._cut()
        self._grant.on_end.discard(self._cut)
        return bool(await self._tasks.__aexit__(kind, error, traceback))

"""Ends a request when its execution ends, its body is late, or its client disconnects.

Servers run each request in its own task, in which anyio's first task group costs more than all guards together. On
asyncio, therefore, the task itself is cancelled, and the client is watched only if the calls take more than a moment. A
timer per request would cost as much as the guards, so requests with the same delay share one.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio

from corral.bridges.base import Message, Receive
from corral.calls.grants import Grant
from corral.errors import InvalidToken, MalformedMessage
from corral.types import CallError

BODY_SECONDS = 30.0
_UNWATCHED_SECONDS = 0.05
"""Seconds after which the client is watched. Most calls have a reply by then."""
_HEARTBEAT_SECONDS = 15.0
"""Seconds of silence after which `heartbeat` is called, so that proxies do not close the connection."""


def ended() -> CallError:
    """Returns the error of a call whose execution ended while it ran."""
    return CallError.of(InvalidToken("the execution of this token has ended"))


def late() -> CallError:
    """Returns the error of a request whose body did not arrive in time."""
    return CallError.of(MalformedMessage(f"the request's body did not arrive within {BODY_SECONDS:g} s"))


def watch_request(grant: Grant, receive: Receive, heartbeat: Callable[[], Any]) -> RequestWatch:
    """Returns a context manager that ends its block early, without an exception, if the grant ends, the body is late or
    the client disconnects."""
    try:
        return _OnAsyncio(asyncio.get_running_loop(), grant, receive, heartbeat)
    except RuntimeError:
        return _OnAnyLoop(grant, receive, heartbeat)


class RequestWatch:
    """See `watch_request`. Before `body_received`, only the block itself may call `receive`."""

    def __init__(self, grant: Grant, receive: Receive, heartbeat: Callable[[], Any]) -> None:
        self._grant = grant
        self._receive = receive
        self._heartbeat = heartbeat
        self._body_came = False

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        raise NotImplementedError

    def body_received(self) -> None:
        """Ends the body's time limit, and starts watching the client."""
        self._body_came = True

    @property
    def reason(self) -> CallError:
        """Error to send if the block ended early."""
        return ended() if self._body_came or self._grant.ended else late()

    def _cut(self) -> None:
        """Ends the block. Must be called in the block's event loop."""
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


class _Waiting:
    """Shared timer for requests of one event loop that all wait equally long."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[_OnAsyncio], object]) -> None:
        self._loop = loop
        self._act = act
        self._ends: dict[_OnAsyncio, float] = {}
        self._next = math.inf
        """Time of the next timer. The request it was set for may be gone by then."""

    def add(self, request: _OnAsyncio, seconds: float) -> None:
        """Calls `act` with the request after `seconds`, unless it is removed first."""
        end = self._ends[request] = self._loop.time() + seconds
        if end < self._next:
            self._set(end)

    def remove(self, request: _OnAsyncio) -> None:
        self._ends.pop(request, None)

    def _set(self, end: float) -> None:
        self._next = end
        self._loop.call_at(end, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self._next = math.inf
        while self._ends:
            request, end = next(iter(self._ends.items()))
            if end > now:
                if end < self._next:
                    self._set(end)
                return
            del self._ends[request]
            self._act(request)


class _Loop(threading.local):
    """Timers of the event loop that runs in this thread."""

    loop: asyncio.AbstractEventLoop | None = None
    late: _Waiting
    """Requests whose body has not arrived yet."""
    unwatched: _Waiting

    def of(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        if self.loop is not loop:
            self.loop = loop
            self.late = _Waiting(loop, lambda request: request.cut())
            self.unwatched = _Waiting(loop, lambda request: request.begin())
        return self


_here = _Loop()


class _OnAsyncio(RequestWatch):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, grant: Grant, receive: Receive, heartbeat: Callable[[], Any]
    ) -> None:
        super().__init__(grant, receive, heartbeat)
        self._loop = loop
        here = _here.of(loop)
        self._late, self._unwatched = here.late, here.unwatched
        self._task = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._cut_short = False

    async def __aenter__(self) -> Self:
        self._late.add(self, BODY_SECONDS)
        self._grant.on_end.add(self._cut_from_anywhere)
        return self

    def body_received(self) -> None:
        super().body_received()
        self._late.remove(self)
        self._unwatched.add(self, _UNWATCHED_SECONDS)

    def begin(self) -> None:
        """Starts watching the client."""
        self._watching = self._loop.create_task(self._watch())

    def _cut_from_anywhere(self) -> None:
        self._loop.call_soon_threadsafe(self.cut)

    def cut(self) -> None:
        """Ends the block."""
        if self._cut_from_anywhere in self._grant.on_end and not self._cut_short and self._task is not None:
            self._cut_short = True
            self._task.cancel()

    def _cut(self) -> None:
        self.cut()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._late.remove(self)
        self._unwatched.remove(self)
        if self._watching is not None:
            self._watching.cancel()
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
        super().body_received()
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

"""Delivers events to a host's function: at once; an async function is awaited event by event, in its own task."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio

from corral.logs import get_logger
from corral.results import Event

__all__ = ["EventListener", "OnEvent"]

logger = get_logger("corral")

OnEvent = Callable[[Event], object]
"""Function, sync or async, that receives events in order. Its exceptions are logged."""

T = TypeVar("T")

_FINISH_SECONDS = 5.0
"""Time for the remaining events once the execution has ended; then delivery is cancelled."""


class EventListener:
    """Calls a function with every event. The limits of the execution bound how many events wait."""

    def __init__(self, function: OnEvent, execution_id: str) -> None:
        self._function = function
        self._execution_id = execution_id
        self._waiting: deque[tuple[str, Awaitable[object]]] = deque()
        self._more = anyio.Event()
        self._over = False
        self._delivered = anyio.Event()
        self._scope = anyio.CancelScope(shield=True)

    def __call__(self, event: Event) -> None:
        answer = self._function(event)
        if inspect.isawaitable(answer):
            self._waiting.append((event.type, cast("Awaitable[object]", answer)))
            self._more.set()

    async def during(self, function: Callable[[], Awaitable[T]]) -> T:
        """Awaits `function` and delivers its events meanwhile."""
        results: list[T] = []
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            try:
                results.append(await function())
            except BaseException as error:  # raised below: a task group would wrap it
                failure = error
            await self._finish()
        if failure is not None:
            raise failure
        return results[0]

    async def _listen(self) -> None:
        """Awaits the function's results in order, until `_finish`."""
        with self._scope:
            while not self._over or self._waiting:
                while self._waiting:
                    await self._await_next()
                if not self._over:
                    await self._more.wait()
                    self._more = anyio.Event()
        self._drop()
        self._delivered.set()

    async def _finish(self) -> None:
        """Returns when all events are delivered, or after a few seconds."""
        self._over = True
        self._more.set()
        with anyio.move_on_after(_FINISH_SECONDS, shield=True):
            await self._delivered.wait()
            return
        left = len(self._waiting)
        logger.warning("on_event of %s did not end in time; %d events were dropped", self._execution_id, left)
        self._scope.cancel()

    async def _await_next(self) -> None:
        kind, answer = self._waiting[0]
        try:
            await answer
        except Exception:
            logger.warning("on_event of %s raised on %r", self._execution_id, kind, exc_info=True)
        self._waiting.popleft()

    def _drop(self) -> None:
        for _, answer in self._waiting:
            if inspect.iscoroutine(answer):
                answer.close()
        self._waiting.clear()

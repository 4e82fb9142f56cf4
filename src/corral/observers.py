"""Tells a host's function of events: at once; and where it is asynchronous, one after another, in a task of its own."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio

from corral.logs import get_logger
from corral.results import Event

__all__ = ["Listener", "OnEvent"]

logger = get_logger("corral")

OnEvent = Callable[[Event], object]
"""A function, also an async one, that is told of events in their order. What it raises is logged."""

T = TypeVar("T")

_FINISH_SECONDS = 5.0
"""For what is left to hear when the execution has ended; then it is cancelled."""


class Listener:
    """Calls a function with every event. What waits is bounded by the limits of the execution that the events are of.

    `listen` runs in a task beside the execution; `finish` waits for it.
    """

    def __init__(self, function: OnEvent, execution_id: str) -> None:
        self._function = function
        self._execution_id = execution_id
        self._waiting: deque[tuple[str, Awaitable[object]]] = deque()
        self._more = anyio.Event()
        self._over = False
        self._heard = anyio.Event()
        self._scope = anyio.CancelScope(shield=True)

    def __call__(self, event: Event) -> None:
        answer = self._function(event)
        if inspect.isawaitable(answer):
            self._waiting.append((event.type, cast("Awaitable[object]", answer)))
            self._more.set()

    async def during(self, function: Callable[[], Awaitable[T]]) -> T:
        """Awaits `function`, and delivers the events that it causes meanwhile."""
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
        """Awaits what the function gave, in order, until all is over."""
        with self._scope:
            while not self._over or self._waiting:
                while self._waiting:
                    await self._await_next()
                if not self._over:
                    await self._more.wait()
                    self._more = anyio.Event()
        self._drop()
        self._heard.set()

    async def _finish(self) -> None:
        """Returns when all was heard, or after a few seconds."""
        self._over = True
        self._more.set()
        with anyio.move_on_after(_FINISH_SECONDS, shield=True):
            await self._heard.wait()
            return
        left = len(self._waiting)
        logger.warning("on_event of %s did not end in time; %d events went unheard", self._execution_id, left)
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

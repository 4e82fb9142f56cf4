"""Delivers events to a host's function: at once; an async function is awaited event by event, in a task of its own."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, cast

import anyio
from typing_extensions import override

from corral.concurrency.task_owned import spawn
from corral.events import Event, OnEvent
from corral.logs import get_logger

__all__ = ["EventListener", "Observation"]

logger = get_logger("corral")

_FINISH_SECONDS = 5.0
"""Time for the remaining events at the end; then delivery is cancelled."""
_MOST_WAITING = 10_000
"""Events that wait for an async function of `Corral.observe`; further ones are dropped."""


class EventListener:
    """Calls a function with every event."""

    def __init__(self, function: OnEvent, name: str) -> None:
        """`name`: the function's name in the log."""
        self._function = function
        self._name = name
        self._waiting: deque[tuple[str, Awaitable[object]]] = deque()
        self._delivered: anyio.Event | None = None
        """End of the delivering task; None if there is no such task."""
        self._scope: anyio.CancelScope | None = None
        """Scope of that task, once it runs: events also come in callbacks of the loop, where none can be made."""

    def __call__(self, event: Event) -> None:
        answer = self._function(event)
        if not inspect.isawaitable(answer):
            return
        self._waiting.append((event.type, cast("Awaitable[object]", answer)))
        if self._delivered is None:
            self._delivered = anyio.Event()
            spawn(self._deliver)

    async def finish(self) -> None:
        """Returns when all events are delivered, or after a few seconds."""
        delivered = self._delivered
        if delivered is None:
            return
        with anyio.move_on_after(_FINISH_SECONDS, shield=True):
            await delivered.wait()
            return
        logger.warning("%s did not end in time; %d events were dropped", self._name, len(self._waiting))
        if self._scope is not None:
            self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await delivered.wait()

    async def _deliver(self) -> None:
        """Awaits the function's results in order, until none is left."""
        delivered = self._delivered
        assert delivered is not None
        try:
            with anyio.CancelScope() as self._scope:
                while self._waiting:
                    await self._await_next()
        finally:
            for _, answer in self._waiting:
                if inspect.iscoroutine(answer):
                    answer.close()
            self._waiting.clear()
            self._delivered = self._scope = None
            delivered.set()

    async def _await_next(self) -> None:
        kind, answer = self._waiting[0]
        try:
            await answer
        except Exception:
            logger.warning("%s raised on %r", self._name, kind, exc_info=True)
        self._waiting.popleft()


class Observation(EventListener):
    """Observation of a Corral's executions, until `close`, or the end of its `with` or `async with` block."""

    def __init__(self, function: OnEvent, session_id: str | None, observations: list[Observation]) -> None:
        super().__init__(function, "an observer")
        self._session_id = session_id
        self._observations = observations
        self._dropped = False
        self._closed = False
        observations.append(self)

    @override
    def __call__(self, event: Event) -> None:
        """Passes an event on if it belongs to the observed session."""
        if self._closed or self._session_id not in (None, event.context.session_id):
            return
        if len(self._waiting) < _MOST_WAITING:
            self._dropped = False
            super().__call__(event)
        elif not self._dropped:
            self._dropped = True
            logger.warning(
                "%s is too slow; events are dropped from %r of %s", self._name, event.type, event.execution_id
            )

    def close(self) -> None:
        """Ends the observation. Events that wait for an async function are still delivered. Idempotent."""
        self._closed = True
        if self._delivered is None:
            self._forget()

    @override
    async def _deliver(self) -> None:
        await super()._deliver()
        if self._closed:  # until now the Corral's end would have waited for what is left
            self._forget()

    def _forget(self) -> None:
        if self in self._observations:
            self._observations.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Waits until the remaining events are delivered, a few seconds at most."""
        self.close()
        await self.finish()

"""Boxes that outlive an execution, such as fork servers and machines. Each serves only one configuration."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token

from corral.concurrency.forks import ProcessOwner
from corral.containment import Space
from corral.errors import StartFailed
from corral.sandboxes.pool import idle_surplus
from corral.types import SandboxConfig

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class Box(Protocol[S_co]):
    """A place that serves several executions. Its methods are called from one thread at a time."""

    @property
    def idle_since(self) -> float | None:
        """Monotonic time when its last execution ended; None while one runs."""
        ...

    @property
    def retired(self) -> bool: ...
    def retire(self) -> None:
        """Ends it after its last execution; no new one starts in it."""
        ...

    def reserve(self) -> S_co | None:
        """Returns a place for one execution of the running event loop; None if it is full or has ended."""
        ...


class OwnedBoxes(Generic[S]):
    """Boxes by configuration, including the owner. Any thread and event loop can use it.

    A box without an owner serves one execution. `shared` boxes take several at a time: simultaneous requests wait
    for one new box.
    """

    def __init__(self, *, shared: bool = True) -> None:
        self._shared = shared
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._boxes: OrderedDict[SandboxConfig, list[Box[S]]] = OrderedDict()
        self._turns: dict[tuple[SandboxConfig, object], anyio.Lock] = {}

    async def reserve(self, config: SandboxConfig, make: Callable[[SandboxConfig], Awaitable[Box[S]]]) -> S:
        """Returns a place in a box of this configuration, or in a new one.

        Raises:
            StartFailed: a new box ended at once.
            Exception: as `make`.
        """
        place = self._find(config)
        if place is not None:
            return place
        if not self._shared:
            return self._add(config, await make(config))
        async with self._turn(config):
            return self._find(config) or self._add(config, await make(config))

    async def prepare(self, config: SandboxConfig, make: Callable[[SandboxConfig], Awaitable[Box[S]]]) -> None:
        """Prepares a shared box of this configuration. Raises the errors of `make`."""
        async with self._turn(config):
            if not self.has(config):
                box = await make(config)
                with self._lock:
                    self._boxes.setdefault(config, []).append(box)

    @asynccontextmanager
    async def _turn(self, config: SandboxConfig) -> AsyncGenerator[None]:
        key = config, current_token()
        turn = self._turns.setdefault(key, anyio.Lock())
        try:
            async with turn:
                yield
        finally:
            if not turn.statistics().tasks_waiting and not turn.locked():
                self._turns.pop(key, None)

    def has(self, config: SandboxConfig) -> bool:
        """True if a box of this configuration accepts executions, or is full."""
        with self._lock:
            return self._owner.is_current and any(not box.retired for box in self._boxes.get(config, ()))

    def retire(self, space: Space) -> None:
        """Ends the idle boxes of this space, and every other one after its last execution."""
        with self._lock:
            for config in [each for each in self._boxes if each.space is space]:
                for box in self._boxes.pop(config):
                    box.retire()

    def close(self) -> list[Box[S]]:
        """Ends idle boxes, and every other one after its last execution. Returns them all."""
        with self._lock:
            boxes = [box for each in self._boxes.values() for box in each] if self._owner.is_current else []
            self._boxes.clear()
            for box in boxes:
                box.retire()
            return boxes

    def drop_idle(self) -> bool:
        """Retires boxes that are idle for too long, and the longest idle of too many. True if any are left."""
        with self._lock:
            self._drop_idle()
            return bool(self._boxes)

    def _find(self, config: SandboxConfig) -> S | None:
        with self._lock:
            if self._owner.take_over():
                self._boxes.clear()
            self._drop_idle()
            boxes = self._boxes.get(config)  # never any without an owner
            if boxes is None:
                return None
            self._boxes.move_to_end(config)
            for box in reversed(boxes):
                place = box.reserve()
                if place is not None:
                    return place
            return None

    def _add(self, config: SandboxConfig, box: Box[S]) -> S:
        with self._lock:
            place = box.reserve()
            if place is None:
                box.retire()
                raise StartFailed("the engine ended as soon as it had started")
            if config.owner is None:
                box.retire()  # after this one execution
            else:
                self._boxes.setdefault(config, []).append(box)
            return place

    def _drop_idle(self) -> None:
        idle: list[tuple[float, Box[S]]] = []
        for config, boxes in list(self._boxes.items()):
            boxes[:] = [box for box in boxes if not box.retired]
            if not boxes:
                del self._boxes[config]
            idle += [(box.idle_since, box) for box in boxes if box.idle_since is not None]
        idle.sort(key=itemgetter(0))
        for box in idle_surplus(idle):
            box.retire()

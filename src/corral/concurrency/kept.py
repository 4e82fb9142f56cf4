"""Things that are kept open between uses, close when they are idle, and are shared fairly among owners."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import anyio

from corral.concurrency.event_loop import asyncio_loop
from corral.concurrency.fairness import Shares
from corral.errors import ConfigError


class _Keyed(Hashable, Protocol):
    """Key of a kept thing."""

    @property
    def owner(self) -> Hashable: ...


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class Lease(Protocol):
    """Right to keep something open, which other processes respect until `release`."""

    @property
    def is_held(self) -> bool:
        """False once the lease has been lost, so another process can have it."""
        ...

    async def release(self) -> None:
        """Ends the lease. Idempotent."""
        ...


K = TypeVar("K", bound=_Keyed)
T = TypeVar("T", bound=_Closable)


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    opening: anyio.Lock = field(default_factory=anyio.Lock)
    value: T | None = None
    users: int = 0
    idle_since: float = 0.0


class Kept(Generic[K, T]):
    """Open things by key, of one event loop.

    One that is idle for `idle_seconds` is closed. To open more than `max_open`, the owner with the most loses the one
    that has been idle longest. If none is idle, owners below their fair share can still open one; others get the error
    `no_room`.
    """

    def __init__(self, idle_seconds: float, max_open: int, no_room: str) -> None:
        self._no_room = no_room
        self._idle_seconds = idle_seconds
        self._max_open = max_open
        self._kept: OrderedDict[K, _Entry[T]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    @asynccontextmanager
    async def use(self, key: K, open_: Callable[[], Awaitable[T]]) -> AsyncGenerator[T]:
        """Yields the thing with this key, which stays open for the duration of the block.

        Raises:
            ConfigError: all places are in use, and the owner has its fair share of them.
            Exception: as `open_`.
        """
        kept = self._kept.setdefault(key, _Entry())
        self._kept.move_to_end(key)
        kept.users += 1
        try:
            await self._make_room(key)
            async with kept.opening:
                if kept.value is None:
                    kept.value = await open_()
            yield kept.value
        finally:
            kept.users -= 1
            kept.idle_since = time.monotonic()
            if kept.users == 0 and kept.value is None and self._kept.get(key) is kept:
                del self._kept[key]
            self._look_later()

    async def close(self, key: K) -> None:
        """Closes the thing with this key, if there is one, even while it is in use."""
        if (kept := self._kept.get(key)) is not None:
            await self._close(key, kept)

    async def close_idle(self) -> None:
        """Closes values that have been idle for `idle_seconds`."""
        since = time.monotonic() - self._idle_seconds
        for key, kept in [*self._kept.items()]:
            if kept.users == 0 and kept.idle_since <= since:
                await self._close(key, kept)

    async def aclose(self) -> None:
        """Closes everything."""
        if self._timer is not None:
            self._timer.cancel()
        for key, kept in [*self._kept.items()]:
            await self._close(key, kept)

    async def _make_room(self, key: K) -> None:
        """Closes idle things of the owners with the most, until there is room for this one."""
        await self.close_idle()
        while len(self._kept) > self._max_open:
            held = Counter(each.owner for each in self._kept)
            idle = [(each, kept) for each, kept in self._kept.items() if kept.users == 0]
            if not idle:
                others = (each.owner for each in self._kept if each != key)
                if Shares(self._max_open, others).has_room(key.owner):
                    return
                raise ConfigError(f"{self._max_open} {self._no_room}")
            await self._close(*max(idle, key=lambda item: held[item[0].owner]))

    async def _close(self, key: K, kept: _Entry[T]) -> None:
        async with kept.opening:  # another caller waits until it is closed, and opens it anew
            value, kept.value = kept.value, None
            try:
                if value is not None:
                    await value.aclose()
            finally:
                if kept.users == 0 and self._kept.get(key) is kept:
                    del self._kept[key]

    def _look_later(self) -> None:
        """Schedules the closing of idle things. Without asyncio they close at the next use of any."""
        loop = asyncio_loop()
        if loop is None or (self._timer is not None and not self._timer.cancelled()) or not self._kept:
            return

        async def look() -> None:
            self._timer = None
            await self.close_idle()
            self._look_later()

        def begin() -> None:
            self._closing = loop.create_task(look())

        oldest = min((kept.idle_since for kept in self._kept.values() if kept.users == 0), default=time.monotonic())
        self._timer = loop.call_later(max(0.0, oldest + self._idle_seconds - time.monotonic()) + 0.01, begin)

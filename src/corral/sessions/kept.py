"""Sessions that open on demand by `session_id`, and close when they are idle."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from corral.arguments import checked
from corral.concurrency.event_loop import asyncio_loop
from corral.concurrency.fairness import Shares
from corral.errors import ConfigError
from corral.sessions.mounts import Mount, check_mounts
from corral.sessions.session import OpenSession
from corral.types import ExecutionContext, Owner


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Settings of sessions that a server keeps for its callers: `Corral(sessions=Sessions(...))`.

    An execution whose context has a `session_id` runs in the session of its organization, user and
    `session_id`, which its first program opens. A session that is idle for `idle_seconds` is closed. To open more than
    `max_open`, the user with the most sessions loses the one that has been idle longest. If no session is idle, users
    below their fair share can still open one. With `Scratch(store=...)` the files come back.

    Raises:
        ConfigError: the mounts do not fit together, or a number is not positive.
    """

    files: Sequence[Mount] = (Mount("/workspace"),)
    idle_seconds: float = 900.0
    max_open: int = 100

    def __post_init__(self) -> None:
        check_mounts(tuple(self.files))
        if not (self.files and self.idle_seconds > 0 and self.max_open > 0):
            raise ConfigError("Sessions(): there must be a Mount, and idle_seconds and max_open must be positive")


class _Key(NamedTuple):
    organization_id: str | None
    user_id: str
    session_id: str

    @property
    def owner(self) -> Owner:
        return Owner(self.organization_id, self.user_id)


@dataclass(slots=True, eq=False)
class _Kept:
    opening: anyio.Lock = field(default_factory=anyio.Lock)
    session: OpenSession | None = None
    users: int = 0
    idle_since: float = 0.0


class KeptWorkspace:
    """The session of a context, for one execution."""

    def __init__(self, sessions: KeptSessions, context: ExecutionContext) -> None:
        self._sessions = sessions
        self._context = context

    @asynccontextmanager
    async def enter(self, over: Callable[[str], None]) -> AsyncGenerator[OpenSession]:
        """Opens it if necessary, and keeps it open for the duration of the block. Raises as `session`."""
        async with self._sessions.session(self._context) as session, session.enter(over):
            yield session


class KeptSessions:
    """Open sessions by organization, user and `session_id`, of one event loop."""

    def __init__(self, settings: Sessions, open_: Callable[[ExecutionContext], Awaitable[OpenSession]]) -> None:
        self._settings = settings
        self._open = open_
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    @asynccontextmanager
    async def session(self, context: ExecutionContext) -> AsyncGenerator[OpenSession]:
        """The session of this context, which stays open for the duration of the block.

        Raises:
            ConfigError: the maximum number of sessions is running executions.
            StartFailed: it cannot be opened.
        """
        assert context.session_id is not None  # else nothing is kept
        key = _Key(context.organization_id, context.user_id, context.session_id)
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        kept.users += 1
        try:
            await self._make_room(key)
            async with kept.opening:
                if kept.session is None:
                    kept.session = await self._open(context)
            yield kept.session
        finally:
            kept.users -= 1
            kept.idle_since = time.monotonic()
            if kept.users == 0 and kept.session is None:
                self._kept.pop(key, None)
            self._look_later()

    @property
    def mounts(self) -> tuple[tuple[str, bool], ...]:
        """Path of each mount, and True if programs may change it."""
        return tuple((mount.path, bool(mount.writable)) for mount in self._settings.files)

    def empty(self) -> KeptSessions:
        """Returns a copy of the settings, without sessions."""
        return KeptSessions(self._settings, self._open)

    async def close_idle(self) -> None:
        """Closes sessions that have been idle for `idle_seconds`."""
        since = time.monotonic() - self._settings.idle_seconds
        for key, kept in [*self._kept.items()]:
            if kept.users == 0 and kept.idle_since <= since:
                await self._close(key, kept)

    async def aclose(self) -> None:
        """Closes all sessions."""
        if self._timer is not None:
            self._timer.cancel()
        for key, kept in [*self._kept.items()]:
            await self._close(key, kept)

    async def _make_room(self, key: _Key) -> None:
        """Closes idle sessions of the users with the most, until there is room for this one."""
        await self.close_idle()
        while len(self._kept) > self._settings.max_open:
            held = Counter(each.owner for each in self._kept)
            idle = [(each, kept) for each, kept in self._kept.items() if kept.users == 0]
            if not idle:
                others = (each.owner for each in self._kept if each != key)
                if Shares(self._settings.max_open, others).has_room(key.owner):
                    return
                raise ConfigError(
                    f"{self._settings.max_open} sessions are running programs, and this user has a fair share of them; "
                    "Sessions(max_open=...) allows more at once"
                )
            await self._close(*max(idle, key=lambda item: held[item[0].owner]))

    async def _close(self, key: _Key, kept: _Kept) -> None:
        async with kept.opening:  # another caller waits until its files are stored, and opens it anew
            session, kept.session = kept.session, None
            try:
                if session is not None:
                    await session.aclose()
            finally:
                if kept.users == 0 and self._kept.get(key) is kept:
                    del self._kept[key]

    def _look_later(self) -> None:
        """Schedules the closing of idle sessions. Without asyncio they close when the next session is requested."""
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
        self._timer = loop.call_later(max(0.0, oldest + self._settings.idle_seconds - time.monotonic()) + 0.01, begin)

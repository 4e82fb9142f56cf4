"""Sessions that open on demand by `session_id`, and close when they are idle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from corral.arguments import checked
from corral.concurrency.kept import Kept
from corral.errors import ConfigError
from corral.sessions.mounts import Keep, Mount, check_mounts
from corral.sessions.session import OpenSession
from corral.types import ExecutionContext, Owner


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Settings of sessions that a server keeps for its callers: `Corral(sessions=Sessions(...))`.

    An execution whose context has a `session_id` runs in the session of its organization, user and `session_id`, which
    its first program opens. A session that is idle for `idle_seconds` is closed. If more than `max_open` are needed,
    the user with the most sessions loses the one that has been idle longest. If no session is idle, users below their
    fair share can still open one. With `Scratch(store=...)`, files survive the closing of a session. With
    `keep="variables"`, the programs of a session are the cells of a notebook; see docs/notebooks.md.

    Raises:
        ConfigError: the mounts conflict, or a number is not positive.
    """

    files: Sequence[Mount] = (Mount("/workspace"),)
    idle_seconds: float = 900.0
    max_open: int = 100
    keep: Keep = "files"

    def __post_init__(self) -> None:
        check_mounts(tuple(self.files))
        if not (self.files and self.idle_seconds > 0 and self.max_open > 0):
            raise ConfigError("Sessions(): there must be a Mount, and idle_seconds and max_open must be positive")

    @property
    def mounts(self) -> tuple[tuple[str, bool], ...]:
        """Path of each mount, with True if programs can change it."""
        return tuple((mount.path, bool(mount.writable)) for mount in self.files)


_NO_ROOM = (
    "sessions are running programs, and this user has a fair share of them; Sessions(max_open=...) allows more at once"
)


class _Key(NamedTuple):
    organization_id: str | None
    user_id: str
    session_id: str

    @property
    def owner(self) -> Owner:
        return Owner(self.organization_id, self.user_id)


def _key_of(context: ExecutionContext) -> _Key:
    assert context.session_id is not None  # otherwise nothing is kept
    return _Key(context.organization_id, context.user_id, context.session_id)


class KeptWorkspace:
    """Session of a context, for one execution."""

    def __init__(self, sessions: KeptSessions, context: ExecutionContext) -> None:
        self._sessions = sessions
        self._context = context

    @property
    def keep(self) -> Keep:
        return self._sessions.settings.keep

    def is_of(self, context: ExecutionContext) -> bool:
        """True if this is the session of that context."""
        return _key_of(self._context) == _key_of(context)

    def hold(self) -> AbstractAsyncContextManager[OpenSession]:
        """Opens the session if necessary, and keeps it open during the block. Raises the errors of `session`."""
        return self._sessions.session(self._context)

    @asynccontextmanager
    async def enter(self, over: Callable[[str], None]) -> AsyncGenerator[OpenSession]:
        """Opens the session if necessary, and keeps it open during the block. Raises the errors of `session`."""
        async with self._sessions.session(self._context) as session, session.enter(over):
            yield session


class KeptSessions(Kept[_Key, OpenSession]):
    """Open sessions of one event loop, by organization, user and `session_id`."""

    def __init__(self, settings: Sessions, open_: Callable[[ExecutionContext], Awaitable[OpenSession]]) -> None:
        super().__init__(settings.idle_seconds, settings.max_open, _NO_ROOM)
        self.settings = settings
        self._open = open_

    def session(self, context: ExecutionContext) -> AbstractAsyncContextManager[OpenSession]:
        """Yields the session of this context, which stays open during the block.

        Raises:
            ConfigError: the maximum number of sessions is open, and all of them run executions. StartFailed: the
            session cannot be opened. SessionElsewhere: another host has it open.
        """
        return self.use(_key_of(context), partial(self._open, context))

    async def close_of(self, context: ExecutionContext) -> None:
        """Closes the session of this context, if it is open, even while programs run in it."""
        await self.close(_key_of(context))

    def empty(self) -> KeptSessions:
        """Returns a copy of the settings, without sessions."""
        return KeptSessions(self.settings, self._open)

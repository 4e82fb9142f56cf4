"""Grants: under which an execution makes its calls, and by which token one that runs elsewhere is known."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol, Self

import anyio

from corral.bridges.rates import Bucket
from corral.bridges.records import CallRecorder
from corral.concurrency.capacity import Capacity
from corral.concurrency.deadline import PausableDeadline
from corral.concurrency.shared_lock import SharedLock
from corral.errors import AccessDenied, ConfigError, InvalidToken, ToolNotFound
from corral.tools import Tool, ToolRegistry
from corral.types import Call, ExecutionContext, Limits

__all__ = [
    "Claims",
    "Grant",
    "Grants",
    "OutsideExecution",
    "Tokens",
    "called",
    "current_grant",
    "granted",
    "new_execution_id",
]

_MOST_HELPED = 20
"""Calls of unknown tools that an execution gets near names for."""
_MOST_LIVE = 100_000
"""Executions that may be live at once."""
_SWEEP_AT = 1_000
_ENDING_SECONDS = 5.0
_LOOK_SECONDS = 0.01


def new_execution_id() -> str:
    return f"execution-{secrets.token_hex(8)}"


class Grant:
    """What one execution may do, and what of it is under way. Nothing is let in under it once it has ended."""

    __slots__ = (
        "__weakref__",
        "_ends_at",
        "buckets",
        "calls",
        "clock",
        "context",
        "cutting",
        "discovery",
        "ended",
        "execution_id",
        "limits",
        "nobody_answers",
        "recorder",
        "running",
        "scopes",
        "tools",
        "turns",
        "unknown",
    )

    def __init__(
        self,
        *,
        context: ExecutionContext,
        limits: Limits,
        tools: ToolRegistry,
        execution_id: str | None = None,
        clock: PausableDeadline | None = None,
        recorder: CallRecorder | None = None,
        scopes: frozenset[str] | None = None,
        lives_seconds: float | None = None,
        discovery: Mapping[str, Tool] | None = None,
    ) -> None:
        self.execution_id = execution_id or new_execution_id()
        self.context = context
        self.scopes = context.scopes if scopes is None else scopes
        """The caller's, and what they imply."""
        self.limits = limits
        self.tools = tools
        self.discovery = discovery or {}
        """By name, those by which a program looks through its tools; they are not among these."""
        self.clock = clock
        """That of its program, if it runs under ours."""
        self.recorder = recorder
        self.buckets: dict[Tool, Sequence[Bucket]] = {}
        """Where calls of a tool count, of those tools that were called."""
        self.calls = 0
        """Calls that were made."""
        self.unknown = 0
        """Calls of tools that there are not."""
        self.running = Capacity(limits.calls_in_flight)
        """Calls in flight."""
        self.turns = SharedLock()
        """Whose turn it is to run, of calls that have passed all other guards."""
        self.nobody_answers = False
        """Whether somebody was asked for an approval, and did not answer in time."""
        self.ended = False
        self.cutting: set[Callable[[], object]] = set()
        """What ends calls that no task of the execution waits for; done when the grant ends."""
        self._ends_at = None if lives_seconds is None else time.monotonic() + lives_seconds

    @property
    def live(self) -> bool:
        """Whether calls are let in under it."""
        return not self.ended and (self._ends_at is None or time.monotonic() < self._ends_at)

    @property
    def renewable(self) -> bool:
        """Whether it lives until it is ended, whatever its tokens' time."""
        return self._ends_at is None

    def end(self) -> None:
        """Lets no more calls in, and cuts short those of programs that run elsewhere. Idempotent."""
        self.ended = True
        for cut in tuple(self.cutting):
            cut()


current_grant: ContextVar[Grant | None] = ContextVar("current_grant", default=None)
"""Under which the current task makes a call."""


def granted(call: Call) -> Grant:
    """The grant of a call that was authenticated."""
    assert isinstance(call.grant, Grant)
    return call.grant


def called(call: Call) -> Tool:
    """The tool that a call is for.

    Raises:
        ToolNotFound: with near names, the first few times in an execution.
    """
    found: Tool | None = call.found
    if found is None:
        grant = granted(call)
        found = grant.discovery.get(call.tool)
        if found is None:
            try:
                found = grant.tools.resolve(call.tool, helping=grant.unknown < _MOST_HELPED)
            except ToolNotFound:
                grant.unknown += 1
                raise
        call.found = found
    return found


class Claims(Protocol):
    """What a verified token says."""

    @property
    def execution_id(self) -> str: ...
    @property
    def user_id(self) -> str: ...
    @property
    def organization_id(self) -> str | None: ...
    @property
    def session_id(self) -> str: ...
    @property
    def scopes(self) -> frozenset[str]: ...
    @property
    def expires_at(self) -> float: ...


class Tokens(Protocol):
    """Makes and verifies execution tokens: `corral.bridges.tokens.ExecutionTokens`."""

    def issue(self, execution_id: str, context: ExecutionContext, *, ttl_seconds: float | None = None) -> str: ...
    def verify(self, token: str) -> Claims: ...


class Grants:
    """The live executions of one Corral, and their tokens. A token is worth nothing once its execution has ended.

    `tokens` is asked for when the first token is needed.
    """

    def __init__(self, tokens: Callable[[], Tokens]) -> None:
        self._tokens = tokens
        self._live: dict[str, Grant] = {}
        self._sweep_at = _SWEEP_AT
        """How many are open before those are looked for whose time is over."""

    @contextmanager
    def live(self, grant: Grant) -> Generator[None]:
        """A block within which the grant is open."""
        self.open(grant)
        try:
            yield
        finally:
            self.close(grant)

    def open(self, grant: Grant) -> None:
        """Lets calls in under the grant until `close`.

        Raises:
            ConfigError: too many are open.
        """
        if len(self._live) >= self._sweep_at:
            for gone in [each for each in self._live.values() if not each.live]:
                self.close(gone)
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._live))
        if len(self._live) >= _MOST_LIVE:
            raise ConfigError(f"{_MOST_LIVE} executions are open; end those that are over")
        self._live[grant.execution_id] = grant

    def close(self, grant: Grant) -> None:
        """Ends the grant and, with it, every token that was issued for it. Idempotent."""
        grant.end()
        self._live.pop(grant.execution_id, None)

    async def close_all(self) -> None:
        """Closes every grant, and waits some seconds for the calls that this cuts short to have ended."""
        closed = list(self._live.values())
        for grant in closed:
            self.close(grant)
        with anyio.move_on_after(_ENDING_SECONDS):
            while any(grant.cutting for grant in closed):  # in whatever loops and threads they run
                await anyio.sleep(_LOOK_SECONDS)

    def is_calling(self) -> bool:
        """Whether this runs in a call that one of the open grants let in."""
        grant = current_grant.get()
        return grant is not None and self._live.get(grant.execution_id) is grant

    def issue(self, grant: Grant, ttl_seconds: float | None = None) -> str:
        """A token for an open grant.

        Raises:
            ConfigError: it cannot be issued as asked.
        """
        return self._tokens().issue(grant.execution_id, grant.context, ttl_seconds=ttl_seconds)

    def renew(self, grant: Grant) -> tuple[str, float]:
        """A fresh token for a live grant, and when it expires, in seconds since the Unix epoch.

        Raises:
            AccessDenied: its first token was to be the only one.
        """
        if not grant.renewable:
            raise AccessDenied("the token of this execution is not renewed")
        token = self.issue(grant)
        return token, self._tokens().verify(token).expires_at

    def find(self, token: str | None) -> Grant:
        """The live grant that a token is for.

        Raises:
            InvalidToken: it is none of ours, not valid now, or not what its execution was given.
        """
        if token is None:
            raise InvalidToken("a call needs the token of its execution")
        claims = self._tokens().verify(token)
        grant = self._live.get(claims.execution_id)
        if grant is None or not grant.live:
            raise InvalidToken("the execution of this token has ended")
        context = grant.context
        if (claims.user_id, claims.organization_id, claims.session_id, claims.scopes) != (
            context.user_id,
            context.organization_id,
            context.session_id,
            context.scopes,
        ):
            raise InvalidToken("the token does not belong to its execution")
        return grant


class OutsideExecution:
    """An execution whose program runs elsewhere. Used as `with`, it ends with the block."""

    def __init__(self, grant: Grant, grants: Grants) -> None:
        self._grant = grant
        self._grants = grants

    @property
    def execution_id(self) -> str:
        return self._grant.execution_id

    def token(self, ttl_seconds: float | None = None) -> str:
        """A token for it, which its holder can renew as long as the execution lives.

        Raises:
            ConfigError: it cannot be issued as asked.
            MissingExtra: the extra `http` is not installed.
        """
        return self._grants.issue(self._grant, ttl_seconds)

    def end(self) -> None:
        """Makes its tokens worthless, and cancels the calls that still run. Idempotent."""
        self._grants.close(self._grant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

"""Grants: the permissions of executions, and the tokens that identify executions elsewhere."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, TypeVar, TypeVarTuple, Unpack

import anyio

from corral.calls.rates import Bucket
from corral.calls.records import CallRecorder
from corral.concurrency.deadline import PausableDeadline
from corral.concurrency.fairness import INLINE_BYTES, Capacity, run_in_turn
from corral.concurrency.shared_lock import SharedLock
from corral.errors import AccessDenied, ConfigError, InvalidToken, ToolNotFound
from corral.policy.flow import ProgramFlow
from corral.tools import Tool, ToolRegistry
from corral.types import ApprovalRequest, Approve, CallRequest, Decision, ExecutionContext, Limits, RequestHandler

if TYPE_CHECKING:
    from corral.calls.tokens import Claims

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_MOST_HELPED = 20
"""Maximum number of unknown tool names per execution that get suggestions."""
_MOST_LIVE = 100_000
"""Maximum number of live executions."""
_SWEEP_AT = 1_000
_ENDING_SECONDS = 5.0
_LOOK_SECONDS = 0.01

Services: TypeAlias = Mapping[str, Tool]
"""Corral's own tools for an execution, such as `search` and `describe`, by their path in programs.

They are not in the registry and take precedence over it. Their calls pass all guards: they are counted in `calls`,
recorded and audited. A service with additional bounds enforces them itself, with one object per execution.
"""


def new_execution_id() -> str:
    return f"execution-{secrets.token_hex(8)}"


class CallGate(Protocol):
    """Holds back a grant's calls until they are allowed or refused. Thread-safe."""

    @property
    def is_open(self) -> bool:
        """True once calls are allowed."""
        ...

    async def wait(self) -> None:
        """Waits until the gate opens or the calls are refused."""
        ...


class _CallJournal(Protocol):
    """The methods of `corral.running.journal.Journal` that guards call, which are described there."""

    def starting(self, request: CallRequest, /) -> Awaitable[None]: ...
    def decision_of(self, request: CallRequest, tool: Tool, /) -> Decision | None: ...
    async def decided(self, request: CallRequest, tool: Tool, decision: Decision, /) -> Decision: ...
    def asks(
        self, asked: ApprovalRequest, request: CallRequest, tool: Tool, decide: Callable[[Decision], object], /
    ) -> None: ...
    def park(self, asked: ApprovalRequest, /) -> None: ...
    def wrap(self, handler: RequestHandler, /) -> RequestHandler: ...


class Grant:
    """Permissions and state of one execution. Calls are refused once it has ended."""

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
        services: Services | None = None,
        approve: Approve | None = None,
        source: str | None = None,
        has_files: bool = False,
    ) -> None:
        self.execution_id = execution_id or new_execution_id()
        self.context = context
        self.scopes = context.scopes if scopes is None else scopes
        """The caller's scopes and the scopes they imply."""
        self.limits = limits
        self.tools = tools
        self.services = services or {}
        self.host_services: Mapping[str, Callable[[object], Awaitable[object]]] = {}
        """Host services that its program may call, by name; see `services.py`."""
        self.journal: _CallJournal | None = None
        """Journal of a durable execution."""
        self.flow: ProgramFlow | None = None
        """Data flow of its program; None if the policy follows none."""
        self.gate: CallGate | None = None
        """Gate that holds back its calls; None once no call is held back or about to continue."""
        self.held = 0
        """Number of calls that the gate holds back, or has released but that have not resumed yet."""
        self.clock = clock
        """Deadline of its program; None for a program that runs elsewhere."""
        self.recorder = recorder
        self.buckets: dict[Tool, Sequence[Bucket]] = {}
        """Rate buckets of each called tool."""
        self.calls = 0
        """Number of calls made."""
        self.unknown = 0
        """Number of calls to unknown tools."""
        self.running = Capacity(limits.calls_in_flight)
        """Calls in flight."""
        self.streams = 0
        """Number of calls whose streams are open."""
        self.turns = SharedLock()
        """Starts calls in order, once they have passed all other guards."""
        self.must_finish: set[int] = set()
        """Sequence numbers of calls that are still awaited after their program has ended."""
        self.approve = approve
        """Approval function of this execution, instead of the Corral's."""
        self.source = source
        """Source of its program, if known."""
        self.has_files = has_files
        """True if its program can read session files."""
        self.approval_timed_out = False
        """True once an approval request was not answered in time."""
        self.ended = False
        self.on_end: set[Callable[[], object]] = set()
        """Callbacks that cancel calls of a program that runs elsewhere; called when the grant ends."""
        self._ends_at = None if lives_seconds is None else time.monotonic() + lives_seconds

    @property
    def live(self) -> bool:
        """True while calls are allowed."""
        return not self.ended and (self._ends_at is None or time.monotonic() < self._ends_at)

    @property
    def renewable(self) -> bool:
        """True if the grant has no fixed lifetime, so its tokens can be renewed until it ends."""
        return self._ends_at is None

    async def run_by_size(self, function: Callable[[Unpack[Arguments]], T], *arguments: *Arguments, size: int) -> T:
        """Runs the function inline for inputs up to `INLINE_BYTES`, else in a thread when it is the caller's turn."""
        if size <= INLINE_BYTES:
            return function(*arguments)
        return await run_in_turn(function, *arguments, owner=self.context.owner)

    def peek_tool(self, path: str) -> Tool | None:
        """Returns the tool at a path, if any. Unlike `find_tool`, does not count unknown paths."""
        return self.services.get(path) or self.tools.get(path)

    def find_tool(self, path: str) -> Tool:
        """Finds the tool that programs call by `path`.

        Raises:
            ToolNotFound: there is no such tool. The first few errors of an execution suggest names.
        """
        if (service := self.services.get(path)) is not None:
            return service
        try:
            return self.tools.resolve(path, helping=self.unknown < _MOST_HELPED)
        except ToolNotFound:
            self.unknown += 1
            raise

    def end(self) -> None:
        """Refuses further calls, and cancels the calls of a program elsewhere. Idempotent."""
        self.ended = True
        for cut in tuple(self.on_end):
            cut()


current_grant: ContextVar[Grant | None] = ContextVar("current_grant", default=None)
"""Grant of the call that the current task serves."""


class Tokens(Protocol):
    """Issues and verifies execution tokens: `corral.calls.tokens.ExecutionTokens`."""

    def issue(
        self,
        execution_id: str,
        context: ExecutionContext,
        *,
        ttl_seconds: float | None = None,
        host: str | None = None,
    ) -> str: ...
    def verify(self, token: str) -> Claims: ...


class IssuedElsewhere(InvalidToken):
    """A valid token whose execution belongs to another host."""

    def __init__(self, host: str) -> None:
        super().__init__(f"the execution of this token belongs to the host {host!r}, which is not known or not running")
        self.host = host


class Grants:
    """Live executions of one Corral, and their tokens. A token becomes invalid when its execution ends.

    `tokens` makes the `ExecutionTokens` on first use. `host` is the name of this host among its peers; tokens carry it.
    """

    def __init__(self, tokens: Callable[[], Tokens], host: str | None = None) -> None:
        self._tokens = tokens
        self._host = host
        self._live: dict[str, Grant] = {}
        self._sweep_at = _SWEEP_AT
        """Number of open grants that triggers the removal of expired ones."""

    @contextmanager
    def live(self, grant: Grant) -> Generator[None]:
        """Opens the grant during the block."""
        self.open(grant)
        try:
            yield
        finally:
            self.close(grant)

    def open(self, grant: Grant) -> None:
        """Allows calls under the grant until `close`.

        Raises:
            ConfigError: too many grants are open.
        """
        if len(self._live) >= self._sweep_at:
            for gone in [each for each in self._live.values() if not each.live]:
                self.close(gone)
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._live))
        if len(self._live) >= _MOST_LIVE:
            raise ConfigError(
                f"too many executions are open: {_MOST_LIVE}; end finished ones with `RemoteExecution.end`"
            )
        self._live[grant.execution_id] = grant

    def close(self, grant: Grant) -> None:
        """Ends the grant and invalidates its tokens. Idempotent."""
        grant.end()
        self._live.pop(grant.execution_id, None)

    async def close_all(self) -> None:
        """Closes every grant, and waits up to a few seconds for the cancelled calls to end."""
        closed = list(self._live.values())
        for grant in closed:
            self.close(grant)
        with anyio.move_on_after(_ENDING_SECONDS):
            while any(grant.on_end for grant in closed):  # from any loop and thread
                await anyio.sleep(_LOOK_SECONDS)

    async def all_ended(self) -> None:
        """Waits until no grant is open."""
        while any(grant.live for grant in [*self._live.values()]):
            await anyio.sleep(_LOOK_SECONDS)

    def is_calling(self) -> bool:
        """True in code that runs within a call under one of the open grants."""
        grant = current_grant.get()
        return grant is not None and self._live.get(grant.execution_id) is grant

    def issue(self, grant: Grant, ttl_seconds: float | None = None) -> str:
        """Issues a token for an open grant.

        Raises:
            ConfigError: the lifetime is out of range, or the context does not fit into a token.
        """
        return self._tokens().issue(grant.execution_id, grant.context, ttl_seconds=ttl_seconds, host=self._host)

    def renew(self, grant: Grant) -> tuple[str, float]:
        """Issues a fresh token for a live grant; returns it and its expiry, in seconds since the Unix epoch.

        Raises:
            AccessDenied: the grant has a fixed lifetime.
        """
        if not grant.renewable:
            raise AccessDenied("the token of this execution cannot be renewed")
        token = self.issue(grant)
        return token, self._tokens().verify(token).expires_at

    def find(self, token: str | None) -> Grant:
        """Finds the live grant of a token.

        Raises:
            InvalidToken: the token is foreign or expired, or does not match its execution.
            IssuedElsewhere: the token is valid, and a peer of this host has issued it.
        """
        if token is None:
            raise InvalidToken("the call has no execution token")
        claims = self._tokens().verify(token)
        if self._host is not None and claims.host not in (None, self._host):
            raise IssuedElsewhere(claims.host)
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


class RemoteExecution:
    """Execution whose program runs elsewhere. As a context manager it ends with the block."""

    def __init__(self, grant: Grant, grants: Grants) -> None:
        self._grant = grant
        self._grants = grants

    @property
    def execution_id(self) -> str:
        return self._grant.execution_id

    def token(self, ttl_seconds: float | None = None) -> str:
        """Issues a token. Its holder can renew it while the execution lives.

        Raises:
            ConfigError: the lifetime is out of range, or the context does not fit into a token.
            MissingExtra: the extra `http` is not installed.
        """
        return self._grants.issue(self._grant, ttl_seconds)

    def end(self) -> None:
        """Invalidates its tokens, and cancels running calls. Idempotent."""
        self._grants.close(self._grant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

"""Events of executions: frozen, numbered, time-stamped, and serialisable as JSON."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypedDict, cast

import anyio
from typing_extensions import override

from corral.concurrency.task_owned import spawn
from corral.errors import ApprovalDenied
from corral.logs import get_logger
from corral.rendering.full_text import full_text
from corral.results import CallRecord, ExecutionResult, JsonData
from corral.types import ApprovalRequest, Approved, Denied, Diagnostic, Doubt, ExecutionContext, Language, LogEntry

__all__ = [
    "ApprovalDecided",
    "ApprovalRequested",
    "ConsoleOutput",
    "Event",
    "EventStream",
    "ExecutionFinished",
    "ExecutionPaused",
    "ExecutionResumed",
    "ExecutionStarted",
    "Observation",
    "OnEvent",
    "ProgramChecked",
    "Stamp",
    "ToolCallFinished",
    "ToolCallProgress",
    "ToolCallStarted",
]

logger = get_logger("corral")


class Stamp(TypedDict):
    """Fields common to all events."""

    number: int
    time: float
    execution_id: str
    user_id: str
    organization_id: str | None
    session_id: str | None
    tool_call_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Event(JsonData):
    number: int
    """Number within the execution: 1, 2, 3 and so on."""
    time: float
    """Seconds since the Unix epoch."""
    execution_id: str
    user_id: str
    organization_id: str | None
    session_id: str | None
    tool_call_id: str | None
    """Id of the model's tool call that sent the program, from the agent framework, if known."""

    @property
    def computed(self) -> dict[str, object]:
        return {"type": cast("Any", self).type}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExecutionStarted(_Event):
    """The program is about to run. Always the first event. `source` is the model's whole answer."""

    type: ClassVar[Literal["execution_started"]] = "execution_started"
    language: Language
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProgramChecked(_Event):
    """The type check has ended. A `rejected` program makes no calls. `reason` says, as a clause, why it is
    `unchecked`."""

    type: ClassVar[Literal["program_checked"]] = "program_checked"
    verdict: Literal["passed", "rejected", "unchecked"]
    diagnostics: tuple[Diagnostic, ...]
    reason: str | None
    duration_ms: float
    """Duration of the check. The program already starts while it is checked."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolCallStarted(_Event):
    """A call arrived from the program."""

    type: ClassVar[Literal["tool_call_started"]] = "tool_call_started"
    call: CallRecord


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ApprovalRequested(_Event):
    """A call waits for a decision, by the Corral's `approve` or `Corral.executions.settle`.

    `sequence` is the number of the call. `input` is validated and includes defaults.
    """

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    sequence: int
    tool: str
    input: Any
    description: str
    read_only: bool
    doubts: tuple[Doubt, ...] = ()
    """Reasons of the policy to ask."""
    seen: tuple[str, ...] = ()
    """Tools with untrusted results that the session's model has read."""
    digest: str = ""
    """`ApprovalRequest.digest`, for `executions.settle`."""

    @property
    def shown(self) -> str | None:
        """The whole input as text for a person, as from `ApprovalRequest.shown`. None means that it cannot be shown:
        deny the call."""
        try:
            return full_text(self.input, _SHOWN_CHARS)
        except ApprovalDenied:
            return None

    @property
    def computed(self) -> dict[str, object]:
        return {"type": self.type, "shown": self.shown}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ApprovalDecided(_Event):
    """A requested approval was decided. A call that is cancelled while it waits has no decision."""

    type: ClassVar[Literal["approval_decided"]] = "approval_decided"
    sequence: int
    tool: str
    decision: Approved | Denied


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolCallProgress(_Event):
    """A tool reported progress by `ToolCall.progress`. `tool` and `sequence` identify the call."""

    type: ClassVar[Literal["tool_call_progress"]] = "tool_call_progress"
    tool: str
    sequence: int
    done: float
    total: float | None = None
    """Value that `done` reaches at the end, if the tool knows it."""
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolCallFinished(_Event):
    """A call has its reply; `call.error` is set if it failed."""

    type: ClassVar[Literal["tool_call_finished"]] = "tool_call_finished"
    call: CallRecord


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConsoleOutput(_Event):
    """The program printed."""

    type: ClassVar[Literal["console_output"]] = "console_output"
    entry: LogEntry


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExecutionPaused(_Event):
    """A durable execution has paused until people decide on these calls. `ExecutionFinished` follows."""

    type: ClassVar[Literal["execution_paused"]] = "execution_paused"
    pending: tuple[ApprovalRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExecutionResumed(_Event):
    """A durable execution goes on where it was: its recorded replies are given, and from now on it does new things."""

    type: ClassVar[Literal["execution_resumed"]] = "execution_resumed"
    replies: int
    """Number of recorded replies to calls and timers."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExecutionFinished(_Event):
    """The execution is over, or has paused. Always the last event."""

    type: ClassVar[Literal["execution_finished"]] = "execution_finished"
    result: ExecutionResult


Event: TypeAlias = (
    ExecutionStarted
    | ProgramChecked
    | ToolCallStarted
    | ApprovalRequested
    | ApprovalDecided
    | ToolCallProgress
    | ToolCallFinished
    | ConsoleOutput
    | ExecutionPaused
    | ExecutionResumed
    | ExecutionFinished
)
"""Event of an execution, from `Corral.start`, `Corral.observe` or `on_event`; `type` is its kind."""

OnEvent: TypeAlias = Callable[[Event], object]
"""Function, sync or async, that receives events in order. Its exceptions are logged."""

_SHOWN_CHARS = 10_000


class EventStream:
    """Numbers and timestamps the events of one execution, and passes them to observers."""

    def __init__(
        self,
        execution_id: str,
        context: ExecutionContext,
        tool_call_id: str | None = None,
        shared: Sequence[OnEvent] = (),
    ) -> None:
        """`shared` are the observers of all executions; the list can change while this one runs."""
        self.observers: list[OnEvent] = []
        """Observers of this execution only."""
        self._shared = shared
        self._number = 0
        self._execution_id = execution_id
        self._context = context
        self._tool_call_id = tool_call_id

    def emit(self, make: Callable[[Stamp], Event]) -> None:
        """Counts an event. If there are observers, creates it and passes it to them. Their errors are logged."""
        self._number += 1
        if not (self.observers or self._shared):
            return  # creating events without observers would cost a tenth of a call
        stamp = Stamp(
            number=self._number,
            time=time.time(),
            execution_id=self._execution_id,
            user_id=self._context.user_id,
            organization_id=self._context.organization_id,
            session_id=self._context.session_id,
            tool_call_id=self._tool_call_id,
        )
        event = make(stamp)
        for observer in (*self.observers, *self._shared):
            try:
                observer(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                logger.warning("an observer of %s raised on %r", self._execution_id, event.type, exc_info=True)


_FINISH_SECONDS = 5.0
"""Seconds to deliver the remaining events at the end, after which delivery is cancelled."""
_MOST_WAITING = 10_000
"""Maximum number of events that wait for an async function of `Corral.observe`. Further ones are dropped."""


class EventListener:
    """Calls a function with every event."""

    def __init__(self, function: OnEvent, name: str) -> None:
        """`name`: the function's name in the log."""
        self._function = function
        self._name = name
        self._waiting: deque[tuple[str, Awaitable[object]]] = deque()
        self._delivered: anyio.Event | None = None
        """Set when the delivery task ends; None if there is no such task."""
        self._scope: anyio.CancelScope | None = None
        """Cancel scope of the delivery task, created in there because `__call__` may run outside a task."""

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
        """Awaits the function's results in order."""
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
    """Observation of a Corral's executions, until `close` or the end of its `with` or `async with` block."""

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
        if self._closed or self._session_id not in (None, event.session_id):
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
        """Ends the observation. Events that are still queued for an async function are delivered. Idempotent."""
        self._closed = True
        if self._delivered is None:
            self._forget()

    @override
    async def _deliver(self) -> None:
        await super()._deliver()
        if self._closed:  # from now on, closing the Corral does not wait for the remaining events
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

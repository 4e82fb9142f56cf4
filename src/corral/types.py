"""Values passed between the stages of the pipeline, nearly all of them frozen.

Those on the hot path are named tuples: a frozen dataclass takes three times as long to create.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, Self, TypeAlias, TypedDict, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)

from corral.arguments import did_you_mean
from corral.containment import Space, Tier
from corral.errors import ConfigError, CorralError, RateLimited, ToolFailed
from corral.logs import get_logger
from corral.npm import NpmModules
from corral.rendering.full_text import full_text
from corral.rendering.preview import json_text, preview_text, short_repr
from corral.texts import Placing, Position, TypedText, located

logger = get_logger("corral")

Language: TypeAlias = Literal["typescript", "python"]
"""Language of a program. JavaScript is TypeScript without types."""

Status: TypeAlias = Literal["succeeded", "failed", "timed_out", "cancelled", "rejected", "paused"]

LogLevel: TypeAlias = Literal["debug", "log", "info", "warn", "error"]

JsonSchema: TypeAlias = dict[str, Any]
"""JSON Schema 2020-12 object. Declarations also understand the tuple and definition keywords of older drafts."""


@dataclass(frozen=True, slots=True, order=True)
class ToolName:
    """Path of a tool in a program: `tools.<name>` or `tools.<namespace>.<name>`. Both parts are identifiers."""

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"

    @classmethod
    def parse(cls, path: str) -> ToolName:
        """Inverse of `str`: splits at the first dot."""
        namespace, dot, name = path.partition(".")
        return cls(namespace, name) if dot else cls(None, path)


MAX_TOOL_PATH = 200
"""Maximum characters in a tool's path."""


class Frozen(BaseModel):
    """Base of values that callers construct: frozen, and the error for an unknown key lists the valid ones."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    def __init__(self, *arguments: object, **data: Any) -> None:
        fields = type(self).model_fields
        if arguments:
            example = f"{type(self).__name__}({next(iter(fields))}=...)"
            raise ConfigError(f"{type(self).__name__} takes keyword arguments only: {example}")
        for key in data:
            if key not in fields:
                names = f"{did_you_mean(key, fields)}valid keys: {', '.join(fields)}"
                raise ConfigError(f"{type(self).__name__} has no {key!r}; {names}")
        try:
            super().__init__(**data)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
            )
            raise ConfigError(f"{type(self).__name__}: {problems}") from None


Positive: TypeAlias = Annotated[int, Field(gt=0)]
PositiveSeconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Limits(Frozen):
    """Limits of one execution. Every limit is positive and enforced; none can be disabled.

    Beyond `wall_seconds` or `cpu_seconds` the execution is `timed_out`. Beyond `calls` a call throws
    `CallBudgetExceeded`. Calls beyond `calls_in_flight` wait. Console output beyond `log_bytes` is dropped and reported
    in `ExecutionResult.truncated`. Any other value beyond its limit is an error that names the limit.
    """

    wall_seconds: PositiveSeconds = 60.0
    """Seconds from when the sandbox is ready to the last call's reply."""
    cpu_seconds: PositiveSeconds = 30.0
    """Seconds of the guest's processor time."""
    memory_mb: Positive = 64
    """The guest's own memory, beyond that of an idle engine."""
    calls: Positive = 256
    """Total tool calls."""
    calls_in_flight: Positive = 128
    """Tool calls running at the same time; further ones wait."""
    source_bytes: Positive = 256_000
    """The program's source as UTF-8, including prose and code fences."""
    value_bytes: Positive = 1_000_000
    """The program's result, encoded."""
    log_bytes: Positive = 64_000
    """All console output as UTF-8."""
    tool_input_bytes: Positive = 1_000_000
    """One tool call's input, encoded."""
    tool_output_bytes: Positive = 4_000_000
    """One tool call's output, encoded."""
    journal_bytes: Positive = 64_000_000
    """Bytes that a durable execution records: inputs and outputs, plus 200 bytes for each call and timer. A saved guest
    for which no room is left is not recorded."""


def _scopes(value: object) -> object:
    if isinstance(value, str):
        raise ValueError("scopes is a collection of strings, not one string")
    return frozenset(value) if isinstance(value, Iterable) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


class Owner(NamedTuple):
    """Owner of files, processes and executions: one user of one organization."""

    organization_id: str | None
    user_id: str


_JSON_VALUE: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def _json_only(value: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, each in value.items():
        try:
            _JSON_VALUE.validate_python(each)
        except ValidationError:
            raise ValueError(
                f"{name!r} is not JSON (it has a {type(each).__name__}); objects belong in local={{{name!r}: ...}}"
            ) from None
    return value


class ExecutionContext(Frozen):
    """Caller of a program; every tool call receives it. `scopes` takes any iterable of strings.

    `session_id` names a conversation of the user: its programs share files if the Corral keeps any.

    `metadata` is plain data and travels with the context. `local` holds objects of this process, such as a database
    connection or an agent's run; JSON and pickle leave it out.
    """

    user_id: str = "anonymous"
    session_id: str | None = None
    organization_id: str | None = None
    scopes: Annotated[frozenset[str], BeforeValidator(_scopes)] = frozenset()
    metadata: Annotated[Mapping[str, Any], AfterValidator(_json_only)] = Field(default_factory=dict, repr=False)
    local: Mapping[str, Any] = Field(default_factory=dict, repr=False, exclude=True)

    if TYPE_CHECKING:  # fields are typed as they are read; the constructor takes scopes as any iterable

        def __init__(
            self,
            *,
            user_id: str = ...,
            session_id: str | None = ...,
            organization_id: str | None = ...,
            scopes: Iterable[str] = ...,
            metadata: Mapping[str, Any] = ...,
            local: Mapping[str, Any] = ...,
        ) -> None: ...

    @property
    def owner(self) -> Owner:
        """Owner of its files, processes and executions: user and organization."""
        return Owner(self.organization_id, self.user_id)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {**state["__dict__"], "local": {}}}


class Transcript(NamedTuple):
    """Part of a conversation that a policy with data flow needs to know."""

    asked: tuple[str, ...] = ()
    """Texts that persons wrote, the oldest first."""
    read: tuple[str, ...] = ()
    """Tools whose results the model has read without a program."""


TRANSCRIPT = "corral.transcript"
"""Key in `ExecutionContext.local` of a function that returns the `Transcript` of the caller's program. It travels
with the context, so that programs that a tool runs for the same caller are part of the conversation too."""


class Audience(TypedDict, total=False):
    """Caller to whom tools are shown."""

    context: ExecutionContext | None
    """None stands for a caller without scopes."""
    hide_denied: bool | None
    """True hides tools that the caller may not call. None applies the Corral's setting."""


class _Short:
    __slots__ = ()

    def __repr__(self) -> str:
        return short_repr(self)


# --- a decision on a call that needs an approval ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Approved:
    """Allows a call. `by` is for the record: who decided.

    `for_session` also allows further calls of the tool in this session to the destinations that were in doubt.
    """

    by: str | None = field(default=None, kw_only=True)
    for_session: bool = field(default=False, kw_only=True)
    type: Literal["approved"] = field(default="approved", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class Denied:
    """Denies a call. The program sees the `reason`; `by`, who decided, is for the record only."""

    reason: str = ""
    by: str | None = field(default=None, kw_only=True)
    type: Literal["denied"] = field(default="denied", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class Later:
    """Leaves a call waiting for a decision by `Corral.executions.settle`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeats an uncertain call, with the same idempotency key. `by` is for the record: who decided."""

    by: str | None = field(default=None, kw_only=True)
    type: Literal["retry"] = field(default="retry", init=False, repr=False)


@dataclass(frozen=True, slots=True)
class Settled:
    """Answers an uncertain call with the value that it is known to have returned, without repeating it."""

    value: Any = None
    by: str | None = field(default=None, kw_only=True)
    type: Literal["settled"] = field(default="settled", init=False, repr=False)


UNCERTAIN = "it had started when its host was lost, so it may have taken effect"
"""The `reason` to ask about an uncertain call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Reason of a policy to ask a person about a call."""

    text: str
    """Reason in one line. Characters that hide or imitate others are escaped in values that it quotes."""
    parameter: str | None = None
    """Parameter with the doubtful destination, if it is about one."""
    destination: str | None = None
    """The destination in the form that is compared: without capital letters and outer spaces."""
    origin: str | None = None
    """Origin of the doubtful value: the first result that contains it."""

    @property
    def cause(self) -> str:
        """Reason without values of the input, as in the audit log."""
        return self.text if self.origin is None else f"{self.parameter or 'a change'}: {self.origin}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """Call that waits for approval. `input` is the tool's validated input, not a copy."""

    tool: str
    """`name` or `namespace.name`, as in the program."""
    input: Any
    """For a function, a dict from parameter to value; else the parsed input document."""
    arguments: Any
    """Input as the program passed it: plain data, without defaults."""
    description: str
    read_only: bool
    context: ExecutionContext
    execution_id: str
    sequence: int
    reason: str | None = None
    """Reason for the request, if it is not `needs_approval` or `doubts`: the effect of an uncertain call is unknown."""
    doubts: tuple[Doubt, ...] = ()
    """Reasons of the policy to ask."""
    seen: tuple[str, ...] = ()
    """Tools with untrusted results that the session's model has read."""
    asked_at: float = field(default_factory=time.time)
    """Time of the request, in seconds since the Unix epoch."""

    @property
    def digest(self) -> str:
        """Digest of everything that a person is shown: tool, input and reasons. `executions.settle` compares it."""
        reasons = [self.reason, *(each.text for each in self.doubts), *self.seen]
        text = json_text([self.tool, self.description, self.arguments, reasons])
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def shown(self, max_chars: int = 10_000) -> str:
        """Formats the whole input for a person: JSON, one member per line unless it is short.

        Characters that hide, move or imitate others, such as control and bidirectional characters, are escaped.

        Raises:
            ApprovalDenied: the text is longer than `max_chars`, or a value cannot be shown. If `approve` lets it
                propagate, the call is denied with this reason.
        """
        return full_text(self.input, max_chars)


Decision: TypeAlias = Approved | Denied
Settlement: TypeAlias = Approved | Denied | Retry | Settled
"""Decision on a call of a durable execution; `Retry` and `Settled` are for uncertain calls."""

Approve: TypeAlias = Callable[[ApprovalRequest], bool | Decision | Later | Awaitable[bool | Decision | Later]]
"""Function that decides on a call that needs approval. Only `Approved`, or True, allows it. `Denied` denies it with a
reason that the program sees, as raising `ApprovalDenied` does. `Later` leaves it to `Corral.executions.settle`.
Concurrent calls are decided concurrently."""


MayDecide: TypeAlias = Callable[[ApprovalRequest, ExecutionContext], bool | Awaitable[bool]]
"""Function that says if a person, the context, has the right to decide on a call. `ApprovalRequest.context` is the
caller of its program."""


# --- a call over a bridge -------------------------------------------------------------------------------------

CallState: TypeAlias = Literal["waiting", "started", "raised", "returned"]
"""State of a call. `waiting`: its tool has not started. `started`: its tool started and its outcome is unknown, so it
may have taken effect. `raised`: the tool raised an error. `returned`: the tool returned, even if its result was
withheld."""


class CallRequest(NamedTuple):
    """One tool call as it arrived. Everything from the guest is hostile input."""

    tool: str
    """`name` or `namespace.name`, as in the program."""
    input: object
    sequence: int
    """Number of the call within its execution: 1, 2, 3 and so on, as the calls arrive."""
    size: int = 0
    """Size of the input on arrival, in bytes."""
    reread: Callable[[], object] | None = None
    """Decodes the input again from its message, if the message is kept."""

    open_stream: OpenStream | None = None
    """Opens the call's stream; None if the bridge cannot stream, so that a tool's items arrive as a list."""
    encoded: EncodedValue | None = None
    """The input as it arrived, in a durable execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Error of a call. In the program it is an Error with this `name`, `message` and `code`.

    `retry_after_seconds` is set for `RateLimited`. The host's log has the details under the `correlation_id`.
    """

    code: str
    name: str
    message: str
    retry_after_seconds: float | None = None
    correlation_id: str | None = None

    @classmethod
    def of(cls, error: CorralError) -> CallError:
        """Converts an exception. The message becomes well-formed Unicode of at most 8,000 characters."""
        try:
            message = str(error)
        except Exception:
            message = "the error has no text"
        text = preview_text(message, 8000).encode("utf-8", "replace").decode("utf-8")
        return cls(
            code=error.code,
            name=type(error).__name__,
            message=text,
            retry_after_seconds=error.retry_after_seconds if isinstance(error, RateLimited) else None,
            correlation_id=error.correlation_id if isinstance(error, ToolFailed) else None,
        )


class EncodedValue(NamedTuple):
    """Value as JSON text; `tagged` is True if it has tags of the value codec."""

    text: bytes
    tagged: bool


class Reply(NamedTuple):
    """Reply to one call: a value, or an error if `error` is set.

    `encoded` is the encoded value; `nothing` makes it `undefined` instead of null. `parked`: the call has not run and
    waits for a decision outside this process; it stays unanswered, or gets `error` where that is impossible.
    """

    value: object = None
    encoded: EncodedValue | None = None
    error: CallError | None = None
    nothing: bool = False
    parked: bool = False
    stamp: tuple[float, float] | None = None
    """For a durable program, its clocks after this reply: wall clock and active time, in milliseconds."""


class GuestState(NamedTuple):
    """A guest's summary of its durable program so far. Two runs that took the same course have equal ones."""

    calls: int
    """Number of calls and timers."""
    digest: str
    """Digest of the program's random numbers, timers and console output."""


class StreamSink(Protocol):
    """Passes the items of a call's stream to the program. The reply to the call ends it."""

    def put(self, item: EncodedValue) -> bool:
        """Queues an item. Returns False if `room` must be awaited before the next one."""
        ...

    async def room(self) -> None:
        """Waits until the program has read enough items or stopped reading."""
        ...


OpenStream: TypeAlias = Callable[[Callable[[], object]], StreamSink]
"""Opens the stream of a call. The argument is called when the program stops reading."""


RequestHandler: TypeAlias = Callable[[CallRequest], Awaitable[Reply]]
"""Function that answers the calls of one guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeEndpoint:
    """Bridge in this process: calls arrive over the sandbox's own control channel."""

    handler: RequestHandler
    must_finish: Container[int] = ()
    """Sequence numbers of calls that are still awaited after their program has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """Bridge over HTTP: the guest sends calls to `url`, each with the execution's token, in `protocol`."""

    url: str
    token: str = field(repr=False)
    protocol: str = "http"
    """Name of the bridge protocol. Programs elsewhere import its `guest_runtime`."""


Endpoint: TypeAlias = PipeEndpoint | HttpEndpoint
"""Way for a guest to reach the bridge: one member per kind of transport."""


# --- a program and its run ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Remark on a program, from its recovery, check or run."""

    severity: Literal["error", "warning", "info"]
    message: str
    code: str | None = None
    line: int | None = None
    column: int | None = None
    show: Literal["always", "on_failure"] = "always"
    """Occasions on which `ExecutionResult.model_text` shows it. `on_failure` is for guesses at a cause."""


class ToolReference(NamedTuple):
    """Tool that a program refers to, with the position of the first reference in the model's source."""

    path: str
    """`name`, `namespace.name`, or a namespace that stands for all its tools. A tool's own member, as in
    `tools.add.bind`, looks like a tool in a namespace."""
    line: int
    column: int


class References(NamedTuple):
    """Tools that a program refers to, as far as its source shows."""

    named: tuple[ToolReference, ...] = ()
    """First reference to each path, in order of appearance."""
    computed: bool = False
    """True if the program can also call tools by computed names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A model's program, prepared to run: plain data that can be pickled.

    A sandbox evaluates `code`: for TypeScript an expression that is an async function of `(load, entry)`, for Python a
    module that leaves its value in the global `_corral_result`.
    """

    language: Language
    source: str
    """The model's whole answer."""
    code: str
    """Code to evaluate. It has the lines of the source, plus a frame around Python programs."""
    positions: tuple[Placing, ...] = ()
    """Maps from `code` back to the model's source, the last edit first; empty if they are the same."""
    diagnostics: tuple[Diagnostic, ...] = ()
    imports: tuple[str, ...] = ()
    """Imported module specifiers, in order of appearance."""
    references: References | None = None
    """Tools that it refers to; None if they were not analysed."""
    typed: TypedText | None = None
    """The program for a type checker; None: it does not parse as a whole."""
    binds: tuple[str, ...] = ()
    """Variables of a notebook's cell that later cells see."""
    cell: int = 0
    """Number of the cell in its process; 0 for a program with its own process."""

    def locate(self, line: int, column: int) -> Position:
        """Maps a line and a column of `code` to the model's source."""
        return located(self.positions, line, column)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogEntry(_Short):
    """Console output of one call. `time` is when the host received it, in seconds since the Unix epoch."""

    level: LogLevel
    text: str
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unawaited:
    """Call that the program started without awaiting it. It ran to its end; `error` is set if it failed.

    `sequence` is 0 if the program ended before the call was made. `late` is True if the call was awaited, but by a
    function that was itself not awaited.
    """

    tool: str
    sequence: int
    error: str | None = None
    line: int | None = None
    column: int | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionError:
    """Error of an execution. `code` belongs to a class in `corral.errors`.

    `name` and `message` come from the error that the program threw, if any. `line` and `column` are in the model's
    source. `stack` has only the frames of the program.
    """

    code: str
    name: str
    message: str
    cause: str | None = None
    line: int | None = None
    column: int | None = None
    stack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """Outcome of a guest, as a sandbox returns it. Failures of the program are data here, never exceptions."""

    value: object = None
    error: ExecutionError | None = None
    status: Literal["succeeded", "failed", "timed_out", "rejected", "paused"] = "succeeded"
    unawaited: tuple[Unawaited, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    dropped_log_bytes: int = 0
    lost: bool = False
    """True if the connection to the sandbox's machine was lost, which says nothing about the program."""


@dataclass(frozen=True, slots=True)
class PythonModules:
    """Folder of the host that is on the module path of Python programs."""

    folder: Path
    version: str
    """Digest that changes with the folder's content."""
    offered: tuple[str, ...]
    """Names of modules that programs may import. The folder also contains their dependencies."""
    preloaded: tuple[str, ...] = ()
    """Names of modules to import before a program arrives."""


class SandboxConfig(Frozen):
    """Settings with which a sandbox is started. It is reused only for equal settings."""

    language: Language = "typescript"
    memory_mb: Positive = 64
    required_tier: Tier = "none"
    """A sandbox below this tier must not start."""
    owner: Owner | None = None
    """Owner of a reusable sandbox, which only serves executions of this owner. None disables reuse."""
    space: Space | None = None
    """Directories of the one session that it serves."""
    modules: bool = False
    """True if TypeScript programs may load packages and the engine's built-in modules."""
    packages: PythonModules | None = None
    """Packages for Python programs, in addition to the provider's."""
    preloads: NpmModules | None = None
    """Packages for TypeScript programs that a server evaluates before it forks."""
    durable: bool = False
    """True if its program, given the same replies, must run the same way every time."""

    @property
    def unowned(self) -> SandboxConfig:
        """Returns the settings without their owner. Unused sandboxes are interchangeable if these are equal."""
        return self if self.owner is None else self.model_copy(update={"owner": None})


TIMER = "$timer"
"""Name of a service of durable executions, which replies after a number of milliseconds, its input."""

LimitName: TypeAlias = Literal["cpu_seconds", "memory_mb", "value_bytes", "log_bytes"]
"""Limits that only a sandbox can enforce. The host enforces the others for every sandbox."""

LIMITS_OF_SANDBOXES: frozenset[LimitName] = frozenset(get_args(LimitName))


class Containment(Frozen):
    """Containment that a Corral demands of its sandboxes. `accept_unenforced` takes any iterable of names."""

    required: Tier = "landlock"
    """The lowest tier in which programs may run. Opening the Corral fails if only weaker ones are available."""
    accept_unenforced: frozenset[LimitName] = frozenset()
    """Limits that a sandbox need not enforce."""

    if TYPE_CHECKING:  # fields are typed as they are read; the constructor takes names as any iterable

        def __init__(self, *, required: Tier = ..., accept_unenforced: Iterable[LimitName] = ...) -> None: ...

    @classmethod
    def development(cls) -> Self:
        """Returns the weakest demand: no tier, and no limits that need a sandbox. For your own programs, on any
        system."""
        return cls(required="none", accept_unenforced=LIMITS_OF_SANDBOXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of a sandbox provider."""

    languages: frozenset[Language]
    enforces: frozenset[LimitName]
    """Limits that it enforces on this machine. Users have to accept the others by name."""
    bridges: frozenset[str] = frozenset({"pipe"})
    """Bridge protocols that its guests speak."""
    modules: bool = False
    """True if its guests can load packages."""
    durable: bool = False
    """True if it has guests for durable executions, whose programs run the same way each time."""
    saves: bool = False
    """True if such a guest can be saved while its program waits, and continues without a replay."""
    cells: bool = False
    """True if its guests can run the cells of a notebook."""
    start_timeout_seconds: float = 30.0
    """Maximum seconds for a start, including the first. On a loaded machine a local engine takes tenths of a second."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Globals of TypeScript programs that its engine lacks, such as "FormData" or "Intl.Locale", and modules of node
    and their functions, such as "node:zlib" or "node:crypto.createHmac", each with the remedy as a sentence. Checks
    refuse programs that use them."""

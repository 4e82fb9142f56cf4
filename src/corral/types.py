"""The frozen values that travel between the stages of the pipeline.

Those of the hot path are named tuples: a frozen dataclass takes three times as long to make.

Nothing here does input or output, and nothing here imports another part of corral than the errors and the
previews of values for a model's eyes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from corral.arguments import did_you_mean
from corral.errors import ConfigError, CorralError, RateLimited, ToolFailed
from corral.logs import get_logger
from corral.rendering.preview import preview_text, short_repr

__all__ = [
    "MAX_TOOL_PATH",
    "Audience",
    "Call",
    "CallError",
    "Capabilities",
    "Diagnostic",
    "EncodedValue",
    "Endpoint",
    "ExecutionContext",
    "ExecutionError",
    "Exit",
    "Frozen",
    "Handler",
    "HttpEndpoint",
    "Isolation",
    "JsonSchema",
    "Language",
    "Limits",
    "LogEntry",
    "LogLevel",
    "PipeEndpoint",
    "Position",
    "Program",
    "Progress",
    "Reference",
    "References",
    "Reply",
    "SandboxConfig",
    "Status",
    "ToolName",
    "Unawaited",
]

logger = get_logger("corral")

Language: TypeAlias = Literal["typescript", "python"]
"""What a program is written in. JavaScript is TypeScript without types."""

Status: TypeAlias = Literal["succeeded", "failed", "timed_out", "cancelled", "rejected", "paused"]

LogLevel: TypeAlias = Literal["debug", "log", "info", "warn", "error"]

JsonSchema: TypeAlias = dict[str, Any]
"""A JSON Schema 2020-12 object (older drafts' tuple and definition keywords are understood where tools are shown)."""


@dataclass(frozen=True, slots=True, order=True)
class ToolName:
    """Where a program finds a tool: `tools.<name>` or `tools.<namespace>.<name>`. Both parts are identifiers."""

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"

    @classmethod
    def parse(cls, path: str) -> ToolName:
        """The inverse of `str`: splits at the first dot."""
        namespace, dot, name = path.partition(".")
        return cls(namespace, name) if dot else cls(None, path)


MAX_TOOL_PATH = 200
"""Characters of a tool's name, with its namespace, as a program writes it."""


class Frozen(BaseModel):
    """Base of the values a caller constructs: frozen, and an unknown key is an error that lists the valid ones."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    def __init__(self, *given: object, **data: Any) -> None:
        fields = type(self).model_fields
        if given:
            example = f"{type(self).__name__}({next(iter(fields))}=...)"
            raise ConfigError(f"{type(self).__name__} takes all by name: {example}")
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
    """What one execution may use. Every limit is positive and in force; there is no value that means "no limit".

    Over `wall_seconds` or `cpu_seconds` the execution is `timed_out`; over `calls` a call throws
    `CallBudgetExceeded`; calls over `calls_in_flight` wait; console output over `log_bytes` is dropped and
    reported in `ExecutionResult.truncated`; a value over its bound is an error that names the bound.
    """

    wall_seconds: PositiveSeconds = 60.0
    """Wall clock from when the sandbox is ready to the last call's reply."""
    cpu_seconds: PositiveSeconds = 30.0
    """Processor time of the guest only."""
    memory_mb: Positive = 64
    """The guest's own memory, above what its engine needs to stand still."""
    calls: Positive = 256
    """Tool calls in all."""
    calls_in_flight: Positive = 128
    """Tool calls running at the same time; further ones wait."""
    source_bytes: Positive = 256_000
    """The program's source as UTF-8, fences and prose included."""
    value_bytes: Positive = 1_000_000
    """The program's result, encoded."""
    log_bytes: Positive = 64_000
    """All console output as UTF-8."""
    tool_input_bytes: Positive = 1_000_000
    """One tool call's input, encoded."""
    tool_output_bytes: Positive = 4_000_000
    """One tool call's output, encoded."""


def _scopes(value: object) -> object:
    if isinstance(value, str):
        raise ValueError("scopes is a collection of strings, not one string")
    return frozenset(value) if isinstance(value, Iterable) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _new_session_id() -> str:
    return f"session-{secrets.token_hex(8)}"


class TrustDomain(NamedTuple):
    """Those who may see what each other's programs left behind: one user of one organization."""

    organization_id: str | None
    user_id: str


class ExecutionContext(Frozen):
    """For whom a program runs; tools receive it as they were called. `scopes` takes any iterable of strings."""

    user_id: str = "anonymous"
    session_id: str = Field(default_factory=_new_session_id)
    organization_id: str | None = None
    scopes: Annotated[frozenset[str], BeforeValidator(_scopes)] = frozenset()
    metadata: Mapping[str, Any] = Field(default_factory=dict, repr=False)

    if TYPE_CHECKING:  # the fields' types are what one reads; scopes may be written as any iterable

        def __init__(
            self,
            *,
            user_id: str = ...,
            session_id: str = ...,
            organization_id: str | None = ...,
            scopes: Iterable[str] = ...,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    @property
    def trust_domain(self) -> TrustDomain:
        """Its user and organization."""
        return TrustDomain(self.organization_id, self.user_id)


class Audience(TypedDict, total=False):
    """Who is shown tools."""

    context: ExecutionContext | None
    """The caller. None: anybody, who has no scopes."""
    hide_denied: bool | None
    """Whether it is shown only the tools that it may call. None: as the Corral was told."""


class _Short:
    __slots__ = ()

    def __repr__(self) -> str:
        return short_repr(self)


# --- a call over a bridge -------------------------------------------------------------------------------------

Progress: TypeAlias = Literal["pending", "started", "raised", "returned"]
"""How far a tool got with a call. `pending`: it was never called. `started`: nobody knows how that ended, so it may
have taken effect. `raised`: it failed by itself. `returned`: it ran, also where its result was withheld."""


@dataclass(slots=True)
class Call:
    """One tool call on its way through the guards. What a guest sent of it is hostile input.

    Not frozen: guards write down what they found, for those behind them and for the audit around them.
    """

    tool: str
    """`name` or `namespace.name`, as the program wrote it."""
    input: object
    sequence: int
    """Number of the call within its execution: 1, 2, 3 and so on, as the calls arrive."""
    size: int = 0
    """Bytes that the input took as it arrived."""
    protocol: str = "pipe"
    """The name of the bridge protocol by which it came."""
    token: str | None = None
    """What came with it to say whose it is, where the bridge does not know the grant itself."""
    grant: Any = None
    """The `corral.bridges.Grant` it is made under; None until it is known."""
    found: Any = None
    """The `Tool` that it is for, found once, so that all guards judge the one that runs; None until it is known."""
    parsed: Any = None
    """The tool's validated input; None until it is known."""
    progress: Progress = "pending"
    remark: str | None = None
    """What is worth knowing of the result, although it was delivered."""
    reread: Callable[[], object] | None = None
    """Reads the input anew from what arrived, where that is kept."""

    def warn(self, remark: str) -> None:
        """Leaves a remark on the result."""
        self.remark = remark


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call failed, as the program sees it: an Error with this `name`, `message` and `code`.

    `retry_after_seconds` is that of a `RateLimited`, `correlation_id` leads to what the host's log has of a failure.
    """

    code: str
    name: str
    message: str
    retry_after_seconds: float | None = None
    correlation_id: str | None = None

    @classmethod
    def of(cls, error: CorralError) -> CallError:
        """The error of a call. Its message is well-formed text of 8,000 characters at most: it is meant to be read."""
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
    """A value as JSON text, and whether that holds tags of the value codec."""

    text: bytes
    tagged: bool


class Reply(NamedTuple):
    """The answer to one call: a value, or an error if `error` is set.

    `encoded` is the value as it will travel; `nothing` makes it `undefined` instead of null.
    """

    value: object = None
    encoded: EncodedValue | None = None
    error: CallError | None = None
    nothing: bool = False


Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]
"""What answers calls. Every guard takes a handler and returns a handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeEndpoint:
    """A bridge in this process: calls arrive over the sandbox's own control channel."""

    handler: Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """A bridge elsewhere: calls are sent to `url`, each with the execution's token."""

    url: str
    token: str = field(repr=False)


Endpoint: TypeAlias = PipeEndpoint | HttpEndpoint
"""What a guest needs to reach the bridge. One member per way of reaching it."""


# --- a program and its run ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in the source as the model wrote it. Lines and columns count from 1, columns in UTF-16 units."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A remark on a program: from recovery, from a check, or from its run."""

    severity: Literal["error", "warning", "info"]
    message: str
    code: str | None = None
    line: int | None = None
    column: int | None = None
    show: Literal["always", "on_failure"] = "always"
    """When `ExecutionResult.model_text` shows it: what the program should not learn only from a failure is shown
    always, a guess at the cause of a failure only then."""


class Reference(NamedTuple):
    """A tool that a program refers to, and where in the source as the model wrote it it first does so."""

    path: str
    """As the program has it: `name`, `namespace.name`, or a namespace of which any tool may be meant. A name behind a
    tool's own, as of `tools.add.bind`, cannot be told from one in a namespace."""
    line: int
    column: int


class References(NamedTuple):
    """The tools that a program refers to, as far as that can be read off its source."""

    named: tuple[Reference, ...] = ()
    """The first reference to each path, in order of appearance."""
    computed: bool = False
    """Whether it may call other tools too, which only a run can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A model's program, made runnable.

    `code` is what a sandbox evaluates: for TypeScript an expression that is an async function of
    `(load, entry, decorate)`, for Python a module that leaves its value in the global `_corral_result`.
    """

    language: Language
    source: str
    """What the model wrote, whole."""
    code: str
    """What runs. It stands line for line where the source stands, but for what is put around a Python program."""
    locate: Callable[[int, int], Position]
    """Takes a line and a column of `code` back to the source as the model wrote it; nothing else says where it came
    from."""
    diagnostics: tuple[Diagnostic, ...] = ()
    imports: tuple[str, ...] = ()
    """Module specifiers that the program imports, in order of appearance."""
    references: References | None = None
    """The tools that it refers to; None: not looked at."""
    sequential_awaits: tuple[int, ...] = ()
    """Of Python: where in `code`, in bytes of UTF-8, an `await` of a tool's call stands beside which nothing else runs
    in an engine that does several things at once in `asyncio.gather` only."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogEntry(_Short):
    """One console call of the program. `time` is in seconds since the Unix epoch, as the host received it."""

    level: LogLevel
    text: str
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unawaited:
    """A call that the program started and never awaited. It ran to its end; `error` is set if it failed. `sequence` is
    0 where the program ended before the call was made."""

    tool: str
    sequence: int
    error: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionError:
    """Why an execution did not succeed. `code` is that of a class in `corral.errors`.

    `name` and `message` are those of the error the program threw, where it threw one; `line` and `column` are in
    the source as the model wrote it; `stack` holds only the program's own frames.
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
    """How a guest ended: what a sandbox returns. Never an exception for what a program did."""

    value: object = None
    error: ExecutionError | None = None
    status: Literal["succeeded", "failed", "timed_out", "rejected"] = "succeeded"
    exit_code: int = 0
    unawaited: tuple[Unawaited, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    dropped_log_bytes: int = 0


Tier: TypeAlias = Literal["none", "landlock", "namespaces"]
"""What the operating system adds around a sandbox, from nothing to most; docs/security.md tells what each holds."""

TIERS: tuple[Tier, ...] = ("none", "landlock", "namespaces")
"""In rising order."""

Isolation: TypeAlias = Tier | Literal["interpreter"]
"""What an execution was kept in by: a tier, or an interpreter without any access to the system."""


def reaches(isolation: Isolation, required: Tier) -> bool:
    """Whether it is as good as the tier that is required; an interpreter is, up to `landlock`."""
    found: Tier = "landlock" if isolation == "interpreter" else isolation
    return TIERS.index(found) >= TIERS.index(required)


class SandboxConfig(Frozen):
    """What must be known before a sandbox starts; pre-warmed sandboxes are interchangeable when these are equal."""

    language: Language = "typescript"
    memory_mb: Positive = 64
    required_tier: Tier = "none"
    """A sandbox below this tier must not start."""
    trust_domain: TrustDomain | None = None
    """For whom: sandboxes that outlive an execution never serve another one's. None shares with nobody."""


LimitName: TypeAlias = Literal[
    "wall_seconds",
    "cpu_seconds",
    "memory_mb",
    "calls",
    "calls_in_flight",
    "source_bytes",
    "value_bytes",
    "log_bytes",
    "tool_input_bytes",
    "tool_output_bytes",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a sandbox provider can do. `enforces` names the limits that it holds by itself, `bridges` the protocols by
    which its guests reach tools."""

    languages: frozenset[Language]
    enforces: frozenset[LimitName]
    bridges: frozenset[str] = frozenset({"pipe"})

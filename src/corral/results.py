"""How executions end, and what is seen of them meanwhile."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeAlias

from corral.errors import (
    ApprovalDenied,
    CallBudgetExceeded,
    Cancelled,
    MemoryExceeded,
    OutputExceeded,
    ProgramFailed,
    ProgramRejected,
    ProgramTimeout,
    ScopeDenied,
    ToolError,
    ToolNotFound,
    error_class,
)
from corral.preview import json_text, preview_json, preview_text
from corral.types import CallError, Diagnostic, ExecutionError, Isolation, Language, LogEntry, Status, Unawaited

__all__ = [
    "ConsoleOutput",
    "Event",
    "ExecutionFinished",
    "ExecutionResult",
    "ExecutionStarted",
    "ProgramCapabilities",
    "ToolCallFinished",
    "ToolCallRecord",
    "ToolCallStarted",
]

logger = logging.getLogger("corral")

_ENDED: Mapping[Status, str] = {
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "rejected": "was rejected",
}
_REMEDIES = {
    ProgramTimeout.code: "Do less in one program, and make calls that do not need each other at the same time.",
    MemoryExceeded.code: "Take less data at a time, and keep only what you need of it.",
    OutputExceeded.code: "Return less: only the parts or the totals that you need.",
    CallBudgetExceeded.code: "Make fewer calls in one program; what is left to do can be done by another.",
    ToolNotFound.code: 'Use names as they are declared; await tools.search("words") finds them.',
    ScopeDenied.code: "This caller may not use it, however it is called: do without it.",
    ApprovalDenied.code: "Do not call it again unless you are asked to.",
}
"""What a model can do about an error; only where there is one thing, and the message does not say it."""
_DEADLOCK_REMEDY = "Await only calls of tools, timers, and what the program itself brings about."
_TYPE_CODES = ("TS", "ty:")
"""How the codes of what a type check finds begin."""
_TYPE_WARNINGS = 5
_CALLS_SHOWN = 5
_INPUT_CHARS = 120


@dataclass(slots=True, kw_only=True)
class ToolCallRecord:
    """One call of an execution. `error` is set if it failed; `duration_ms` is None while it runs."""

    name: str
    sequence: int
    input: object
    started: float
    """Seconds since the Unix epoch."""
    output: object = None
    error: CallError | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCapabilities:
    """What a program could do, as its source tells before it runs.

    `tools` are those that it names, `scopes` what they ask for. With `any_tool` it also picks tools by names that it
    computes, or passes `tools` on: then it may call every other one too.
    """

    tools: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    any_tool: bool = False


@dataclass(frozen=True, kw_only=True)
class ExecutionResult:
    """How an execution ended, whatever happened after the guest's first instruction.

    `output` is the console as text, `logs` the same entry by entry. `tool_calls` lists every call that was made, on
    failure too. `truncated` says in words what was left out for size. `checked` says whether the program was
    type-checked before it ran, and `capabilities` which tools it refers to (None: it was not looked at).
    """

    execution_id: str
    status: Status
    language: Language
    value: Any = None
    logs: tuple[LogEntry, ...] = ()
    error: ExecutionError | None = None
    exit_code: int = 0
    duration_ms: float = 0.0
    tool_calls: tuple[ToolCallRecord, ...] = ()
    unawaited: tuple[Unawaited, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    truncated: tuple[str, ...] = ()
    isolation: Isolation | None = None
    checked: bool = False
    capabilities: ProgramCapabilities | None = None

    @property
    def success(self) -> bool:
        return self.status == "succeeded"

    @property
    def output(self) -> str:
        return "".join(f"{entry.text}\n" for entry in self.logs)

    def raise_for_error(self) -> Self:
        """Raises the error of `corral.errors` that the execution ended with; returns the result if there is none."""
        if self.error is None:
            return self
        place = f" (line {self.error.line}, column {self.error.column})" if self.error.line is not None else ""
        message = f"{self.error.name}: {self.error.message}{place}"
        kind = error_class(self.error.code)
        if issubclass(kind, ProgramRejected):
            raise kind(message, line=self.error.line, column=self.error.column)
        raise kind(message)

    def model_text(self, max_chars: int = 50_000, *, transform: Callable[[Any], object] | None = None) -> str:
        """What a model should read of it: value or error, calls made before an error, console, notes.

        Each is shortened to fit, and said so.

        `transform` may change the value before it is shown. If it raises, the value itself is shown.
        """
        return _model_text(self, max_chars, transform)

    def to_json(self, *, indent: int | None = None) -> str:
        """The whole result as JSON: bytes as base64, NaN and the infinities as strings."""
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        return json_text(shown | {"success": self.success, "output": self.output}, indent=indent)


def _model_text(result: ExecutionResult, max_chars: int, transform: Callable[[Any], object] | None) -> str:
    """See `ExecutionResult.model_text`."""
    parts: list[str] = []
    if result.error is None:
        parts.append(_value_text(_transformed(result.value, transform), max_chars))
    else:
        parts.append(preview_text(_error_text(result.error, result.status), max_chars))
        if calls := "\n".join(_call_lines(result.tool_calls)):
            parts.append(calls)
    if result.logs:
        parts.append(f"Console:\n{preview_text(result.output.rstrip(), max_chars)}")
    if notes := _notes(result):
        parts.append(preview_text("\n- ".join(("Notes:", *notes)), max_chars))
    return "\n\n".join(parts).encode("utf-8", "replace").decode()


def _transformed(value: Any, transform: Callable[[Any], object] | None) -> Any:
    if transform is None:
        return value
    try:
        return transform(value)
    except Exception:
        logger.warning("transforming a result for the model failed; it is shown as it is", exc_info=True)
        return value


def _value_text(value: Any, max_chars: int) -> str:
    """JSON; but a text of several lines as it is."""
    if isinstance(value, str) and "\n" in value:
        whole, shown = value, f"\n{preview_text(value.rstrip(), max_chars)}"
    else:
        whole = json_text(value)
        shown = f" {whole if len(whole) <= max_chars else preview_json(value, max_chars)}"
    shortened = f", shortened from {len(whole)} characters" if len(whole) > max_chars else ""
    return f"Result{shortened}:{shown}"


def _error_text(error: ExecutionError, status: Status) -> str:
    refused_call = status == "rejected" and issubclass(error_class(error.code), ToolError)
    what = "call" if refused_call else "program"
    place = "" if error.line is None else f" at line {error.line}, column {error.column}"
    nothing = "; nothing ran" if status == "rejected" else ""
    lines = [f"The {what} {_ENDED.get(status, status)}{place}{nothing}.", f"{error.name}: {error.message}"]
    frames = [line for line in (error.stack or "").splitlines() if line.startswith(("    at ", "  File "))]
    if len(frames) > 1:  # a single one is the place that was named
        lines += frames
    if error.cause is not None:
        lines.append(f"Caused by: {error.cause}")
    remedy = _DEADLOCK_REMEDY if _is_deadlock(error) else _REMEDIES.get(error.code)
    return "\n".join([*lines, remedy] if remedy else lines)


def _is_deadlock(error: ExecutionError) -> bool:
    return error.name == "Deadlock" and error.code == ProgramFailed.code


def _call_lines(calls: Sequence[ToolCallRecord]) -> Iterator[str]:
    """What a program that did not succeed had done, so that the next one does not do it again."""
    if done := Counter(call.name for call in calls if call.error is None):
        names = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in done.items())
        yield f"Calls that succeeded (not undone; do not repeat what changed something): {preview_text(names, 1000)}"
    failed = [call for call in calls if call.error is not None and call.error.code != Cancelled.code]
    if failed:
        yield f"Calls that failed: {_with_inputs(failed)}"
    cut = [call for call in calls if call.error is not None and call.error.code == Cancelled.code]
    if cut:
        yield f"Calls that were cut short, maybe after they took effect: {_with_inputs(cut)}"


def _with_inputs(calls: Sequence[ToolCallRecord]) -> str:
    shown = [f"{call.name} {preview_json(call.input, _INPUT_CHARS)}" for call in calls[:_CALLS_SHOWN]]
    more = [f"and {len(calls) - _CALLS_SHOWN} more"] if len(calls) > _CALLS_SHOWN else []
    return ", ".join([*shown, *more])


def _notes(result: ExecutionResult) -> list[str]:
    found: list[str] = []
    of_types: list[Diagnostic] = []
    for each in result.diagnostics:
        if each.code is not None and each.code.startswith(_TYPE_CODES):
            of_types.append(each)
        else:
            found.append(each.message)
    if result.status == "failed" and result.error is not None:
        line = result.error.line
        nearest = sorted(of_types, key=lambda each: each.line != line)[:_TYPE_WARNINGS]
        found += [f"type check, line {each.line}: {each.message}" for each in nearest]
    for call in result.unawaited:
        place = "" if call.line is None else f" at line {call.line}"
        outcome = "" if call.error is None else f"; it failed: {call.error}"
        found.append(f"tools.{call.tool} was called{place} and never awaited{outcome}")
    return [*found, *result.truncated]


# --- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStarted:
    """The program is about to run."""

    type: ClassVar[Literal["started"]] = "started"
    execution_id: str
    language: Language


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """A call arrived from the program."""

    type: ClassVar[Literal["call"]] = "call"
    call: ToolCallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished:
    """A call was answered; `type` is `error` if it failed."""

    call: ToolCallRecord

    @property
    def type(self) -> Literal["result", "error"]:
        return "result" if self.call.error is None else "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOutput:
    """The program printed."""

    type: ClassVar[Literal["console"]] = "console"
    entry: LogEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFinished:
    """The execution is over; always the last event."""

    type: ClassVar[Literal["finished"]] = "finished"
    result: ExecutionResult


Event: TypeAlias = ExecutionStarted | ToolCallStarted | ToolCallFinished | ConsoleOutput | ExecutionFinished

"""How executions end, and what is seen of them meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeAlias

from corral.errors import ProgramRejected, error_class
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
        """What a model should read of it: value, console, error, warnings; each shortened to fit, and said so.

        `transform` may change the value before it is shown. If it raises, the value itself is shown.
        """
        return _model_text(self, max_chars, transform)

    def to_json(self, *, indent: int | None = None) -> str:
        """The whole result as JSON: bytes as base64, NaN and the infinities as strings."""
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        return json_text(shown | {"success": self.success, "output": self.output}, indent=indent)


def _model_text(result: ExecutionResult, max_chars: int, transform: Callable[[Any], object] | None) -> str:
    """See `ExecutionResult.model_text`."""
    value = result.value
    if transform is not None:
        try:
            value = transform(value)
        except Exception:
            logger.warning("transforming a result for the model failed; it is shown as it is", exc_info=True)
            value = result.value
    parts: list[str] = []
    if result.error is None:
        parts.append(f"Result: {preview_json(value, max_chars)}")
    else:
        parts.append(preview_text(_error_text(result.error, result.status), max_chars))
        if result.tool_calls:
            names = ", ".join(f"{call.name}{'' if call.error is None else ' (failed)'}" for call in result.tool_calls)
            parts.append(f"Calls it had made: {preview_text(names, 1000)}")
    if result.logs:
        parts.append(f"Console:\n{preview_text(result.output.rstrip(), max_chars)}")
    remarks = [f"- {remark.message}" for remark in result.diagnostics]
    remarks += [
        f"- tools.{call.tool} was called{'' if call.line is None else f' at line {call.line}'} and never awaited"
        + ("" if call.error is None else f"; it failed: {call.error}")
        for call in result.unawaited
    ]
    remarks += [f"- {what}" for what in result.truncated]
    if remarks:
        parts.append(preview_text("Notes:\n" + "\n".join(remarks), max_chars))
    return "\n\n".join(parts)


def _error_text(error: ExecutionError, status: Status) -> str:
    place = "" if error.line is None else f" at line {error.line}, column {error.column}"
    frames = [line for line in (error.stack or "").splitlines() if line.startswith(("    at ", "  File "))]
    stack = "".join(f"\n{line}" for line in frames)
    cause = "" if error.cause is None else f"\nCaused by: {error.cause}"
    return f"The program {status.replace('_', ' ')}{place}.\n{error.name}: {error.message}{stack}{cause}"


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

"""How a run ended, in words for a person."""

from __future__ import annotations

import re
from collections.abc import Iterator

from corral import ExecutionError, ExecutionResult
from corral.cli.excerpts import excerpt
from corral.cli.progress import finished_line
from corral.cli.screen import Screen
from corral.cli.text import printable

__all__ = ["call_lines", "error_lines", "note_lines"]

_CALLS_LISTED = 20
_HELP = {
    "program_timeout": "--wall-seconds and --cpu-seconds set what a run may take",
    "memory_exceeded": "--memory-mb sets how much memory a run may use",
    "call_budget_exceeded": "--calls sets how many tool calls a run may make",
    "output_exceeded": "--value-bytes sets how large a result may be",
    "message_too_large": "--tool-input-bytes and --tool-output-bytes set how large a call may be",
    "scope_denied": "--scope gives the run a scope",
    "invalid_arguments": "corral types shows what the tools take",
    "tool_not_found": "corral types shows the tools that a program can call",
    "tool_failed": "what the tool raised is printed above, where it happened",
}
"""What the person at the command line can do, by error code."""


def error_lines(result: ExecutionResult, source: str, file: str, screen: Screen) -> Iterator[str]:
    """Why a run did not succeed, where in the source, and what to do about it. Nothing if it did."""
    error = result.error
    if error is None:
        return
    yield f"{screen.paint(f'error[{error.code}]', 'bold', 'red')}: {_message(error)}"
    if error.line is not None and error.column is not None:
        yield f"  --> {file}:{error.line}:{error.column}"
        yield from excerpt(source, error.line, error.column, columns=screen.size.columns)
    frames = [line.strip() for line in (error.stack or "").splitlines() if line.lstrip().startswith("at ")]
    if len(frames) > 1:
        yield from (f"    {_in_file(printable(frame), file)}" for frame in frames)
    if error.cause is not None:
        yield f"caused by: {printable(error.cause)}"
    if error.code in _HELP:
        yield f"{screen.paint('help', 'bold')}: {_HELP[error.code]}"


def note_lines(result: ExecutionResult, file: str, screen: Screen) -> Iterator[str]:
    """What is worth knowing of a run that is no error."""
    for remark in result.diagnostics:
        place = "" if remark.line is None else f" ({file}:{remark.line}:{remark.column})"
        yield _note(remark.severity, printable(remark.message) + place, screen)
    for call in result.unawaited:
        place = "" if call.line is None else f" ({file}:{call.line}:{call.column})"
        outcome = "" if call.error is None else f"; it failed: {call.error}"
        yield _note("warning", printable(f"tools.{call.tool} was never awaited{outcome}") + place, screen)
    for what in result.truncated:
        yield _note("info", what, screen)


def call_lines(result: ExecutionResult, screen: Screen) -> Iterator[str]:
    """The calls that were made, and may have had effects, before it ended."""
    calls = result.tool_calls
    if calls:
        yield f"{len(calls)} tool call{'s were' if len(calls) > 1 else ' was'} made:"
        yield from (f"  {finished_line(call, screen)}" for call in calls[:_CALLS_LISTED])
    if len(calls) > _CALLS_LISTED:
        yield f"  and {len(calls) - _CALLS_LISTED} more"


def _message(error: ExecutionError) -> str:
    """Name and message; an error of corral's own has its name in the code already."""
    if error.name.lower() == error.code.replace("_", ""):
        return printable(error.message)
    return printable(f"{error.name}: {error.message}")


def _in_file(frame: str, file: str) -> str:
    """A frame of the stack, which calls every program `program.ts`, with the name of the file."""
    return re.sub(r"\bprogram\.ts(?=:\d+:\d+)", lambda _: file, frame)


def _note(severity: str, text: str, screen: Screen) -> str:
    match severity:
        case "error":
            return f"{screen.paint('error', 'bold', 'red')}: {text}"
        case "warning":
            return f"{screen.paint('warning', 'bold', 'yellow')}: {text}"
        case _:
            return f"{screen.paint('note', 'bold')}: {text}"

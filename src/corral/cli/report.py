"""Formats the outcome of a run for people."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from itertools import islice

from corral import ExecutionResult
from corral.cli.progress import finished_line
from corral.cli.screen import Screen, counted, fitted, printable, width
from corral.errors import error_class
from corral.rendering.lists import first_few
from corral.results import Diagnostic, ExecutionError

_LINE_END = re.compile(r"\r\n|[\r\n\u2028\u2029]")
_LINES_AROUND = 1
_TAB = " " * 4


def exit_code(result: ExecutionResult) -> int:
    """Returns the exit code of a command that has run a program."""
    return {"succeeded": 0, "paused": 3, "cancelled": 128 + signal.SIGINT}.get(result.status, 1)


def excerpt(source: str, line: int, column: int, *, columns: int) -> list[str]:
    """Returns the numbered lines around a position, with a caret below the column.

    `line` and `column` count from 1, `column` in UTF-16 units. Empty if the source has no such line. Long lines are cut
    to `columns` around the position.
    """
    lines = _LINE_END.split(source)
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - _LINES_AROUND), min(len(lines), line + _LINES_AROUND)
    if last > line and last == len(lines) and not lines[last - 1]:
        last -= 1  # the empty line after the last newline
    gutter = len(str(last))
    room = columns - gutter - 4
    text, caret = _around(lines[line - 1], _index(lines[line - 1], column), room)
    shown = [f"{'':{gutter}} |"]
    for number, neighbour in enumerate(islice(lines, first - 1, last), first):
        content = text if number == line else _shown(neighbour)
        shown.append(f"{number:>{gutter}} | {fitted(content, room)}".rstrip())
        if number == line:
            shown.append(f"{'':{gutter}} | {'':{caret}}^")
    return shown


def _index(line: str, column: int) -> int:
    """Converts a column in UTF-16 units to an index in `line`."""
    return len(line.encode("utf-16-le")[: 2 * (column - 1)].decode("utf-16-le", "ignore"))


def _around(line: str, index: int, room: int) -> tuple[str, int]:
    """Returns `line` for display, scrolled so that `index` is visible, and the caret's offset in it."""
    before = _shown(line[:index])
    if width(before) < room * 3 // 4:
        return _shown(line), width(before)
    before = f"…{before[-(room // 2) :]}"
    return before + _shown(line[index:]), width(before)


def _shown(line: str) -> str:
    return printable(line.replace("\t", _TAB))


NO_TOOLS = "there are no tools; pass --tools PLACE or --mcp-config FILE, as in --tools app.tools"

_CALLS_LISTED = 20
_OF_A_CHECK = re.compile(r"TS\d|ty:")
"""Prefixes of language servers' codes."""
_DECLARED = "\n  declared: "
"""Separates a check's message from the declaration that the program does not match."""
_HELP = {
    "program_timeout": "--wall-seconds and --cpu-seconds set the time limits of a run",
    "memory_exceeded": "--memory-mb sets the memory limit of a run",
    "call_budget_exceeded": "--calls sets the maximum number of tool calls",
    "output_exceeded": "--value-bytes sets the maximum size of a result",
    "message_too_large": "--tool-input-bytes and --tool-output-bytes set the maximum size of a call",
    "scope_denied": "--scope gives the run a scope",
    "invalid_arguments": "corral types shows the tools' parameters",
    "tool_not_found": "corral types shows the tools that a program can call",
    "tool_failed": "the tool's exception is printed above",
}
"""Remedies at the command line, by error code."""


def error_lines(
    result: ExecutionResult, source: str, file: str, screen: Screen, *, tools_given: bool = True
) -> Iterator[str]:
    """Yields the reason of a failure, its position in the source, and the remedy; nothing after success."""
    error = result.error
    if error is None:
        return
    errors = [remark for remark in result.diagnostics if remark.severity == "error"]
    if errors:  # the message has all of them, but not the source
        summary, _, _ = _message(error).partition("\n")
        yield f"{_label('error', error.code, screen)}: {summary}"
        for remark in errors:
            yield from remark_lines(remark, source, file, screen)
    else:
        yield from _failure_lines(error, source, file, screen)
    remedy = _HELP["invalid_arguments"] if errors else _HELP.get(error.code)
    if "No module named 'corral'" in error.message:
        remedy = f"code that imports corral runs in Python itself: python {file}; pass its tools as --tools {file}"
    elif not tools_given and names_tools(source):
        remedy = NO_TOOLS
    if remedy is not None:
        yield help_line(remedy, screen)


def _failure_lines(error: ExecutionError, source: str, file: str, screen: Screen) -> Iterator[str]:
    yield f"{_label('error', error.code, screen)}: {_message(error)}"
    yield from _place(error.line, error.column, source, file, screen)
    frames = [line.strip() for line in (error.stack or "").splitlines() if line.lstrip().startswith("at ")]
    if len(frames) > 1:
        yield from (f"    {_in_file(printable(frame), file)}" for frame in frames)
    if error.cause is not None:
        yield f"caused by: {printable(error.cause)}"


def help_line(remedy: str, screen: Screen) -> str:
    """Formats a line with the next step for the user."""
    return f"{screen.paint('help', 'bold')}: {remedy}"


def names_tools(source: str) -> bool:
    """True if a program seems to call tools."""
    return re.search(r"\btools\b", source) is not None


def remark_lines(remark: Diagnostic, source: str, file: str, screen: Screen) -> Iterator[str]:
    """Yields a finding of a check, its position in the source, and the declaration that the program does not match."""
    message, _, declared = printable(remark.message).partition(_DECLARED)
    yield f"{_label(remark.severity, remark.code, screen)}: {message}"
    yield from _place(remark.line, remark.column, source, file, screen)
    if declared:
        yield f"{screen.paint('declared', 'bold')}: {declared}"


def note_lines(result: ExecutionResult, file: str, screen: Screen) -> Iterator[str]:
    """Yields remarks about a run that are not errors."""
    for remark in result.diagnostics:
        if remark.severity == "error" or (result.success and _OF_A_CHECK.match(remark.code or "")):
            continue
        place = "" if remark.line is None else f" ({file}:{remark.line}:{remark.column})"
        yield f"{_label(remark.severity, None, screen)}: {printable(remark.message)}{place}"
    for call in result.unawaited:
        place = "" if call.line is None else f" ({file}:{call.line}:{call.column})"
        outcome = "" if call.error is None else f"; it failed: {call.error}"
        text = printable(f"tools.{call.tool} was not awaited{outcome}")
        yield f"{_label('warning', None, screen)}: {text}{place}"
    for what in result.truncated:
        yield f"{_label('info', None, screen)}: {what}"


def call_lines(result: ExecutionResult, screen: Screen) -> Iterator[str]:
    """Yields the calls that were made before a failure, and can have taken effect."""
    calls = result.tool_calls
    if calls:
        yield f"{counted(len(calls), 'tool call')} {'were' if len(calls) > 1 else 'was'} made:"
        lines = [finished_line(call, screen) for call in calls]
        yield from (f"  {line}" for line in first_few(lines, _CALLS_LISTED))


def _message(error: ExecutionError) -> str:
    """Returns name and message, or only the message of corral's own errors, whose code is their name."""
    if error.name == error_class(error.code).__name__:
        return printable(error.message)
    return printable(f"{error.name}: {error.message}")


def _in_file(frame: str, file: str) -> str:
    """Replaces `program.ts`, every program's name in stack frames, by the file's name."""
    return re.sub(r"\bprogram\.ts(?=:\d+:\d+)", lambda _: file, frame)


def _place(line: int | None, column: int | None, source: str, file: str, screen: Screen) -> Iterator[str]:
    if line is not None and column is not None:
        yield f"  --> {file}:{line}:{column}"
        yield from excerpt(source, line, column, columns=screen.size.columns)


def _label(severity: str, code: str | None, screen: Screen) -> str:
    suffix = "" if code is None else f"[{code}]"
    match severity:
        case "error":
            return screen.paint(f"error{suffix}", "bold", "red")
        case "warning":
            return screen.paint(f"warning{suffix}", "bold", "yellow")
        case _:
            return screen.paint("note", "bold")

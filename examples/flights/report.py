"""Shows an execution in a terminal: the answer, the calls on a time line, and what stayed in the sandbox."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from corral import ExecutionResult
from corral.results import CallRecord

__all__ = ["Traffic", "answer", "time_line", "traffic"]

_SHOWN_CALLS = 12
_LABEL_CHARS = 53
_BAR_CHARS = 36

Table = Sequence[Mapping[str, object]]


# --- the answer ---------------------------------------------------------------------------------------------


def answer(value: Mapping[str, object]) -> str:
    """Lists of objects as tables, other members a line each."""
    parts = [
        _table(cast("Table", member)) if isinstance(member, list) else f"{_words(key)}: {_cell(member)}"
        for key, member in value.items()
    ]
    tables = [part for part in parts if "\n" in part]
    remarks = [part for part in parts if "\n" not in part]
    return "\n\n".join([*tables, *(["\n".join(remarks)] if remarks else [])])


def _table(rows: Table) -> str:
    columns = [_column(name, [row[name] for row in rows]) for name in rows[0]]
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _column(name: str, values: Sequence[object]) -> list[str]:
    """Heading, rule and cells, all of one width; numbers to the right, with a decimal each if one has any."""
    numeric = all(isinstance(value, int | float) for value in values)
    fractional = any(isinstance(value, float) for value in values)
    cells = [f"{value:,.1f}" if fractional else _cell(value) for value in values]
    width = max(map(len, [_words(name), *cells]))
    lines = [_words(name), "─" * width, *cells]
    return [line.rjust(width) if numeric else line.ljust(width) for line in lines]


def _words(name: str) -> str:
    """`hoursLost` and `hours_lost` as "hours lost"; percentages by their sign."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower().replace("percent", "%")


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


# --- the calls ----------------------------------------------------------------------------------------------


def time_line(calls: Sequence[CallRecord]) -> str:
    """A bar for each of the first calls, from its start to its reply, and how many of all ran at the same time."""
    shown, rest = calls[:_SHOWN_CALLS], calls[_SHOWN_CALLS:]
    start = min(call.started for call in calls)
    end = max(_end(call) for call in shown)
    lines = [_bar(call, start, end) for call in shown]
    if rest:
        counted = ", ".join(f"{count} × {name}" for name, count in Counter(call.name for call in rest).most_common())
        lines.append(f"… and {len(rest)} more: {counted}")
    failed = sum(call.error is not None for call in calls)
    lines.append(f"{len(calls)} calls, {failed} of them failed, at most {_most_at_once(calls)} at the same time")
    return "\n".join(lines)


def _bar(call: CallRecord, start: float, end: float) -> str:
    label = f"{call.name}({_literal(call.input)})"
    if len(label) > _LABEL_CHARS:
        label = f"{label[: _LABEL_CHARS - 1]}…"
    column = _BAR_CHARS / (end - start)
    left = min(round((call.started - start) * column), _BAR_CHARS - 1)
    right = max(round((_end(call) - start) * column), left + 1)
    bar = (" " * left + "█" * (right - left)).ljust(_BAR_CHARS)
    return f"{label:{_LABEL_CHARS}} {bar} {(call.started - start) * 1000:5.0f} + {call.duration_ms or 0:.0f} ms"


def _literal(input: object) -> str:
    """The input as the program wrote it, more or less: keys without quotes."""
    return re.sub(r'"(\w+)":', r"\1:", json.dumps(input))


def _end(call: CallRecord) -> float:
    return call.started + (call.duration_ms or 0) / 1000


def _most_at_once(calls: Iterable[CallRecord]) -> int:
    running = most = 0
    # A call that ends when another starts was not running at the same time: ends sort first.
    for _, change in sorted([step for call in calls for step in ((call.started, 1), (_end(call), -1))]):
        running += change
        most = max(most, running)
    return most


# --- what went where ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What tools returned to the program, what the model reads in the end, and what it wrote for that.

    Sizes are of JSON or text in UTF-8.
    """

    rows: int
    tool_bytes: int
    result_bytes: int
    source_bytes: int

    def __str__(self) -> str:
        return (
            f"stayed in the sandbox:  {self.rows:,} rows, {_amount(self.tool_bytes)}\n"
            f"came back to the model: {_amount(self.result_bytes)}\n"
            f"written by the model:   {_amount(self.source_bytes)}"
        )


def traffic(source: str, result: ExecutionResult) -> Traffic:
    outputs = [call.output for call in result.tool_calls if call.error is None]
    return Traffic(
        rows=sum(map(_rows, outputs)),
        tool_bytes=sum(map(_json_bytes, outputs)),
        result_bytes=len(result.model_text().encode()),
        source_bytes=len(source.encode()),
    )


def _amount(size: int) -> str:
    """Four bytes to a token is a rule of thumb, not a count."""
    return f"{size:,} bytes (about {size // 4:,} tokens)"


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _rows(output: Any) -> int:
    """A list's items, those of the list in a page, or 1 for one object."""
    if isinstance(output, list):
        return len(cast("list[object]", output))
    members = cast("dict[str, object]", output).values()
    return sum(_rows(member) for member in members if isinstance(member, list)) or 1

"""The record of an execution's calls."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from corral.errors import Cancelled, ProgramFailed
from corral.redaction import secret_names
from corral.results import Event, ToolCallFinished, ToolCallRecord, ToolCallStarted
from corral.tools import ToolRegistry
from corral.tools.plain import json_value
from corral.types import Call, CallError, Diagnostic, ExecutionError, Language, Reply

__all__ = ["CallRecorder", "remarks_on"]

_MOST_REMARKS = 10
_LONGEST_READ = 100_000
_TRIPPED_OVER_TEXT = frozenset({"TypeError", "AttributeError"})
"""What is thrown where a text is taken for an object or a list."""
_INPUT_BYTES = 20_000_000
"""How much input the records of one execution keep, as it arrived. In Python it can take 25 times as much, and it is
the program that decides what it sends."""


class CallRecorder:
    """Keeps a record of every call of one execution, also of those that were refused or cut short."""

    def __init__(self, emit: Callable[[Event], None], *, observed: Callable[[], bool] = lambda: True) -> None:
        self._emit = emit
        self._observed = observed  # making events that nobody sees would cost a tenth of a call
        self._input_room = _INPUT_BYTES
        self.records: list[ToolCallRecord] = []

    def start(self, call: Call) -> ToolCallRecord:
        self._input_room -= call.size
        kept = call.input if self._input_room >= 0 else f"… {call.size} bytes, not kept"
        record = ToolCallRecord(name=call.tool, sequence=call.sequence, input=kept, started=time.time())
        self.records.append(record)
        if self._observed():
            self._emit(ToolCallStarted(call=record))
        return record

    def finish(self, record: ToolCallRecord, call: Call, reply: Reply, duration_ms: float) -> None:
        record.duration_ms = duration_ms
        record.output = reply.value
        record.error = reply.error
        record.progress = call.progress
        if call.remark is not None:
            record.remark = call.remark
        if self._observed():
            self._emit(ToolCallFinished(call=record))

    def cut_short(self, record: ToolCallRecord, call: Call, duration_ms: float) -> None:
        error = CallError.of(Cancelled("the program ended before the tool answered"))
        self.finish(record, call, Reply(error=error), duration_ms)

    def look_up(self, tools: ToolRegistry) -> None:
        """Writes down what a text about the calls of a program that failed has to know of their tools."""
        found = {name: tools.get(name) for name in {record.name for record in self.records}}
        for record in self.records:
            if (tool := found[record.name]) is not None:
                record.read_only = tool.read_only
                record.masked = secret_names(tool.input_schema)


def remarks_on(
    records: Sequence[ToolCallRecord], error: ExecutionError | None, language: Language
) -> Iterator[Diagnostic]:
    """What is worth knowing of the results of calls, once for each tool: what is not as declared; and, of a program
    that failed, which results it may have taken for something else than text."""
    told = Counter(record.name for record in records if record.remark is not None)
    first = {record.name: record.remark for record in reversed(records) if record.remark is not None}
    for name in islice(told, _MOST_REMARKS):
        more = told[name] - 1
        times = f" (and {more} more time{'s' if more > 1 else ''})" if more else ""
        yield Diagnostic(severity="warning", code="output_not_as_declared", message=f"{first[name]}{times}")
    if error is None or error.code != ProgramFailed.code or error.name not in _TRIPPED_OVER_TEXT:
        return
    texts = {record.name: record.output for record in records if isinstance(record.output, str)}
    read = "json.loads(...)" if language == "python" else "JSON.parse(...)"
    for name in (name for name, text in islice(texts.items(), _MOST_REMARKS) if _is_json(text)):
        message = f"tools.{name} returned a text that is JSON, not an object: use {read}"
        yield Diagnostic(severity="warning", code="json_text", message=message, show="on_failure")


def _is_json(text: str) -> bool:
    """Whether an object or a list is written there."""
    return len(text) <= _LONGEST_READ and isinstance(json_value(text), dict | list)

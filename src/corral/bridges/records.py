"""The record of an execution's calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from corral.errors import Cancelled
from corral.results import Event, ToolCallFinished, ToolCallRecord, ToolCallStarted
from corral.types import Call, CallError, Reply

__all__ = ["CallRecorder"]


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

    def finish(self, record: ToolCallRecord, reply: Reply, duration_ms: float) -> None:
        record.duration_ms = duration_ms
        record.output = reply.value
        record.error = reply.error
        if self._observed():
            self._emit(ToolCallFinished(call=record))

    def cut_short(self, record: ToolCallRecord, duration_ms: float) -> None:
        error = CallError.of(Cancelled("the execution ended before the tool answered"))
        self.finish(record, Reply(error=error), duration_ms)

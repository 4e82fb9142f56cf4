"""Records of an execution's calls, within a memory bound."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from corral.errors import ExecutionCancelled, ProgramFailed
from corral.events import (
    ApprovalDecided,
    ApprovalRequested,
    EventStream,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from corral.guest import UnencodableValue, decode_value, encode_value
from corral.languages import LANGUAGES
from corral.rendering.redaction import secret_names
from corral.results import CallRecord, Unread
from corral.tools import ToolRegistry
from corral.tools.json_schema.plain_data import json_value
from corral.types import (
    ApprovalRequest,
    CallError,
    CallRequest,
    CallState,
    Decision,
    Diagnostic,
    EncodedValue,
    ExecutionError,
    Language,
    Reply,
)

_MOST_REMARKS = 10
_LONGEST_READ = 100_000
_TRIPPED_OVER_TEXT = frozenset({"TypeError", "AttributeError"})
"""Error messages of programs that treat a string as an object or a list."""
_MESSAGES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "bigint": (
        re.compile(r"Cannot mix BigInt|BigInt value to a number|serialize a BigInt"),
        "integers beyond 2^53 arrive as BigInt: use Number(x) to compute with them, String(x) to keep all digits",
    ),
}
"""Remarks on a failed program, by its error message."""


_EXECUTION_BYTES = 64_000_000
_CORRAL_BYTES = 512_000_000
"""Maximum bytes of recorded inputs and outputs: for one execution, and for all running executions of one Corral."""
_SHARE_BYTES = 1_000_000
"""Number of bytes that an execution reserves at once."""
_SMALL_BYTES = 1_000
_AS_OBJECTS = 32
"""Assumed ratio of a value's size in memory to the size of its JSON. For `{"":0}` in a list it is 30."""


class ValueRoom:
    """Memory budget for the records of all running executions of one Corral. Thread-safe."""

    def __init__(self, size: int = _CORRAL_BYTES) -> None:
        self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Reserves `size` bytes; returns False if fewer are left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class CallRecorder:
    """Records every call of one execution, including refused and cancelled calls.

    Small values are kept as objects, others encoded, within the memory budget `rooms`.
    """

    def __init__(self, events: EventStream, *, rooms: ValueRoom) -> None:
        self._events = events
        self._rooms = rooms
        self._room = 0
        self._taken = 0
        self.records: list[CallRecord] = []
        self.parked: dict[int, CallRecord] = {}
        """Calls that wait for a decision and will be made again, by their number."""

    def start(self, request: CallRequest) -> CallRecord:
        size = request.size
        cost = size * _AS_OBJECTS
        if size <= _SMALL_BYTES and cost <= self._room:
            self._room -= cost
            recorded = request.input
        else:
            recorded = self._kept(request.input, size, request.reread)
        started = time.time()
        record = _record_of(request, recorded, started)
        self.records.append(record)
        # The event gets a record of its own, because it must not change.
        self._events.emit(lambda stamp: ToolCallStarted(call=_record_of(request, recorded, started), **stamp))
        return record

    def finish(
        self, record: CallRecord, reply: Reply, duration_ms: float, state: CallState, remark: str | None = None
    ) -> None:
        record.duration_ms = duration_ms
        if reply.value is not None:
            self._finish(record, reply)
        record.error = reply.error
        record.state = state
        if remark is not None:
            record.remark = remark
        self._events.emit(lambda stamp: ToolCallFinished(call=record, **stamp))

    def replayed(self, request: CallRequest) -> CallRecord:
        """Records a call whose reply is already in a ledger. Emits no event."""
        record = _record_of(request, self._kept(request.input, request.size, request.reread), time.time())
        record.replayed = True
        self.records.append(record)
        return record

    def replay(self, record: CallRecord, reply: Reply) -> None:
        """Records the reply to such a call."""
        record.duration_ms, record.error = 0.0, reply.error
        record.state = "returned" if reply.error is None else "raised"
        if (encoded := reply.encoded) is not None:
            read, size = partial(_decoded, encoded), len(encoded.text)
            record.keep("output", self._kept(read() if size <= _SMALL_BYTES else None, size, read))

    def approval_requested(self, request: ApprovalRequest) -> None:
        self._events.emit(
            lambda stamp: ApprovalRequested(
                sequence=request.sequence,
                tool=request.tool,
                input=request.input,
                description=request.description,
                read_only=request.read_only,
                doubts=request.doubts,
                seen=request.seen,
                digest=request.digest,
                **stamp,
            )
        )

    def approval_decided(self, request: ApprovalRequest, decision: Decision) -> None:
        self._events.emit(
            lambda stamp: ApprovalDecided(sequence=request.sequence, tool=request.tool, decision=decision, **stamp)
        )

    def _finish(self, record: CallRecord, reply: Reply) -> None:
        encoded = reply.encoded or _encoded(reply.value)
        cost = len(encoded.text) * _AS_OBJECTS
        if len(encoded.text) <= _SMALL_BYTES and cost <= self._room:
            self._room -= cost
            record.output = reply.value
            return
        record.keep("output", self._kept(reply.value, len(encoded.text), partial(_decoded, encoded)))

    def _kept(self, value: object, size: int, read: Callable[[], object] | None) -> object:
        """Returns the form in which a value is recorded. Its JSON has `size` bytes; `read` decodes it again."""
        if type(value) is str:
            recorded, cost = value, sys.getsizeof(value)
        elif size <= _SMALL_BYTES:
            recorded, cost = value, size * _AS_OBJECTS
        else:
            recorded, cost = Unread(read or partial(_decoded, _encoded(value)), size), size
        if cost > self._room and not any(map(self._take, (max(cost, _SHARE_BYTES), cost - self._room))):
            return f"… {size} bytes, not kept"
        self._room -= cost
        return recorded

    def _take(self, size: int) -> bool:
        """Reserves memory, up to the limits of the execution and the Corral."""
        if self._taken + size > _EXECUTION_BYTES or not self._rooms.take(size):
            return False
        self._taken += size
        self._room += size
        return True

    def cut_short(self, record: CallRecord, duration_ms: float, state: CallState, remark: str | None = None) -> None:
        error = CallError.of(ExecutionCancelled("the program ended before the tool answered"))
        self.finish(record, Reply(error=error), duration_ms, state, remark)

    def close(self) -> None:
        """Releases the reserved memory: the records now belong to the holder of the result."""
        self._rooms.give_back(self._taken)
        self._room, self._taken = 0, _EXECUTION_BYTES

    def report(self, request: CallRequest, done: float, total: float | None, message: str | None) -> None:
        """Emits a tool's progress."""
        self._events.emit(
            lambda stamp: ToolCallProgress(
                tool=request.tool, sequence=request.sequence, done=done, total=total, message=message, **stamp
            )
        )

    def look_up(self, tools: ToolRegistry) -> None:
        """Adds facts about tools to the records, for the text that a model reads about a failed program."""
        by_name = {name: tools.get(name) for name in {record.name for record in self.records}}
        for record in self.records:
            if (tool := by_name[record.name]) is not None:
                record.read_only = tool.read_only
                record.masked = secret_names(tool.input_schema)


def remarks_on(records: Sequence[CallRecord], error: ExecutionError | None, language: Language) -> Iterator[Diagnostic]:
    """Yields at most one remark per tool on results of calls: those that differ from their declaration and, if the
    program failed, those that explain its error or are JSON strings that it may have taken for objects."""
    mismatches = Counter(record.name for record in records if record.remark is not None)
    first = {record.name: record.remark for record in reversed(records) if record.remark is not None}
    for name in islice(mismatches, _MOST_REMARKS):
        more = mismatches[name] - 1
        times = f" (and {more} more time{'s' if more > 1 else ''})" if more else ""
        yield Diagnostic(severity="warning", code="output_not_as_declared", message=f"{first[name]}{times}")
    if error is None or error.code != ProgramFailed.code:
        return
    for code, (pattern, message) in _MESSAGES.items():
        if pattern.search(error.message):
            yield Diagnostic(severity="warning", code=code, message=message, show="on_failure")
            return
    if error.name not in _TRIPPED_OVER_TEXT:
        return
    texts = {
        record.name: record.output
        for record in records
        if "output" not in record.unread and isinstance(record.output, str)
    }
    read = LANGUAGES[language].parse_json
    for name in (name for name, text in islice(texts.items(), _MOST_REMARKS) if _is_json(text)):
        message = f"tools.{name} returned a JSON string, not an object: use {read}"
        yield Diagnostic(severity="warning", code="json_text", message=message, show="on_failure")


def _record_of(request: CallRequest, recorded: object, started: float) -> CallRecord:
    record = CallRecord(name=request.tool, sequence=request.sequence, input=recorded, started=started)
    if type(recorded) is Unread:
        record.keep("input", recorded)
    return record


def _is_json(text: str) -> bool:
    """True if the text is a JSON object or array."""
    return len(text) <= _LONGEST_READ and isinstance(json_value(text), dict | list)


def _decoded(encoded: EncodedValue) -> object:
    """Decodes a value that was encoded for the guest, where tags represent types that JSON lacks."""
    return decode_value(encoded.text, tagged=encoded.tagged)


def _encoded(value: object) -> EncodedValue:
    try:
        return encode_value(value)
    except UnencodableValue:
        return encode_value(f"[{type(value).__name__}, which no program can receive]")

"""Records of calls: what they keep of inputs and outputs, and how much memory that takes."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest
from pydantic_core import to_json

from corral.calls import CallRecorder, ValueRoom
from corral.events import Event, EventStream, ToolCallFinished, ToolCallStarted
from corral.guest import decode_value, encode_value
from corral.results import CallRecord
from corral.types import CallRequest, ExecutionContext, Reply

DENSE: dict[str, Any] = {"rows": [{"": n % 7} for n in range(4_000)]}
"""As objects it takes more than 20 times as much as its JSON."""
SIZE = len(to_json(DENSE))


def recorder(size: int = 100_000_000, seen: list[Event] | None = None) -> CallRecorder:
    return recorder_in(ValueRoom(size), seen)


def recorder_in(rooms: ValueRoom, seen: list[Event] | None = None) -> CallRecorder:
    events = EventStream("execution-1", ExecutionContext())
    if seen is not None:
        events.observers.append(seen.append)
    return CallRecorder(events, rooms=rooms)


def call(input: Any, *, arrived: bool = True) -> CallRequest:
    text = to_json(input)
    reread = partial(decode_value, text, tagged=False) if arrived else None
    return CallRequest("query", copy.deepcopy(input), 1, len(text), reread)


def made(records: CallRecorder, input: Any, output: Any, *, arrived: bool = True) -> CallRecord:
    one = call(input, arrived=arrived)
    record = records.start(one)
    records.finish(record, Reply(value=copy.deepcopy(output), encoded=encode_value(output)), 1.0, "returned")
    return record


@pytest.mark.parametrize("value", [None, 1, "text", {"a": [1, 2.5, None]}, "x" * 5_000, DENSE, {"b": b"\0" * 5_000}])
@pytest.mark.parametrize("arrived", [True, False])
def test_values_are_read_as_they_were(value: Any, arrived: bool) -> None:
    record = made(
        recorder(), {"value": "x" * 2_000, "more": [value if type(value) is not dict else 1]}, value, arrived=arrived
    )
    again: CallRecord = pickle.loads(pickle.dumps(record))  # noqa: S301
    for each in (record, copy.deepcopy(record), replace(record), again):
        assert each == record
        assert each.output == value
        given: Any = each.input
        assert given["value"] == "x" * 2_000
        assert asdict(each)["output"] == value
        assert repr(each) == repr(record)
        assert type(each.state) is str
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = record.nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_look_at_a_large_value_does_not_change_what_is_kept() -> None:
    record = made(recorder(), DENSE, DENSE)
    seen: Any = record.output
    seen["rows"].clear()
    assert record.output == DENSE


def test_large_values_take_about_as_much_memory_as_their_json() -> None:
    records, calls = recorder(), 3
    tracemalloc.start()
    try:
        made(records, DENSE, DENSE)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(calls):
            made(records, DENSE, DENSE)
        kept = tracemalloc.get_traced_memory()[0] - before
        objects = copy.deepcopy(DENSE)
        as_objects = tracemalloc.get_traced_memory()[0] - before - kept
    finally:
        tracemalloc.stop()
    assert len(objects["rows"]) == 4_000
    assert kept < 2 * calls * 1.1 * SIZE
    assert as_objects > 10 * SIZE


def test_small_values_are_counted_by_what_they_take_as_objects() -> None:
    """As many calls as fit by their JSON would take many times the room."""
    room = 200_000
    small: dict[str, Any] = {"rows": [{"": 1} for _ in range(100)]}
    records = recorder(room)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(room // len(to_json(small))):
            made(records, small, small)
        kept = tracemalloc.get_traced_memory()[0] - before - len(records.records) * 1_000
    finally:
        tracemalloc.stop()
    assert kept < 1.2 * room
    assert records.records[0].input == small
    assert records.records[-1].input == f"… {len(to_json(small))} bytes, not kept"
    assert len(records.records) == room // len(to_json(small))


def test_what_has_no_room_leaves_a_mark_and_what_has_is_kept() -> None:
    records = recorder(5 * SIZE // 2)
    found = [made(records, DENSE, 7) for _ in range(4)]
    assert [each.input == DENSE for each in found] == [True, True, False, False]
    assert found[-1].input == f"… {SIZE} bytes, not kept"
    assert [each.output for each in found] == [7] * 4


def test_executions_share_their_room_and_leave_it() -> None:
    room = ValueRoom(5 * SIZE // 2)
    first, second = (recorder_in(room) for _ in range(2))
    assert [made(first, DENSE, None).input == DENSE for _ in range(3)] == [True, True, False]
    assert made(second, DENSE, None).input != DENSE
    first.close()
    assert made(second, DENSE, None).input == DENSE
    assert first.records[0].input == DENSE
    assert made(first, DENSE, None).input != DENSE  # too late: its room is others'
    second.close()
    assert room.take(5 * SIZE // 2)


def test_the_event_of_a_call_that_began_stays_as_it_was_then() -> None:
    seen: list[Event] = []
    record = made(recorder(seen=seen), DENSE, DENSE)
    [begun] = [each.call for each in seen if isinstance(each, ToolCallStarted)]
    assert (begun.output, begun.duration_ms, begun.state) == (None, None, "waiting")
    assert begun.unread["input"] is record.unread["input"], "it holds no value of its own"


def test_events_hold_the_records_and_nothing_else() -> None:
    seen: list[Event] = []
    records = recorder(seen=seen)
    record = made(records, DENSE, DENSE)
    assert [type(each) for each in seen][1:] == [ToolCallFinished]
    assert all(each.call is record for each in seen if isinstance(each, ToolCallFinished))
    assert set(record.unread) == {"input", "output"}

"""The log: its queue, what is durable when, what happens while a sink fails."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opentelemetry.trace import NoOpTracerProvider

from corral.audit import AuditEvent, AuditLog, AuditSink, JsonLinesSink, SqliteSink, Telemetry, as_audit_log, open_audit
from corral.errors import AccessDenied, ConfigError, MissingExtra
from tests.audit.events import POISON, event, read
from tests.forks import run_forked
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def audit_threads() -> Callable[[], int]:
    """How many threads logs of this test have."""
    before = {*threading.enumerate()}
    return lambda: sum(each.name == "corral-audit" for each in {*threading.enumerate()} - before)


BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class Gate:
    """A sink that can be shut and broken."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.batches: list[int] = []
        self.attempts = 0
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.broken = False

    def __call__(self, events: Sequence[AuditEvent]) -> None:
        self.attempts += 1
        self.entered.set()
        assert self.open.wait(LIMIT_SECONDS)
        if self.broken:
            raise OSError("no space left")
        self.events += events
        self.batches.append(len(events))

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.events]


def is_let_in(log: AuditLog) -> bool:
    try:
        log.check()
    except AccessDenied:
        return False
    return True


# --- what is durable when


@BOTH
@pytest.mark.parametrize("name", ["audit.jsonl", "audit.sqlite"])
async def test_a_durable_event_is_there_when_it_returns_and_others_after_a_flush(tmp_path: Path, name: str) -> None:
    log = as_audit_log(tmp_path / name)
    queued, denied, last = (event() for _ in range(3))
    await log.record(queued)
    await log.record_durably(denied)
    assert list(await read(tmp_path / name)) == [queued, denied]
    await log.record(last)
    await log.flush()
    assert list(await read(tmp_path / name)) == [queued, denied, last]
    await log.aclose()


@BOTH
async def test_durable_events_of_many_tasks_share_their_writes() -> None:
    gate = Gate()
    gate.open.clear()
    log = AuditLog(gate)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.record_durably, event())
        await until(gate.entered.is_set)
        for _ in range(400):
            tasks.start_soon(log.record_durably, event())
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert gate.batches == [1, 400]
    await log.aclose()


async def test_events_are_collected_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.audit.log._COLLECT_SECONDS", 3600.0)
    gate = Gate()
    log = AuditLog(gate)
    for _ in range(300):
        await log.record(event())
    assert gate.batches == []
    await log.flush()
    assert gate.batches == [300]
    await log.aclose()


@pytest.mark.parametrize(("name", "each_records"), [("audit.jsonl", 1000), ("audit.sqlite", 300)])
def test_every_event_of_eight_threads_with_loops_of_their_own_arrives_once(
    tmp_path: Path, name: str, each_records: int
) -> None:
    log = AuditLog(tmp_path / name, queue_events=1000)
    made: list[list[str]] = [[] for _ in range(8)]

    async def record(number: int) -> None:
        for count in range(each_records):
            each = event(sequence=count)
            made[number].append(each.id)
            await (log.record_durably if count % 100 == 0 else log.record)(each)

    threads = [
        threading.Thread(target=anyio.run, args=(record, number), kwargs={"backend": ("asyncio", "trio")[number % 2]})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    anyio.run(log.aclose)
    expected = sorted(id for ids in made for id in ids)
    assert len(expected) == 8 * each_records
    assert sorted(each.id for each in asyncio.run(read(tmp_path / name))) == expected


# --- the queue


@BOTH
async def test_a_full_queue_makes_record_wait_and_loses_nothing() -> None:
    gate = Gate()
    gate.open.clear()
    log = AuditLog(gate, queue_events=10)
    made = [event() for _ in range(100)]
    recorded: list[AuditEvent] = []

    async def record() -> None:
        for each in made:
            await log.record(each)
            recorded.append(each)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(record)
        await until(gate.entered.is_set)
        await anyio.wait_all_tasks_blocked()
        assert len(recorded) < 25
        gate.open.set()
    await log.aclose()
    assert gate.ids == [each.id for each in made]


@BOTH
async def test_a_cancelled_record_is_not_lost() -> None:
    gate = Gate()
    gate.open.clear()
    log = AuditLog(gate, queue_events=1)
    made = [event() for _ in range(4)]
    await log.record(made[0])
    await until(gate.entered.is_set)
    await log.record(made[1])
    with anyio.move_on_after(0.01) as queue_full:
        await log.record(made[2])
    assert queue_full.cancelled_caught
    gate.open.set()
    await log.flush()
    gate.open.clear()
    with anyio.move_on_after(0.01) as waiting:
        await log.record_durably(made[3])
    assert waiting.cancelled_caught
    gate.open.set()
    await log.aclose()
    assert gate.ids == [each.id for each in made]


async def test_what_finds_no_room_even_in_twice_the_queue_goes_to_the_logger(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 3600.0)
    gate = Gate()
    gate.broken = True
    log = AuditLog(gate, queue_events=1)
    with pytest.raises(AccessDenied, match="the audit log cannot be written"):
        await log.record_durably(event(tool="first"))
    assert not is_let_in(log)
    with anyio.fail_after(LIMIT_SECONDS):  # it is known to fail, so nothing is waited for
        for number in range(4):
            with pytest.raises(AccessDenied):
                await log.record_durably(event(tool=f"tool_{number}"))
    gate.broken = False
    await until(lambda: is_let_in(log))
    await log.aclose()
    unwritten = [record.getMessage() for record in caplog.records if "no room" in record.getMessage()]
    assert len(gate.events) + len(unwritten) == 5
    assert '"tool":"tool_3"' in unwritten[-1]


# --- sinks that fail


async def test_a_failing_sink_denies_until_it_can_be_written_again(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    log = AuditLog(gate)
    await log.record_durably(event())
    assert is_let_in(log)
    gate.broken = True
    kept = event()
    await log.record(kept)
    await until(lambda: not is_let_in(log))
    gate.broken = False
    await until(lambda: is_let_in(log))
    assert gate.ids[-1] == kept.id
    assert [record.name for record in caplog.records] == ["corral.audit", "corral.audit"]
    assert "no space left" in caplog.text
    await log.aclose()


@BOTH
async def test_whoever_waits_is_told_of_a_failure_at_once_and_their_events_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 3600.0)
    gate, healthy = Gate(), Gate()
    gate.broken = True
    gate.open.clear()
    log = AuditLog(gate, healthy)
    made = [event() for _ in range(3)]
    told: list[str] = []

    async def record(each: AuditEvent) -> None:
        with pytest.raises(AccessDenied):
            await log.record_durably(each)
        told.append(each.id)

    async def flush() -> None:
        with pytest.raises(TimeoutError, match="not written yet"):
            await log.flush()
        told.append("flush")

    await log.record(made[0])
    await until(gate.entered.is_set)
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record, made[1])  # behind the batch that fails
            tasks.start_soon(flush)
            await until(lambda: len(healthy.events) == 2)
            gate.open.set()
        await record(made[2])
        await flush()
    assert sorted(told) == sorted([made[1].id, made[2].id, "flush", "flush"])
    assert healthy.ids == [each.id for each in made]  # a denial waits for the sinks that do not fail
    gate.broken = False
    await log.aclose()
    assert gate.ids == [each.id for each in made]


async def test_a_flush_tries_a_failing_sink_without_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.audit.log._FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr("corral.audit.log._LONGEST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 3600.0)
    gate = Gate()
    gate.broken = True
    log = AuditLog(gate)
    for attempts in (2, 2):  # one, and one more at once; a denial after that leaves it alone
        with pytest.raises(AccessDenied):
            await log.record_durably(event())
        assert gate.attempts == attempts
    with pytest.raises(TimeoutError):
        await log.flush()
    gate.broken = False
    with anyio.fail_after(LIMIT_SECONDS):
        await log.flush()
    assert (gate.attempts, len(gate.events)) == (5, 2)
    await log.aclose()


async def test_a_failure_that_passes_at_once_denies_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failures = [OSError("connection closed")]

    def once(events: Sequence[AuditEvent]) -> None:
        if failures:
            raise failures.pop()

    log = AuditLog(once)
    await log.record_durably(event())
    assert (failures, caplog.records) == ([], [])
    await log.aclose()


async def test_from_the_first_write_that_fails_until_one_succeeds_no_call_is_let_in() -> None:
    first, again = threading.Event(), threading.Event()
    attempts = iter([OSError("connection closed"), None])
    retried = threading.Event()

    def fails_once(events: Sequence[AuditEvent]) -> None:
        failure = next(attempts)
        if failure is None:  # the retry, which follows at once
            retried.set()
            assert again.wait(LIMIT_SECONDS)
            return
        assert first.wait(LIMIT_SECONDS)
        raise failure

    log = AuditLog(fails_once)
    await log.record(event())
    assert is_let_in(log)
    first.set()
    await until(retried.is_set)
    assert not is_let_in(log)
    again.set()
    await log.flush()
    assert is_let_in(log)
    await log.aclose()


async def test_a_log_that_failed_when_it_was_closed_lets_calls_in_again_when_it_can_be_written() -> None:
    gate = Gate()
    gate.broken = True
    log = AuditLog(gate)
    await log.record(event())
    await log.aclose()
    gate.broken = False
    assert not is_let_in(log)
    await log.record(event())
    await log.flush()
    assert is_let_in(log)
    await log.aclose()


async def test_sinks_that_do_not_return_are_closed_together(
    monkeypatch: pytest.MonkeyPatch, audit_threads: Callable[[], int]
) -> None:
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr("corral.audit.log._CLOSING_SECONDS", LIMIT_SECONDS)
    gates = [Gate(), Gate()]
    for gate in gates:
        gate.open.clear()
    log = AuditLog(*gates)
    await log.record(event())
    for gate in gates:
        await until(gate.entered.is_set)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.aclose)
        for writer in log._writers:  # pyright: ignore[reportPrivateUsage]
            await until(writer._closing.is_set)  # pyright: ignore[reportPrivateUsage]
        for gate in gates:  # both are being closed, though neither has returned
            gate.open.set()
    assert audit_threads() == 0


async def test_a_log_that_is_to_continue_lets_calls_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 3600.0)
    gate = Gate()
    gate.broken = True
    log = AuditLog(gate, when_unavailable="continue", queue_events=10)
    await log.record(event())
    await until(lambda: gate.attempts >= 3)
    log.check()
    with anyio.fail_after(LIMIT_SECONDS):
        for _ in range(15):
            await log.record(event())
    gate.broken = False
    await log.aclose()
    assert len(gate.events) == 16


async def test_a_sink_that_does_not_return_is_unavailable_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.audit.log._STALLED_SECONDS", 0.05)
    gate = Gate()
    gate.open.clear()
    log = AuditLog(gate)
    await log.record(event())
    await until(lambda: not is_let_in(log))
    gate.open.set()
    await until(lambda: is_let_in(log))
    await log.aclose()


async def test_a_failing_or_stuck_sink_does_not_keep_events_from_the_others() -> None:
    broken, stuck, healthy = Gate(), Gate(), Gate()
    broken.broken = True
    stuck.open.clear()
    log = AuditLog(broken, stuck, healthy)
    made = [event() for _ in range(50)]
    for each in made:
        await log.record(each)
    await until(lambda: len(healthy.events) == 50)
    await until(lambda: not is_let_in(log))
    broken.broken = False
    stuck.open.set()
    await log.flush()
    assert broken.ids == stuck.ids == healthy.ids == [each.id for each in made]
    assert is_let_in(log)
    await log.aclose()


async def test_a_durable_event_waits_for_a_bounded_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 0.05)
    gate = Gate()
    gate.open.clear()
    log = AuditLog(gate)
    late = event()
    with pytest.raises(AccessDenied):
        await log.record_durably(late)
    with pytest.raises(TimeoutError, match="not written yet"):
        await log.flush()
    gate.open.set()
    await until(lambda: gate.ids == [late.id])
    await log.aclose()


class Rude(AuditSink):
    """Raises what is no Exception, on every way."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error
        self.events: list[AuditEvent] = []

    async def write(self, events: Sequence[AuditEvent]) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.events += events

    def aclose(self) -> None:
        raise SystemExit("not now")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
async def test_nothing_that_a_sink_raises_ends_the_writer(error: BaseException) -> None:
    sink = Rude(error)
    log = AuditLog(sink)
    await log.record(event())
    await until(lambda: not is_let_in(log))
    sink.error = None
    await log.aclose()
    assert len(sink.events) == 1


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.sqlite"])
async def test_no_event_blocks_those_behind_it(tmp_path: Path, name: str) -> None:
    log = as_audit_log(tmp_path / name)
    for fields in POISON.values():
        await log.record_durably(event(**fields))
    await log.record_durably(event(tool="healthy"))
    await log.aclose()
    found = await read(tmp_path / name)
    assert len(found) == len(POISON) + 1
    assert found[-1].tool == "healthy"


# --- events that are refused


class Picky(AuditSink):
    """Refuses some events, and with them the batch that they are in."""

    def __init__(self, error: type[Exception] = ValueError) -> None:
        self.error = error
        self.refused: set[str | None] = {"poison"}
        self.events: list[AuditEvent] = []
        self.attempts: int = 0
        self.failures = 0

    def write(self, events: Sequence[AuditEvent]) -> None:
        self.attempts += 1
        if self.refused & {each.tool for each in events}:
            self.failures += 1
            raise self.error("not this one")
        self.events += events

    @property
    def tools(self) -> set[str | None]:
        return {each.tool for each in self.events}


def logged_as_json(caplog: pytest.LogCaptureFixture) -> list[str | None]:
    """The tools of the events that went to the logger."""
    return [
        AuditEvent.from_json(record.getMessage().partition("is not stored: ")[2]).tool
        for record in caplog.records
        if "is not stored" in record.getMessage() and record.levelname == "ERROR"
    ]


@BOTH
async def test_events_that_are_refused_among_others_go_to_the_logger_and_block_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink, healthy = Picky(), Gate()
    log = AuditLog(sink, healthy)
    sink.refused.add("worse")
    tools = ["a", "poison", "b", "worse", "c"]
    for tool in tools:
        await log.record(event(tool=tool))
    await until(lambda: len(logged_as_json(caplog)) == 2)
    await until(lambda: is_let_in(log))
    await log.aclose()
    assert logged_as_json(caplog) == ["poison", "worse"]
    assert sink.tools == {"a", "b", "c"}
    assert [each.tool for each in healthy.events] == tools


async def test_an_event_that_is_refused_alone_denies_only_until_another_comes(caplog: pytest.LogCaptureFixture) -> None:
    sink = Picky()
    log = AuditLog(sink)
    with pytest.raises(AccessDenied):
        await log.record_durably(event(tool="poison"))
    assert not is_let_in(log)
    with pytest.raises(AccessDenied):
        await log.record_durably(event(tool="denied meanwhile"))
    await until(lambda: is_let_in(log))
    assert logged_as_json(caplog) == ["poison"]
    assert sink.tools == {"denied meanwhile"}
    await log.record_durably(event(tool="later"))
    await log.aclose()


async def test_a_batch_that_a_sink_refuses_as_a_whole_waits_for_the_queue_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = Picky()
    log = AuditLog(sink)
    for _ in range(20):
        await log.record(event(tool="poison"))
    await until(lambda: sink.failures >= 3)
    for _ in range(20):
        await log.record(event(tool="good"))
    await until(lambda: len(sink.events) >= 20)
    await log.aclose()
    assert logged_as_json(caplog) == ["poison"] * 20


@pytest.mark.parametrize(("error", "one_by_one"), [(RuntimeError, True), (OSError, False)])
async def test_a_sink_that_refuses_every_event_is_unavailable_and_loses_none(
    error: type[Exception], caplog: pytest.LogCaptureFixture, *, one_by_one: bool
) -> None:
    sink = Picky(error)
    sink.refused = {"a", "b"}
    log = AuditLog(sink)
    for tool in ("a", "b"):
        await log.record(event(tool=tool))
    await until(lambda: sink.attempts >= (8 if one_by_one else 4))
    assert not is_let_in(log)
    sink.refused = set()
    await log.flush()
    log.check()
    await log.aclose()
    assert sink.tools == {"a", "b"}
    assert logged_as_json(caplog) == []


class Collapsing(Picky):
    """Takes single events at first, and then no more."""

    left = 2

    def write(self, events: Sequence[AuditEvent]) -> None:
        self.attempts += 1
        if len(events) > 1 or self.left == 0:
            raise self.error("no more")
        self.left -= 1
        self.events += events


@pytest.mark.parametrize("error", [RuntimeError, OSError])
async def test_no_event_is_taken_out_when_the_sink_begins_to_fail_for_all(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    sink = Collapsing(error)
    log = AuditLog(sink)
    for number in range(5):
        await log.record(event(tool=f"{number}"))
    await until(lambda: sink.attempts >= 4)
    with pytest.raises(TimeoutError):
        await log.flush()
    assert not is_let_in(log)
    await log.aclose()
    assert logged_as_json(caplog) == []
    assert "has not accepted 5 events" in caplog.text


# --- its life


@BOTH
async def test_a_closed_log_leaves_no_thread_and_no_file_and_can_be_used_again(
    tmp_path: Path, audit_threads: Callable[[], int]
) -> None:
    def opened() -> list[str]:
        files = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return [each.name for each in files if each.is_relative_to(tmp_path)]

    log = AuditLog(tmp_path / "audit.jsonl", SqliteSink(tmp_path / "audit.db"))
    for number in range(3):
        await log.record(event(sequence=number))
        assert audit_threads() == 2
        await log.aclose()
        assert audit_threads() == 0
        assert opened() == []
    await log.aclose()
    for name in ("audit.jsonl", "audit.db"):
        assert [each.sequence for each in await read(tmp_path / name)] == [0, 1, 2]


async def test_the_thread_ends_when_there_is_nothing_to_do_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, audit_threads: Callable[[], int]
) -> None:
    monkeypatch.setattr("corral.audit.log._IDLE_SECONDS", 0.01)
    gate = Gate()
    log = AuditLog(gate)
    for number in range(1, 4):
        await log.record(event())
        await until(lambda: audit_threads() == 0)
        assert len(gate.events) == number


async def test_a_caller_who_wakes_the_thread_when_its_event_is_written_already_holds_up_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Work(threading.Event):
        cleared = threading.Semaphore(0)

        def clear(self) -> None:
            super().clear()
            self.cleared.release()

    monkeypatch.setattr("corral.audit.log._IDLE_SECONDS", 3600)
    gate = Gate()
    log = AuditLog(gate)
    [writer] = log._writers  # pyright: ignore[reportPrivateUsage]
    work = writer._work = Work()  # pyright: ignore[reportPrivateUsage]
    await log.record(event())
    assert work.cleared.acquire(timeout=LIMIT_SECONDS)
    assert len(gate.events) == 1
    writer._wake()  # pyright: ignore[reportPrivateUsage] - as one does who was not running between queueing and waking
    assert work.cleared.acquire(timeout=LIMIT_SECONDS)
    await log.record(event())
    await until(lambda: len(gate.events) == 2)
    await log.aclose()


async def test_an_event_on_its_way_from_the_queue_to_the_sink_is_unwritten() -> None:
    class Queue(deque[Any]):
        def copy(self) -> deque[Any]:
            writer._batch.extend(self)  # pyright: ignore[reportPrivateUsage] - as the thread does meanwhile
            self.clear()
            return deque()

    [writer] = AuditLog(Gate())._writers  # pyright: ignore[reportPrivateUsage]
    writer._queue = Queue([(event(), None)])  # pyright: ignore[reportPrivateUsage]
    assert writer.unwritten == 1


async def test_a_log_is_closed_while_its_sink_begins_to_fail(audit_threads: Callable[[], int]) -> None:
    gate = Gate()
    gate.open.clear()
    log = AuditLog(gate)
    await log.record(event())
    await until(gate.entered.is_set)
    gate.broken = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, log._writers[0].close, LIMIT_SECONDS)  # pyright: ignore[reportPrivateUsage]
        await until(log._writers[0]._closing.is_set)  # pyright: ignore[reportPrivateUsage]
        gate.open.set()
    assert audit_threads() == 0
    assert gate.attempts == 2


async def test_a_log_that_fails_is_closed_at_once_says_so_and_keeps_its_events(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, audit_threads: Callable[[], int]
) -> None:
    monkeypatch.setattr("corral.audit.log._PATIENCE_SECONDS", 3600.0)
    gate = Gate()
    gate.broken = True
    log = AuditLog(gate)
    await log.record(event())
    with anyio.fail_after(LIMIT_SECONDS):
        await log.aclose()
    assert audit_threads() == 0
    assert "the audit log is closed; CallbackSink(" in caplog.text
    assert "has not accepted 1 events" in caplog.text
    gate.broken = False
    await log.record(event())
    await log.aclose()
    assert len(gate.events) == 2


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    return run_forked(command)


NOT_CLOSED = """
import asyncio, sys
from corral.audit import AuditEvent, AuditLog
log = AuditLog(*sys.argv[1:])
async def main():
    for number in range(1000):
        await log.record(AuditEvent(id=f"{number}", time=1.0, kind="call", outcome="succeeded", duration_ms=1.0, protocol="pipe"))
asyncio.run(main())
"""


def test_a_process_that_ends_without_closing_the_log_writes_what_is_queued(tmp_path: Path) -> None:
    paths = [str(tmp_path / "audit.jsonl"), str(tmp_path / "audit.sqlite")]
    ended = run(NOT_CLOSED, *paths)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    for path in paths:
        assert len(asyncio.run(read(path))) == 1000


FORK = """
import asyncio, os, sys
from corral.audit import AuditEvent, AuditLog
from corral.errors import AccessDenied
def event(id):
    return AuditEvent(id=id, time=1.0, kind="call", outcome="denied", duration_ms=1.0, protocol="pipe")
async def record(log, name, how):
    await log.record_durably(event(f"{name} durable"))
    await log.record(event(f"{name} queued"))
    if how == "closed":
        await log.aclose()
def fork(path, how):
    log = AuditLog(path)
    asyncio.run(record(log, "before", how))
    children = []
    for number in range(3):
        if (child := os.fork()) == 0:
            try:
                asyncio.run(record(log, f"child {number}", how))
                asyncio.run(log.aclose())
            except AccessDenied:
                os._exit(9)
            os._exit(0)
        children.append(child)
    asyncio.run(record(log, "after", how))
    asyncio.run(log.aclose())
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
for path, how in zip(sys.argv[1::2], sys.argv[2::2]):
    fork(path, how)
"""


def recorded_around_a_fork(path: Path, *names: str) -> bool:
    found = sorted(each.id for each in asyncio.run(read(path)))
    return found == sorted(f"{name} {how}" for name in names for how in ("durable", "queued"))


def test_a_fork_neither_hangs_nor_writes_anything_twice_and_an_open_database_denies(tmp_path: Path) -> None:
    lines, database, inherited = (tmp_path / name for name in ("a.jsonl", "a.sqlite", "b.sqlite"))
    ended = run(FORK, str(lines), "open", str(database), "closed", str(inherited), "open")
    assert (ended.returncode, ended.stdout) == (0, "0 0 0\n0 0 0\n9 9 9\n"), ended.stderr
    for path in (lines, database):
        assert recorded_around_a_fork(path, "before", "after", "child 0", "child 1", "child 2")
    assert recorded_around_a_fork(inherited, "before", "after")
    assert "close the AuditLog before a fork" in ended.stderr
    failed = [line for line in ended.stderr.splitlines() if "cannot be written" in line]
    assert len(failed) == 3
    assert all(str(inherited) in line for line in failed)


async def test_an_async_function_runs_on_a_loop_that_is_not_the_hosts() -> None:
    loops: list[object] = []

    async def take(events: Sequence[AuditEvent]) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    log = AuditLog(take)
    await log.record_durably(event())
    await log.record_durably(event())
    await log.aclose()
    assert len(loops) == 2
    assert len(set(loops)) == 1
    assert asyncio.get_running_loop() not in loops


# --- what a log is made of


@pytest.mark.parametrize("source", ["audit.txt", "audit", "mysql://localhost/app", 3, None, Path("log")])
def test_what_is_no_sink_is_refused_with_the_forms_there_are(source: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=r"\.jsonl or \.sqlite, a postgresql:// URL, a sink, or a function|takes str, Path, AuditSink or a function",
    ):
        as_audit_log(source)


def test_a_log_is_taken_as_it_is(tmp_path: Path) -> None:
    log = AuditLog(JsonLinesSink(tmp_path / "a"), "a.db", "a.ndjson", Path("a.sqlite3"))
    assert as_audit_log(log) is log


@pytest.mark.parametrize(
    "options", [{"arguments": "all"}, {"when_unavailable": "ignore"}, {"queue_events": 0}], ids=str
)
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        AuditLog(print, **options)
    with pytest.raises(ConfigError, match="AuditLog has no sink"):
        AuditLog()


@pytest.mark.parametrize(
    ("module", "use", "extra"),
    [
        ("asyncpg", lambda: as_audit_log("postgresql://localhost/app"), "postgres"),
        ("asyncpg", lambda: open_audit("postgresql://localhost/app"), "postgres"),
        ("opentelemetry", lambda: Telemetry(tracer_provider=NoOpTracerProvider()), "otel"),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, use: Callable[[], object], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'corral\[{extra}\]'"):
        use()

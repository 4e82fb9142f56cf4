"""Ledgers: the suite for each of them, sealed values, and the thread that writes."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import anyio
import pytest

from corral.errors import ConfigError, HeldElsewhere, LedgerDamaged, LedgerError, LedgerFailed
from corral.ledger import CallRow, Claim, Ledger, MemoryLedger, Records, SqliteLedger, as_ledger
from corral.ledger.rows import ExecutionStatus, Query, StoredCall, StoredExecution, StoredSession
from corral.ledger.writer import Writer
from corral.testing import LedgerSuite
from corral.types import Approved, Denied, EncodedValue, Owner, Settled
from tests.forks import run_forked

pytestmark = pytest.mark.anyio

KEYS = {"new": b"n" * 32, "old": b"o" * 16}
OWNER = Owner("acme", "ann")
HEAD: Mapping[str, Any] = {"request": {"source": "return 'secret'"}}


USES_A_LEDGER_IN_A_FORK = """
import os
import sys
from corral.ledger import SqliteLedger

ledger = SqliteLedger(sys.argv[1], keys={})
ledger.get("execution-1")
if (child := os.fork()) == 0:
    try:
        ledger.get("execution-1")
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


class TestSqliteLedger(LedgerSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    def ledger(self) -> Ledger:
        return SqliteLedger(self.path, keys={})


class TestMemoryLedger(LedgerSuite):
    def ledger(self) -> Ledger:
        self.made = getattr(self, "made", None) or MemoryLedger()
        return self.made


def call(sequence: int, place: int | None = None, text: bytes = b'{"card":"secret"}') -> CallRow:
    return CallRow(
        sequence, "shop.pay", b"d" * 16, EncodedValue(text, False), "done", place, b'v"secret"', 1.5, 2.5, "ann"
    )


async def recorded(path: Path, calls: int = 3, keys: Mapping[str, bytes] = KEYS, name: str = "execution-1") -> None:
    records = Records(SqliteLedger(path, keys=keys))
    claim = await records.create(name, OWNER, HEAD)
    for number in range(calls):
        records.writer.put(claim, call(number + 1, number))
    await records.decide(name, 1, b"tool", Approved(by="ann"))
    await records.end(claim, "paused", lambda: {"replies": calls})
    await records.writer.aclose()


async def load(path: Path, keys: Mapping[str, bytes] = KEYS, name: str = "execution-1") -> Any:
    records = Records(SqliteLedger(path, keys=keys))
    try:
        return await records.load(name)
    finally:
        await records.writer.aclose()


async def test_what_is_recorded_is_read_again_and_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await recorded(path)
    found = await load(path)
    assert found.head == HEAD
    assert [*found.calls] == [call(1, 0), call(2, 1), call(3, 2)]
    assert found.decisions == {(1, b"tool"): Approved(by="ann")}
    assert found.result == {"replies": 3, "status": "paused"}
    assert path.stat().st_mode & 0o777 == 0o600
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"execution-1" in stored
    assert b"secret" not in stored
    assert b"shop.pay" not in stored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "UPDATE calls SET body = (SELECT body FROM calls WHERE sequence = 1) WHERE sequence = 2",
            "call 2 done 1 was alt",
        ),
        ("UPDATE calls SET body = CAST(body || x'00' AS BLOB) WHERE sequence = 3", "call 3 done 2 was altered"),
        ("UPDATE calls SET body = zeroblob(90) WHERE sequence = 3", "it is not sealed"),
        ("UPDATE calls SET status = 'started', place = NULL WHERE sequence = 3", "call 3 started  was altered"),
        ("UPDATE calls SET place = 7 - place WHERE sequence = 3", "call 3 done 5 was altered"),
        ("DELETE FROM calls WHERE sequence = 2", "calls of execution-1 are missing"),
        ("DELETE FROM calls WHERE sequence = 3", "calls of execution-1 are missing"),
        ("UPDATE executions SET user_id = 'bob'", "was altered, or belongs elsewhere"),
        ("UPDATE executions SET status = 'succeeded'", "the status of execution-1 in the ledger was altered"),
        ("UPDATE executions SET result = NULL", "the status of execution-1 in the ledger was altered"),
        ("UPDATE executions SET result = x'036e6577'", "was altered, or belongs elsewhere"),
        ("UPDATE decisions SET binding = x'00'", "decision 1 00 was altered"),
    ],
)
async def test_a_row_that_was_altered_or_moved_is_refused(tmp_path: Path, change: str, message: str) -> None:
    path = tmp_path / "runs.db"
    await recorded(path)
    with sqlite3.connect(path) as database:
        database.execute(change)
    with pytest.raises(LedgerDamaged, match=message):
        await load(path)


@pytest.mark.parametrize(
    ("read", "write", "old", "new", "message"),
    [
        (
            "SELECT body FROM calls",
            "UPDATE calls SET body = ?",
            b'et"}v"secret"',
            b"",
            "call 1 of execution-1 in the ledger cannot be read",
        ),
        (
            "SELECT body FROM decisions",
            "UPDATE decisions SET body = ?",
            b"approved",
            b"answered",
            "a decision of execution-1 in the ledger cannot be read",
        ),
    ],
)
async def test_a_row_without_keys_that_is_damaged_is_refused(
    tmp_path: Path, read: str, write: str, old: bytes, new: bytes, message: str
) -> None:
    path = tmp_path / "runs.db"
    await recorded(path, calls=1, keys={})
    with sqlite3.connect(path) as database:
        ((body,),) = database.execute(read)
        assert old in body.lower()
        database.execute(write, (body.lower().replace(old, new),))
    with pytest.raises(LedgerDamaged, match=message):
        await load(path, keys={})


async def test_a_row_of_another_execution_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await recorded(path)
    await recorded(path, name="execution-2")
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE calls SET body = (SELECT body FROM calls WHERE execution_id = 'execution-2' AND sequence = 2)"
            " WHERE execution_id = 'execution-1' AND sequence = 2"
        )
    with pytest.raises(LedgerDamaged, match="execution-1 call 2 done 1 was altered, or belongs elsewhere"):
        await load(path)
    assert len((await load(path, name="execution-2")).calls) == 3


async def test_keys_can_be_rotated_until_the_old_one_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await recorded(path, keys={"old": KEYS["old"]})
    assert len((await load(path)).calls) == 3
    with pytest.raises(LedgerDamaged, match="has no key 'old' any more"):
        await load(path, keys={"new": KEYS["new"]})
    with pytest.raises(LedgerDamaged, match="has no key 'old' any more"):
        await load(path, keys={})
    with pytest.raises(LedgerDamaged, match="another key 'old': set CORRAL_LEDGER_KEYS or keys= to the key"):
        await load(path, keys={"old": KEYS["new"]})


async def test_keys_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.db"
    monkeypatch.delenv("CORRAL_LEDGER_KEYS", raising=False)
    with pytest.raises(ConfigError, match="a ledger needs keys"):
        as_ledger(path)
    monkeypatch.setenv(
        "CORRAL_LEDGER_KEYS", "new=bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=, old=b29vb29vb29vb29vb29vbw=="
    )
    await recorded(path)
    records = Records(as_ledger(path))
    assert len((await records.load("execution-1")).calls) == 3
    await records.writer.aclose()
    key = "bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4="
    for variable in ("new=nothing!", key, f"new:{key}", f"old={key},{key}", f"new={key}, new={key}", "new=bm5u"):
        monkeypatch.setenv("CORRAL_LEDGER_KEYS", variable)
        with pytest.raises(ConfigError, match=r"key [12] (is not NAME=BASE64 of 16, 24|has the name of)") as problem:
            as_ledger(path)
        assert key[:8] not in str(problem.value)
    for wrong in ({"new": b"short"}, {"": b"n" * 32}):
        with pytest.raises(ConfigError, match="needs a name of 1 to 32 bytes and 16, 24 or 32 bytes"):
            SqliteLedger(path, keys=wrong)
    with pytest.raises(ConfigError, match=r"a URL redis://\.\.\. is not a ledger"):
        as_ledger("redis://localhost")


async def test_the_decision_that_holds_is_returned(tmp_path: Path) -> None:
    records = Records(MemoryLedger())
    await records.create("a", OWNER, HEAD)
    value = {"big": 2**70, "text": "ü"}
    assert await records.decide("a", 1, b"x", Settled(value, by="ann")) == Settled(value, by="ann")
    assert await records.decide("a", 1, b"x", Denied("no")) == Settled(value, by="ann")
    assert (await records.load("a")).decisions == {(1, b"x"): Settled(value, by="ann")}
    await records.writer.aclose()


class Failing(MemoryLedger):
    """Ledger whose disk can be full."""

    full = False
    writes: list[bool]

    def write(self, claims: Mapping[str, int], calls: Any, *, durably: bool) -> Any:
        self.writes = [*getattr(self, "writes", ()), durably]
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        return super().write(claims, calls, durably=durably)


async def test_rows_that_wait_for_the_disk_in_one_turn_share_a_write() -> None:
    import anyio

    ledger = Failing()
    records = Records(ledger)
    claims = [await records.create(name, OWNER, HEAD) for name in "abc"]
    async with anyio.create_task_group() as tasks:
        for claim in claims:
            records.writer.put(claim, call(1, 0))
            tasks.start_soon(records.writer.durable, claim)
    assert ledger.writes == [True]
    records.writer.put(claims[0], call(2, 1))
    assert len((await records.load("a")).calls) == 2, "reads go behind the writes"
    assert ledger.writes == [True, False]
    await records.writer.aclose()


async def test_jobs_of_one_turn_wake_the_thread_once_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[int] = []

    class Counted(SimpleQueue[Any]):
        def put(self, item: Any, *args: Any, **options: Any) -> None:
            handed.append(0 if item is None else len(item))
            super().put(item, *args, **options)

    monkeypatch.setattr("corral.ledger.writer.SimpleQueue", Counted)
    writer, done, told = Writer(MemoryLedger()), list[int](), list[int]()

    async def job(n: int) -> None:
        await writer.run(lambda: done.append(n))
        told.append(n)

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(job, n)
    await writer.aclose()
    assert handed == [20, 0]
    assert done == told == [*range(20)]


async def test_outcomes_of_the_jobs_of_one_turn_wake_the_event_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.ledger.writer._TELL_SECONDS", math.inf)
    writer = Writer(MemoryLedger())
    loop, wakes, schedule = asyncio.get_running_loop(), list[object](), asyncio.get_running_loop().call_soon_threadsafe

    def counted(function: Callable[[], object], *arguments: Any, **options: Any) -> asyncio.Handle:
        wakes.append(function)
        return schedule(function, *arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(writer.run, int)
    assert len(wakes) == 1
    await writer.aclose()


async def test_a_write_that_fails_ends_the_claims_of_its_rows(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Failing()
    records = Records(ledger)
    one, two = await records.create("one", OWNER, HEAD), await records.create("two", OWNER, HEAD)
    told: list[Claim] = []
    one.on_failure = lambda: told.append(one)
    ledger.full = True
    records.writer.put(one, call(1, 0))
    with pytest.raises(LedgerFailed, match="the ledger failed: database or disk is full"):
        await records.writer.durable(one)
    assert told == [one]
    ledger.full = False
    with pytest.raises(LedgerFailed):
        await records.end(one, "succeeded", dict)
    records.writer.put(two, call(1, 0))
    await records.writer.durable(two)
    await records.end(two, "succeeded", dict)
    assert not (await records.load("one")).calls
    await records.writer.aclose()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "unable to open database file"),
        ("gone/runs.db", "No such file or directory"),
        ("text", "file is not a database"),
    ],
)
async def test_a_ledger_that_cannot_be_opened_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, reason: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("not a database")
    with pytest.raises(LedgerFailed, match=f"the ledger {tmp_path / name} cannot be opened: {reason}"):
        await load(tmp_path / name)
    assert not caplog.records
    assert (tmp_path / "text").read_text() == "not a database"


def test_rows_that_were_written_before_are_made_durable(tmp_path: Path) -> None:
    """SQLite syncs its log with a transaction that adds to it, and with no other."""
    ledger, log = SqliteLedger(tmp_path / "runs.db", keys={}), tmp_path / "runs.db-wal"
    ledger.create(StoredExecution("a", None, "ann", "running", 1.0, 1.0, 1, 30.0, b"head"))
    ledger.write({"a": 1}, [StoredCall("a", 1, "started", None, b"call")], durably=False)
    before = log.stat().st_size
    assert not ledger.write({"a": 1}, [], durably=True)
    assert log.stat().st_size > before
    ledger.close()


async def test_a_host_that_was_slow_writes_nothing_more(tmp_path: Path) -> None:
    slow, quick = (Records(SqliteLedger(tmp_path / "runs.db", keys=KEYS)) for _ in range(2))
    old = await slow.create("a", OWNER, HEAD)
    with pytest.raises(
        HeldElsewhere, match=r"a runs on another host, or has just lost its host; if so, it can be resumed in \d+ s"
    ):
        await quick.claim("a")
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("UPDATE executions SET lease = 0")
    new, _ = await quick.claim("a")
    slow.writer.put(old, call(1, 0))
    with pytest.raises(HeldElsewhere, match="another host has taken over a"):
        await slow.writer.durable(old)
    with pytest.raises(LedgerError, match="taken over"):
        await slow.end(old, "succeeded", dict)
    await quick.end(new, "succeeded", dict)
    with pytest.raises(HeldElsewhere, match="a has ended: succeeded"):
        await slow.claim("a")
    assert not (await slow.load("a")).calls
    for records in (slow, quick):
        await records.writer.aclose()


async def test_what_is_paused_for_too_long_is_not_resumed() -> None:
    ledger = MemoryLedger(expires_seconds=1e-9)
    records = Records(ledger)
    claim = await records.create("a", OWNER, HEAD)
    await records.end(claim, "paused", dict)
    with pytest.raises(HeldElsewhere, match="a has expired"):
        await records.claim("a")
    assert await records.writer.run(records.writer.prune) == 1
    with pytest.raises(ConfigError, match="has no execution 'a'"):
        await records.load("a")
    await records.writer.aclose()


async def test_an_event_loop_hardly_waits_for_the_thread() -> None:
    records = Records(MemoryLedger())
    assert await records.writer.run(sys.getswitchinterval) < 0.001
    await records.writer.aclose()
    assert sys.getswitchinterval() >= 0.001


def test_a_ledger_in_memory_has_room_for_one_execution() -> None:
    with pytest.raises(ConfigError, match=r"most_bytes must be at least \d+, but is 1000"):
        MemoryLedger(most_bytes=1000)


def test_a_forked_process_does_not_use_the_ledger_of_its_parent(tmp_path: Path) -> None:
    ended = run_forked([sys.executable, "-c", USES_A_LEDGER_IN_A_FORK, str(tmp_path / "runs.db")])
    assert "LedgerFailed" in ended.stdout
    assert "was open when this process was forked; close the Corral before a fork" in ended.stdout


def test_a_full_ledger_in_memory_displaces_what_does_not_run(caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger(most_bytes=2_000_000)

    def begin(name: str, user: str, status: ExecutionStatus, size: int = 300_000) -> None:
        ledger.create(StoredExecution(name, None, user, "running", 0, 0, 1, 9e9, b"h"))
        ledger.write({name: 1}, [StoredCall(name, 1, "done", 0, bytes(size))], durably=False)
        if status != "running":
            ledger.end(name, 1, status, None, now=float(len(ledger.list(Query()))))

    begin("ended", "ann", "failed")
    begin("running", "eve", "running")
    begin("large 1", "eve", "paused")
    begin("large 2", "eve", "paused")
    begin("small", "ann", "paused", 100)
    assert sorted(each.execution_id for each in ledger.list(Query())) == ["large 1", "large 2", "running", "small"]
    begin("large 3", "eve", "paused")
    begin("new", "ann", "running", 100)
    assert sorted(each.execution_id for each in ledger.list(Query())) == [
        "large 2",
        "large 3",
        "new",
        "running",
        "small",
    ]
    assert caplog.messages == ["MemoryLedger() was full; paused executions that were displaced: 1"]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        begin("huge", "eve", "running", 2_000_000)


def test_a_full_ledger_in_memory_forgets_old_sessions_before_it_displaces_executions() -> None:
    ledger = MemoryLedger(most_bytes=2_000_000)
    now = ledger.now()
    ledger.create(StoredExecution("paused", None, "ann", "running", 0, 0, 1, 9e9, b"h"))
    ledger.end("paused", 1, "paused", None, now=now)
    for number in range(12):
        ledger.put_session(StoredSession(f"old {number}", number % 2 == 0, 1, now - 4000, bytes(100_000)))
    ledger.put_session(StoredSession("new", True, 1, now, b"new"))
    ledger.create(StoredExecution("next", None, "ann", "running", now, 0, 1, 9e9, b"h"))
    assert sorted(each.execution_id for each in ledger.list(Query())) == ["next", "paused"]
    assert ledger.session("old 0") == StoredSession("old 0", True, 1, now - 4000, None)
    assert ledger.session("old 1") is None
    assert ledger.session("new") == StoredSession("new", True, 1, now, b"new")


def test_states_of_new_sessions_do_not_fill_a_ledger_in_memory() -> None:
    ledger = MemoryLedger(most_bytes=2_000_000)
    now = ledger.now()
    ledger.create(StoredExecution("paused", None, "ann", "running", 0, 0, 1, 9e9, b"h"))
    ledger.end("paused", 1, "paused", None, now=now)
    for number in range(50):
        assert ledger.put_session(StoredSession(f"s{number}", number % 2 == 0, 1, now + number, bytes(100_000)))
    ledger.create(StoredExecution("next", None, "ann", "running", now, 0, 1, 9e9, b"h"))
    assert sorted(each.execution_id for each in ledger.list(Query())) == ["next", "paused"]
    assert ledger.session("s0") == StoredSession("s0", True, 1, now, None)
    assert ledger.session("s1") is None
    assert ledger.session("s49") == StoredSession("s49", False, 1, now + 49, bytes(100_000))

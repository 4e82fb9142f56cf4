"""Durable programs in WebAssembly: saved while they wait, and continued by another host without a replay."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import re
import sqlite3
import struct
import subprocess
import sys
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import Approved, Corral, ExecutionResult, Limits, Tool, tool
from corral.errors import LedgerDamaged
from corral.ledger import SAVED, PostgresLedger, SqliteLedger
from corral.running import journal
from corral.running.journal import Journal
from corral.sandboxes.base import SavedGuest
from corral.types import Retry
from tests.postgres import execute
from tests.running.conftest import ON_POSTGRES
from tests.running.kills import Kills

pytestmark = pytest.mark.anyio

KEYS = {"one": b"k" * 32}
SOURCE = """
class Box { #v; constructor(v) { this.#v = v; } get v() { return this.#v; } }
function* counting() { for (let n = 0; ; n++) yield n; }
const box = new Box(41), numbers = counting(), seen = new Map([["a", [1, 2]]]), id = crypto.randomUUID();
numbers.next();
console.log("before", id);
await new Promise((resolve) => setTimeout(resolve, 1));
try {
  const [a, b] = await Promise.all([tools.put({ n: 1 }), (async () => (await tools.ask({ n: 2 })) + box.v)()]);
  console.log("after", id);
  return { a, b, n: numbers.next().value, seen: [...seen], id, c: await tools.put({ n: 3 }) };
} finally { seen.clear(); }
"""


class Tools:
    def __init__(self) -> None:
        self.done: list[int] = []
        self.waits = False
        """True if `look` and `put` do not return."""
        self.changed = anyio.Event()

    @property
    def all(self) -> list[Tool]:
        async def change(n: int) -> int:
            self.done.append(n)
            self.changed.set()
            await self._wait()
            return n * 10

        @tool(read_only=True)
        async def look(n: int) -> int:
            await self._wait()
            return n * 10

        @tool(read_only=True, journal=False)
        async def secret() -> str:
            return "sesame"

        return [tool(name="put")(change), tool(name="ask", needs_approval=True)(change), look, secret]

    async def _wait(self) -> None:
        if self.waits:
            await anyio.sleep_forever()


class Host:
    """Hosts that share a ledger, one after another, and how each began: restored, or by a replay."""

    def __init__(self, sandbox: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sandbox, self._place, self.tools = sandbox, place, Tools()
        self.is_in_file = "://" not in place
        self.restored: list[bool] = []
        noted, began = self.restored, Journal.began

        def note(self: Journal, *, restored: bool) -> None:
            noted.append(restored)
            began(self, restored=restored)

        monkeypatch.setattr(Journal, "began", note)

    def corral(self, **options: Any) -> Corral:
        ledger = SqliteLedger(self._place, keys=KEYS) if self.is_in_file else PostgresLedger(self._place, keys=KEYS)
        return Corral(self.tools.all, sandbox=self._sandbox, ledger=ledger, check=False, **options)

    async def pause(self, source: str = SOURCE, **options: Any) -> ExecutionResult:
        async with self.corral(**options) as corral:
            paused = await corral.execute(source, durable=True)
        assert paused.status == "paused", paused.error
        return paused

    async def resume(self, paused: ExecutionResult) -> ExecutionResult:
        async with self.corral() as corral:
            for waiting in await corral.executions.waiting():
                decisions = {call.sequence: Retry() if call.reason else Approved() for call in waiting.calls}
                await corral.executions.settle(waiting.execution_id, decisions)
            return await corral.executions.resume(paused.execution_id)

    def saved(self) -> list[bytes]:
        """What is on record of saved guests."""
        return [row[0] for row in self.rows("SELECT body FROM calls WHERE sequence = ?", SAVED)]

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Executes a statement over tables with the names that they have in SQLite."""
        if self.is_in_file:
            with sqlite3.connect(self._place) as database:
                return database.execute(statement, values).fetchall()
        numbers = count(1)
        statement = re.sub(r"(UPDATE|FROM) ", r"\1 corral_", re.sub(r"\?", lambda _: f"${next(numbers)}", statement))
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(execute, self._place, statement, *values).result()


PIPED = pytest.mark.matrix("over the pipes of systems without a jail; the gate saves programs in a jail")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=ON_POSTGRES), pytest.param("pipes", marks=PIPED)])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    place = request.getfixturevalue("url") if request.param == "postgres" else str(tmp_path / "runs.db")
    sandbox = request.getfixturevalue("warm_plain_wasm" if request.param == "pipes" else "warm_wasm")
    return Host(sandbox, place, monkeypatch)


def expect_end(result: ExecutionResult) -> None:
    assert result.status == "succeeded", result.error
    value = result.value
    assert value == {"a": 10, "b": 61, "n": 1, "seen": [["a", [1, 2]]], "id": value["id"], "c": 30}
    assert result.console == f"before {value['id']}\nafter {value['id']}\n"
    assert [(call.name, call.output) for call in result.tool_calls] == [("put", 10), ("ask", 20), ("put", 30)]


async def test_a_saved_program_goes_on_with_another_host_without_a_replay(host: Host) -> None:
    paused = await host.pause()
    assert host.tools.done == [1]
    (saved,) = host.saved()
    assert len(saved) < 100_000
    result = await host.resume(paused)
    expect_end(result)
    assert (host.tools.done, host.restored) == ([1, 2, 3], [False, True])
    assert [call.replayed for call in result.tool_calls] == [True, False, False]
    assert len(host.saved()[0]) < 200, "what the program knew is on record after its end"
    async with host.corral() as corral:
        again = await corral.executions.replay(paused.execution_id)
    expect_end(again)


async def test_an_altered_or_exchanged_guest_is_refused_and_an_old_one_replayed(host: Host) -> None:
    source = "const a = await tools.ask({ n: 1 }); return [a, await tools.ask({ n: 2 })]"
    one, other = await host.pause(source), await host.pause(source)
    bodies = dict(host.rows("SELECT execution_id, body FROM calls WHERE sequence = ?", SAVED))
    place = "UPDATE calls SET body = ? WHERE sequence = ? AND execution_id = ?"
    body = bodies[one.execution_id]
    for wrong in (bodies[other.execution_id], body[:-1] + bytes([body[-1] ^ 1]), body[: len(body) // 2], b"", 7):
        if wrong == 7 and not host.is_in_file:
            continue  # its column takes bytes only
        host.rows(place, wrong, SAVED, one.execution_id)
        with pytest.raises(LedgerDamaged, match=f"{one.execution_id} call -1"):
            await host.resume(one)
    assert host.tools.done == []
    host.rows(place, body, SAVED, one.execution_id)
    again = await host.resume(one)
    assert (again.status, host.tools.done, host.restored[-1]) == ("paused", [1], True)
    host.rows(place, body, SAVED, one.execution_id)  # of the pause before
    result = await host.resume(one)
    assert (result.value, host.tools.done) == ([10, 20], [1, 2])
    assert not host.restored[-1]


def malformed(memory: bytes) -> dict[str, bytes]:
    """States that a server must refuse, by what is wrong with them."""
    head = struct.Struct("<32sII")
    identity, size, count = head.unpack_from(memory)
    body = zlib.decompress(memory[head.size :])

    def made(body: bytes, *, identity: bytes = identity, size: int = size, count: int = count) -> bytes:
        return head.pack(identity, size, count) + zlib.compress(body)

    swapped = body[4:8] + body[:4] + body[8:]
    outside = body[: 4 * count - 4] + struct.pack("<I", size) + body[4 * count :]
    return {
        "another image": made(body, identity=bytes(32)),
        "too large": made(body, size=1 << 31),
        "more pages than memory": made(body, count=size + 1),
        "cut off": memory[: len(memory) // 2],
        "too short": memory[:20],
        "pages in disorder": made(swapped),
        "a page of the stack": made(bytes(4) + body[4:]),
        "a page outside": made(outside),
        "more than stated": made(body + b"x"),
        "a bomb": made(body + bytes(1 << 20)),
    }


@pytest.mark.matrix("restores ten states that no guest has, as the test above restores altered ones")
async def test_a_guest_of_another_image_or_a_malformed_one_is_replaced_by_a_replay(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    packed = journal.pack_saved

    def pack(guest: SavedGuest, *rest: Any) -> bytes:
        wrong = malformed(guest.memory)
        name = [*wrong][len(names)]
        names.append(name)
        return packed(guest._replace(memory=wrong[name]), *rest)

    monkeypatch.setattr(journal, "pack_saved", pack)
    source = "const id = crypto.randomUUID(); await tools.put({ n: 1 }); return [id, await tools.ask({ n: 2 }), id]"
    async with host.corral() as corral:
        while len(names) < 10:
            paused = await corral.execute(source, durable=True)
            await corral.executions.settle(paused.execution_id, {2: Approved()})
            result = await corral.executions.resume(paused.execution_id)
            assert result.status == "succeeded", (names, result.error)
            assert result.value[0] == result.value[2]
    assert not any(host.restored), dict(zip(names, host.restored[1::2], strict=True))
    assert host.tools.done == [1, 2] * 10


async def test_a_guest_without_room_or_with_outputs_that_are_not_kept_is_not_saved(host: Host) -> None:
    paused = [await host.pause(limits=Limits(journal_bytes=5_000))]
    paused.append(await host.pause("return [await tools.secret({}), await tools.ask({ n: 2 })]"))
    assert host.saved() == []
    for each in paused:
        assert (await host.resume(each)).status == "succeeded"
    assert host.tools.done == [1, 2, 3, 2]
    assert not any(host.restored)


async def test_nothing_of_a_saved_guest_is_left_of_a_discarded_or_rolled_back_execution(host: Host) -> None:
    source = "const known = crypto.randomUUID(); return [await tools.ask({ n: 1 }), known]"
    discarded, rolled_back = await host.pause(source), await host.pause(source)
    assert all(len(each) > 1_000 for each in host.saved())
    async with host.corral() as corral:
        await corral.executions.discard(discarded.execution_id)
        await corral.executions.rollback(rolled_back.execution_id)
    assert len(host.saved()) == 2
    assert all(len(each) < 200 for each in host.saved())


async def test_a_host_that_ends_saves_the_programs_that_it_runs(host: Host) -> None:
    """Their calls in flight are made again if they only read, and uncertain otherwise."""
    host.tools.waits = True
    source = """
    const kept = [Math.random()], timer = new Promise((resolve) => setTimeout(() => resolve("timer"), 1000));
    return await Promise.all([tools.look({ n: 1 }), tools.put({ n: 2 }), timer, kept]);
    """
    ended: list[ExecutionResult] = []
    async with anyio.create_task_group() as tasks, host.corral() as corral:

        async def execute() -> None:
            ended.append(await corral.execute(source, durable=True))

        tasks.start_soon(execute)
        await host.tools.changed.wait()
    assert [each.status for each in ended] == ["cancelled"]
    assert len(host.saved()) == 1
    host.tools.waits = False
    uncertain = await host.resume(ended[0])
    assert [(call.tool, bool(call.reason)) for call in uncertain.pending] == [("put", True)]
    result = await host.resume(ended[0])
    assert result.value[:3] == [10, 20, "timer"]
    assert (host.tools.done, host.restored) == ([2, 2], [False, True, True])


@pytest.mark.matrix("kills hosts of programs in WebAssembly, as test_durable_hosts.py kills those of other engines")
def test_hosts_of_saved_programs_that_are_killed_repeat_no_change(tmp_path: Path) -> None:
    kills = Kills(tmp_path, "wasm", 4)
    kills.run(6)
    assert kills.counts["kills"] == 6, kills.counts


PROGRAM = """
const n = {number}, own = [Math.random(), crypto.randomUUID()], seen = new Set([n]);
const first = await tools.put({{ n }});
const [a, b] = await Promise.all([tools.ask({{ n: n + 10000 }}), tools.put({{ n: n + 20000 }})]);
return [n, first, a, b, own.length, [...seen]];
"""


async def stop_many(folder: str, step: str, count: int) -> None:
    """Begins programs, or continues those of the process before, and ends without closing anything."""
    effects = Path(folder) / "effects"

    def write(n: int) -> int:
        with effects.open("a") as file:
            file.write(f"{n}\n")
        return n

    @tool
    async def put(n: int) -> int:
        return write(n)

    @tool(needs_approval=True)
    async def ask(n: int) -> int:
        return write(n)

    corral = await Corral([put, ask], sandbox="wasm", ledger=SqliteLedger(f"{folder}/runs.db", keys=KEYS)).__aenter__()
    limiter, counts = anyio.CapacityLimiter(16), Counter[bool]()
    began = Journal.began

    def note(self: Journal, *, restored: bool) -> None:
        counts[restored] += 1
        began(self, restored=restored)

    Journal.began = note

    async def run(number: int) -> None:
        async with limiter:
            name = f"stopped-{number}"
            if step == "begin":
                result = await corral.execute(
                    PROGRAM.format(number=number), durable=True, execution_id=name, check=False
                )
                assert result.status == "paused", result
                return
            await corral.executions.settle(name, {call.sequence: Approved() for call in waiting[name]})
            result = await corral.executions.resume(name)
            assert result.value == [number, number, number + 10_000, number + 20_000, 2, [number]], result

    waiting = {each.execution_id: each.calls for each in await corral.executions.waiting()}
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(run, number)
    print(json.dumps([counts[True], counts[False]]), flush=True)  # noqa: T201 - for the parent


@pytest.mark.matrix("resumes a thousand programs, as the tests above resume one")
def test_a_thousand_programs_go_on_in_another_process(tmp_path: Path) -> None:
    count = 1000
    counts: dict[str, list[int]] = {}
    for step in ("begin", "continue"):
        program = f"import anyio, os, tests.running.test_stopped as t; anyio.run(t.stop_many, {str(tmp_path)!r}, {step!r}, {count}); os._exit(0)"
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
        counts[step] = json.loads(done.stdout)
    assert counts == {"begin": [0, count], "continue": [count, 0]}
    effects = Counter(map(int, (tmp_path / "effects").read_text().split()))
    assert effects == Counter([*range(count), *range(10_000, 10_000 + count), *range(20_000, 20_000 + count)])

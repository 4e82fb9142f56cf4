"""Durable executions: what hosts can do with them besides pausing and resuming."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import ApprovalRequest, Approved, ConfigError, Corral, Denied, ExecutionContext, Later, Limits, tool
from corral.errors import DecisionDenied, HeldElsewhere, ToolDefinitionError
from corral.events import Event, ExecutionPaused, ExecutionResumed
from corral.ledger import MemoryLedger, SqliteLedger
from corral.running.journal import Journal
from corral.sandboxes import DenoSandbox
from corral.types import Language, Settled
from tests.running.test_durable import ANN, KEYS, World, replayed

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def corral(world: World, warm: Any) -> AsyncIterator[Corral]:
    async with world.corral(warm, MemoryLedger()) as corral:
        yield corral


# --- lost hosts


async def test_a_host_resumes_what_others_have_lost(
    world: World, warm_deno: DenoSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = MemoryLedger()
    async with world.corral(warm_deno, ledger) as corral:
        world.stops = "after"
        reading = await world.crash(corral, "return await tools.look({ n: 1 })")
        world.stops = "before"
        changing = await world.crash(corral, "return await tools.put({ n: 2 })")
        waiting = await corral.execute("return await tools.pay({ n: 3 })", durable=True)
    async with world.corral(warm_deno, ledger, tools=[]) as without_tools:
        with caplog.at_level(logging.WARNING, "corral.ledger"):
            assert await without_tools.executions.resume_lost() == ()
            assert await without_tools.executions.resume_lost() == ()
        assert len(caplog.messages) == 2, "each once"
        assert "has lost its host and cannot be resumed here: this Corral has no tool " in caplog.text
    async with world.corral(warm_deno, ledger) as corral, world.corral(warm_deno, ledger) as other:
        results = list[Any]()

        async def resume(each: Corral) -> None:
            results.extend(await each.executions.resume_lost(at_once=1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume, corral)
            tasks.start_soon(resume, other)
        assert {each.execution_id: (each.status, each.value) for each in results} == {
            reading: ("succeeded", 10),
            changing: ("paused", None),
        }
        assert len(results) == 2, "claims decide who gets which"
        assert await corral.executions.resume_lost() == (), "neither what is paused nor what has ended"
        await corral.executions.settle(changing, {1: Settled(7)})
        assert (await corral.executions.resume(changing)).value == 7
        assert (await corral.executions.get(waiting.execution_id)).status == "paused"
    assert world.done == [1, 1]


async def test_what_another_host_has_resumed_meanwhile_is_left_to_it(world: World, warm_deno: DenoSandbox) -> None:
    started, go, ledger = anyio.Event(), anyio.Event(), MemoryLedger()

    @tool(read_only=True)
    async def look(n: int) -> int:
        started.set()
        await go.wait()
        return n

    async with world.corral(warm_deno, ledger) as corral:
        world.stops = "before"
        reading = await world.crash(corral, "return await tools.look({ n: 1 })")
        world.stops = "before"
        changing = await world.crash(corral, "return await tools.put({ n: 2 })")
    tools = [look, *(each for each in world.tools if each.name != "look")]
    results = list[Any]()
    async with world.corral(warm_deno, ledger, tools=tools) as slow, world.corral(warm_deno, ledger) as other:

        async def resume(each: Corral) -> None:
            results.extend(await each.executions.resume_lost(at_once=1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume, slow)
            await started.wait()
            await resume(other)
            go.set()
    assert [(each.execution_id, each.status) for each in results] == [(changing, "paused"), (reading, "succeeded")]


async def test_a_program_that_its_hosts_die_of_is_not_resumed_for_ever(
    world: World, warm_deno: DenoSandbox, tmp_path: Path
) -> None:
    async with world.corral(warm_deno, SqliteLedger(tmp_path / "runs.db", keys=KEYS)) as corral:
        world.stops = "after"
        name = await world.crash(corral, "return await tools.look({ n: 1 })")
        with sqlite3.connect(tmp_path / "runs.db") as database:
            database.execute("UPDATE executions SET claim = 20")
        assert await corral.executions.resume_lost() == ()
        assert (await corral.executions.resume(name)).value == 10


async def test_what_is_discarded_is_not_resumed(world: World, warm_deno: DenoSandbox) -> None:
    async with world.corral(warm_deno, MemoryLedger()) as corral:
        paused = await corral.execute("console.log(1); return await tools.pay({ n: 1 })", durable=True)
        world.stops = "before"
        lost = await world.crash(corral, "return await tools.look({ n: 1 })")
        for name, console in ((paused.execution_id, "1\n"), (lost, "")):
            await corral.executions.discard(name)
            record = await corral.executions.get(name)
            assert (record.status, record.pending, record.result and record.result.console) == (
                "cancelled",
                (),
                console,
            )
            with pytest.raises(HeldElsewhere, match="has ended: cancelled"):
                await corral.executions.resume(name)
        assert await corral.executions.waiting() == await corral.executions.resume_lost() == ()


async def test_an_execution_that_was_rolled_back_before_it_had_a_result_can_be_read(
    world: World, warm_deno: DenoSandbox
) -> None:
    async with world.corral(warm_deno, MemoryLedger()) as corral:
        world.stops = "before"
        lost = await world.crash(corral, "return await tools.put({ n: 1 })")
        await corral.executions.rollback(lost)
        record = await corral.executions.get(lost)
        assert (record.status, record.result) == ("rolled_back", None)


# --- who decides


def _not_one_s_own(call: ApprovalRequest, person: ExecutionContext) -> bool:
    same_place = person.organization_id in (None, call.context.organization_id)
    return same_place and person.user_id != call.context.user_id


async def test_who_may_decide_is_asked_before_anything_is_decided(world: World, warm_deno: DenoSandbox) -> None:
    async with world.corral(warm_deno, MemoryLedger(), may_decide=_not_one_s_own) as corral:
        source = "return await Promise.all([tools.pay({ n: 1 }), tools.pay({ n: 2 })])"
        name = (await corral.execute(source, durable=True, context=ANN)).execution_id
        both = {1: Approved(by="the boss"), 2: Approved()}
        refused = [ANN, ExecutionContext(user_id="eve", organization_id="other"), "ann"]
        for person in refused:
            with pytest.raises(
                DecisionDenied, match=r"may not decide on call [12], pay, of execution-\w+: Corral\(may"
            ):
                await corral.executions.settle(name, both if person != "ann" else {2: Approved()}, by=person)
        assert len((await corral.executions.get(name)).decided) == 0
        bob = ExecutionContext(user_id="bob", organization_id="acme")
        assert await corral.executions.settle(name, both, by=bob) == {1, 2}
        assert (await corral.executions.resume(name)).value == [10, 20]
        calls = (await corral.executions.replay(name)).tool_calls
        assert len(calls) == 2


def _later(_: ApprovalRequest) -> Later:
    return Later()


async def test_it_is_asked_about_calls_that_wait_in_this_process_too(world: World, warm_deno: DenoSandbox) -> None:
    async def never(call: ApprovalRequest, person: ExecutionContext) -> Any:
        return person.user_id == "bob" and {"not": "True"}

    async with (
        world.corral(warm_deno, MemoryLedger(), may_decide=never, approve=_later) as corral,
        corral.start("return await tools.pay({ n: 1 })") as run,
    ):
        async for event in run:
            if event.type == "approval_requested":
                break
        for person in ("ann", "bob"):
            with pytest.raises(DecisionDenied, match=f"{person} may not decide"):
                await corral.executions.settle(run.execution_id, {1: Denied()}, by=person)
        run.cancel()


# --- outputs that are not kept


READING: dict[Language, str] = {
    "typescript": "const a = await tools.peek({}); await tools.pay({ n: 1 }); return [a.length, await tools.pay({ n: 2 })]",
    "python": "a = await tools.peek()\nawait tools.pay(n=1)\n[len(a), await tools.pay(n=2)]",
}


@pytest.mark.parametrize("language", READING)
async def test_a_tool_without_a_journal_runs_again_and_its_output_is_not_on_record(
    world: World, warm: Any, language: Language, tmp_path: Path
) -> None:
    @tool(read_only=True, journal=False)
    async def peek() -> str:
        world.done.append("peek")
        return "a secret"

    async with world.corral(warm, SqliteLedger(tmp_path / "runs.db", keys={}), tools=[*world.tools, peek]) as corral:
        result = await corral.execute(READING[language], language=language, durable=True)
        name = result.execution_id
        for _ in range(2):
            assert result.status == "paused", result
            await corral.executions.settle(name, {each.sequence: Approved() for each in result.pending})
            result = await corral.executions.resume(name)
        assert (result.value, world.done) == ([8, 20], ["peek", "peek", 1, "peek", 2])
        assert replayed(result) == [2]
        part = await corral.executions.replay(name)
        assert (part.status, part.pending, world.done[-1]) == ("paused", (), 2), "no tool runs in a replay"
    assert b"pay" in (tmp_path / "runs.db").read_bytes()
    assert b"a secret" not in (tmp_path / "runs.db").read_bytes()


def test_only_a_tool_that_reads_can_be_without_a_journal() -> None:
    for settings in ({}, {"idempotent": True}, {"read_only": True, "needs_approval": True}):
        with pytest.raises(ToolDefinitionError, match="journal=False lets it run again, so it needs read_only=True"):

            @tool(journal=False, **settings)  # type: ignore[arg-type]
            async def peek() -> None: ...


# --- events, dry runs, and what is closed


async def test_events_tell_of_pauses_and_of_going_on(world: World, corral: Corral) -> None:
    events: list[Event] = []
    source = "await tools.put({ n: 1 }); console.log(1); await tools.pay({ n: 2 })"
    name = (await corral.execute(source, durable=True, on_event=events.append)).execution_id
    paused = events[-2]
    assert isinstance(paused, ExecutionPaused)
    assert [(each.sequence, each.tool) for each in paused.pending] == [(2, "pay")]
    assert paused.to_dict()["pending"][0]["input"] == {"n": 2}
    assert "execution_resumed" not in [each.type for each in events]
    events.clear()
    await corral.executions.settle(name, {2: Approved()})
    await corral.executions.resume(name, on_event=events.append)
    resumed = events[1]
    assert isinstance(resumed, ExecutionResumed)
    assert (resumed.replies, [each.type for each in events]) == (
        1,
        [
            "execution_started",
            "execution_resumed",
            "tool_call_started",
            "approval_decided",
            "tool_call_finished",
            "execution_finished",
        ],
    )
    events.clear()
    await corral.executions.replay(name, on_event=events.append)
    assert [each.type for each in events] == ["execution_started", "execution_finished"]


async def test_a_dry_run_ends_at_the_calls_that_are_not_on_record(world: World, corral: Corral) -> None:
    first = await corral.execute(
        "const a = await tools.look({ n: 1 }); await tools.put({ n: a }); throw 1", durable=True
    )
    corrected = "const a = await tools.look({ n: 1 }); await tools.put({ n: a }); return await tools.pay({ n: a + 1 })"
    dry = await corral.executions.replay(first.execution_id, source=corrected)
    assert (dry.status, replayed(dry), [(each.tool, each.input) for each in dry.pending]) == (
        "paused",
        [1, 2],
        [("pay", {"n": 11})],
    )
    both = "await Promise.all([tools.look({ n: 1 }), tools.put({ n: 7 }), tools.put({ n: 8 })])"
    dry = await corral.executions.replay(first.execution_id, source=both)
    assert (replayed(dry), [each.input["n"] for each in dry.pending]) == ([1], [7, 8])
    dry = await corral.executions.replay(first.execution_id, source="return await tools.look({ n: 1 }) + 1")
    assert (dry.status, dry.value, dry.pending) == ("succeeded", 11, ())
    source = "tools.put({ n: 9 }); return await tools.look({ n: 1 })"
    dry = await corral.executions.replay(first.execution_id, source=source)
    assert (dry.status, [each.tool for each in dry.pending]) == ("paused", ["put", "look"])
    assert world.done == [1, 10]


async def test_a_dry_run_ends_though_its_guest_was_asked_before_a_new_call_was_taken(
    world: World, warm_deno: DenoSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    peeked, asked = anyio.Event(), anyio.Event()
    take, answer = Journal.idle, Journal._answer  # pyright: ignore[reportPrivateUsage]

    @tool(read_only=True)
    async def peek(n: int) -> int:
        peeked.set()
        return n

    async def approve(_: ApprovalRequest) -> bool:
        await peeked.wait()
        return True

    def idle(journal: Journal, state: Any) -> None:
        take(journal, state)
        asked.set()

    async def late(journal: Journal, handler: Any, request: Any) -> Any:
        if request.sequence == 2:
            await asked.wait()
        return await answer(journal, handler, request)

    options: Any = {"tools": [*world.tools, peek], "approve": approve, "limits": Limits(wall_seconds=10)}
    source = "return await Promise.all([tools.pay({ n: 1 }), tools.peek({ n: 2 })])"
    async with world.corral(warm_deno, MemoryLedger(), **options) as corral:
        first = await corral.execute(source, durable=True)
        assert first.value == [10, 2]
        monkeypatch.setattr(Journal, "idle", idle)
        monkeypatch.setattr(Journal, "_answer", late)
        dry = await corral.executions.replay(first.execution_id, source=source.replace("n: 2", "n: 3"))
    assert (dry.status, [each.tool for each in dry.pending]) == ("paused", ["peek"])


async def test_a_closed_corral_does_not_open_its_ledger_again(world: World, warm_deno: DenoSandbox) -> None:
    async with world.corral(warm_deno, MemoryLedger()) as corral:
        await corral.execute("return 1", durable=True)
    for verb in (corral.executions.list, corral.executions.waiting, corral.executions.resume_lost):
        with pytest.raises(ConfigError, match="this Corral is closed; `async with corral` opens it again"):
            await verb()
    async with corral:
        assert len(await corral.executions.list()) == 1


async def test_calls_of_a_cancelled_resumption_are_not_part_of_the_pause_before(warm_deno: DenoSandbox) -> None:
    scope, ran = anyio.CancelScope(), list[int]()

    @tool(needs_approval=True)
    async def pay() -> None:
        """Pays."""

    @tool
    async def put(n: int) -> int:
        ran.append(n)
        if len(ran) == 1:
            scope.cancel()
            await anyio.sleep_forever()
        return n

    source = "await tools.pay(); return await tools.put({ n: 1 })"
    async with Corral([pay, put], sandbox=warm_deno, ledger=MemoryLedger(), check=False) as corral:
        name = (await corral.execute(source, durable=True)).execution_id
        await corral.executions.settle(name, {1: Approved()})
        with scope:
            await corral.executions.resume(name)
        lost = await corral.executions.get(name)
        assert (lost.status, lost.pauses) == ("running", 1), "an answer to that pause would decide on the new call"
        assert (await corral.executions.resume(name)).pending[0].reason is not None
        paused = await corral.executions.get(name)
        assert (paused.status, paused.pauses, ran) == ("paused", 2, [1])

"""Durable executions: what pauses, what is resumed, and what happens after a crash."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from typing_extensions import override

from corral import (
    ApprovalRequest,
    Approved,
    ConfigError,
    Corral,
    Denied,
    ExecutionContext,
    ExecutionResult,
    Limits,
    Tool,
    ToolCall,
    ToolError,
    define_tool,
    tool,
)
from corral.errors import AccessDenied, HeldElsewhere, LedgerDamaged, LedgerFailed
from corral.events import Event
from corral.guest import encode_value
from corral.ledger import Ledger, MemoryLedger, Records, SqliteLedger, StoredExecution
from corral.sandboxes import DenoSandbox
from corral.sessions import Mount
from corral.types import Language, Retry, Settled
from tests.running.conftest import Store
from tests.work import calls_counted

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann", organization_id="acme")
KEYS = {"one": b"k" * 32}


class World:
    """Tools that note what they did, and can stop before or after they do it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.keys: list[str] = []
        self.stops: str | None = None
        """before or after: a call stops there, as one whose host is lost."""
        self.stopped = anyio.Event()

    async def _do(self, n: int, call: ToolCall) -> int:
        self.keys.append(call.idempotency_key)
        if self.stops == "before":
            await self._stop()
        self.done.append(n)
        if self.stops == "after":
            await self._stop()
        return n * 10

    async def _stop(self) -> None:
        self.stopped.set()
        await anyio.sleep_forever()

    @property
    def tools(self) -> list[Tool]:
        @tool
        async def put(n: int, call: ToolCall) -> int:
            return await self._do(n, call)

        @tool(idempotent=True)
        async def again(n: int, call: ToolCall) -> int:
            return await self._do(n, call)

        @tool(read_only=True)
        async def look(n: int, call: ToolCall) -> int:
            return await self._do(n, call)

        @tool(needs_approval=True)
        async def pay(n: int, call: ToolCall) -> int:
            """Sends money."""
            return await self._do(n, call)

        @tool(stream=True, read_only=True)
        async def count(to: int) -> AsyncIterator[int]:
            self.done.append("count")
            for n in range(to):
                yield n

        @tool
        async def fail(text: str) -> None:
            self.done.append(text)
            raise ToolError(text)

        return [put, again, look, pay, count, fail]

    @asynccontextmanager
    async def corral(self, sandbox: Any, ledger: Ledger, **options: Any) -> AsyncGenerator[Corral]:
        options = {"tools": self.tools, "check": False, **options}
        async with Corral(sandbox=sandbox, ledger=ledger, **options) as corral:
            yield corral

    async def crash(self, corral: Corral, source: str, **options: Any) -> str:
        """Runs a program until a call stops, and loses its host. Returns its id."""
        ids: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await corral.execute(
                    source, durable=True, context=ANN, on_event=lambda event: ids.append(event.execution_id), **options
                )

            tasks.start_soon(run)
            await self.stopped.wait()
            tasks.cancel_scope.cancel()
        self.stops, self.stopped = None, anyio.Event()
        return ids[0]


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def corral(world: World, warm: Any, ledger: Ledger) -> AsyncIterator[Corral]:
    async with world.corral(warm, ledger) as corral:
        yield corral


def by_ann(_: ApprovalRequest) -> Approved:
    return Approved(by="ann")


def replayed(result: ExecutionResult) -> list[int]:
    return [call.sequence for call in result.tool_calls if call.replayed]


# --- pauses


PAYING: Mapping[Language, str] = {
    "typescript": """
        const one = await tools.put({ n: 1 });
        console.log(Math.random(), Date.now(), crypto.randomUUID());
        const timer = new Promise((resolve) => setTimeout(() => resolve("slow"), 5));
        const paid = await Promise.all([tools.pay({ n: 2 }), tools.pay({ n: 3 }), timer]);
        console.log(Math.random() !== Date.now());
        return [one, paid, (await tools.look({ n: 4 }))]
    """,
    "python": """
import asyncio, random, time, uuid
one = await tools.put(n=1)
print(random.random(), time.time(), uuid.uuid4())
paid = await asyncio.gather(tools.pay(n=2), tools.pay(n=3), asyncio.sleep(0.005, "slow"))
print(random.random() != time.time())
[one, paid, await tools.look(n=4)]
""",
}


@pytest.mark.parametrize("language", PAYING)
async def test_a_program_pauses_for_all_its_approvals_and_goes_on(
    world: World, corral: Corral, language: Language
) -> None:
    events: list[Event] = []
    paused = await corral.execute(PAYING[language], language=language, durable=True, context=ANN)
    assert (paused.status, paused.error, paused.value) == ("paused", None, None)
    assert [(each.sequence, each.tool, each.input, each.description) for each in paused.pending] == [
        (paused.pending[0].sequence, "pay", {"n": 2}, "Sends money."),
        (paused.pending[1].sequence, "pay", {"n": 3}, "Sends money."),
    ]
    assert world.done == [1]
    [waiting] = await corral.executions.waiting(organization_id="acme")
    assert (waiting.execution_id, waiting.status, waiting.context, waiting.calls) == (
        paused.execution_id,
        "paused",
        ANN,
        paused.pending,
    )
    assert await corral.executions.waiting(user_id="bob") == ()
    numbers = [each.sequence for each in paused.pending]
    decisions = {numbers[0]: Approved(), numbers[1]: Denied("too much", by="bob"), 99: Approved()}
    assert await corral.executions.settle(paused.execution_id, decisions, by="ann") == {*numbers}
    assert await corral.executions.settle(paused.execution_id, {numbers[1]: Approved()}) == frozenset()
    failed = await corral.executions.resume(paused.execution_id, on_event=events.append)
    assert failed.error is not None
    assert "pay was not approved: too much" in failed.error.message
    assert world.done == [1, 2]
    assert failed.console.startswith(paused.console)
    assert [each.type for each in events if each.type in ("tool_call_started", "console_output")].count(
        "console_output"
    ) < 2
    with pytest.raises(HeldElsewhere, match="has ended: failed"):
        await corral.executions.resume(paused.execution_id)
    again = await corral.executions.replay(paused.execution_id)
    assert (again.error, again.console, world.done) == (failed.error, failed.console, [1, 2])


@pytest.mark.parametrize("language", PAYING)
async def test_a_program_that_was_paused_has_the_value_that_it_would_have_had(
    world: World, corral: Corral, language: Language
) -> None:
    result = await corral.execute(PAYING[language], language=language, durable=True)
    while result.status == "paused":
        await corral.executions.settle(result.execution_id, {result.pending[0].sequence: Approved()}, by="ann")
        result = await corral.executions.resume(result.execution_id)
    assert result.value == [10, [20, 30, "slow"], 40]
    assert world.done == [1, 2, 3, 4]
    assert [call.name for call in result.tool_calls] == ["put", "pay", "pay", "look"]
    again = await corral.executions.replay(result.execution_id)
    assert (again.value, again.console, again.status) == (result.value, result.console, "succeeded")
    assert world.done == [1, 2, 3, 4]
    assert all(call.replayed for call in again.tool_calls)
    record = await corral.executions.get(result.execution_id)
    assert (record.status, record.value, record.pending) == ("succeeded", result.value, ())


async def test_a_decision_in_time_needs_no_pause_and_is_on_record(world: World, warm_deno: DenoSandbox) -> None:
    ledger = MemoryLedger()
    async with world.corral(warm_deno, ledger, approve=by_ann) as corral:
        world.stops = "after"
        name = await world.crash(corral, "return await tools.pay({ n: 1 })")
        [recorded] = (await Records(ledger).load(name)).decisions.values()
        assert recorded == Approved(by="ann")


async def test_a_decision_is_asked_anew_if_the_tool_has_changed(world: World, warm_deno: DenoSandbox) -> None:
    ledger = MemoryLedger()
    async with world.corral(warm_deno, ledger) as corral:
        paused = await corral.execute("return await tools.pay({ n: 1 })", durable=True)
        await corral.executions.settle(paused.execution_id, {1: Approved()})

    async def pay(input: Mapping[str, Any]) -> int:
        world.done.append(input)
        return 1

    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "number"}}}
    changed = define_tool(name="pay", description="", input_schema=schema, execute=pay, needs_approval=True)
    async with world.corral(warm_deno, ledger, tools=[changed]) as corral:
        again = await corral.executions.resume(paused.execution_id)
        assert (again.status, world.done) == ("paused", [])
        await corral.executions.settle(paused.execution_id, {1: Approved()})
        assert (await corral.executions.resume(paused.execution_id)).value == 1
    assert world.done == [{"n": 1}]


async def test_a_tool_that_is_gone_is_needed_for_new_calls_only(world: World, warm_deno: DenoSandbox) -> None:
    ledger = MemoryLedger()
    async with world.corral(warm_deno, ledger) as corral:
        source = "const a = await tools.put({ n: 1 }); return [a, await tools.pay({ n: 2 }).catch((e) => e.code)]"
        paused = await corral.execute(source, durable=True)
    async with world.corral(warm_deno, ledger, tools=[]) as corral:
        assert (await corral.executions.resume(paused.execution_id)).value == [10, "tool_not_found"]


async def test_streams_and_errors_replay(world: World, corral: Corral) -> None:
    source = """
        const items = []
        for await (const n of tools.count({ to: 3 })) items.push(n)
        for await (const n of tools.count({ to: 0 })) items.push(n)
        const error = await tools.fail({ text: "no" }).catch((e) => [e.code, e.message])
        return [items, error, await tools.pay({ n: 5 })]
    """
    paused = await corral.execute(source, durable=True)
    assert paused.status == "paused", paused
    await corral.executions.settle(paused.execution_id, {4: Approved()})
    result = await corral.executions.resume(paused.execution_id)
    assert result.value == [[0, 1, 2], ["tool_error", "no"], 50], result
    assert world.done == ["count", "count", "no", 5]


async def test_a_call_that_lost_a_race_does_not_pause_its_program(world: World, corral: Corral) -> None:
    result = await corral.execute("return await Promise.race([tools.pay({ n: 1 }), tools.put({ n: 2 })])", durable=True)
    assert (result.status, result.value, result.pending) == ("succeeded", 20, ())
    assert await corral.executions.waiting() == ()
    assert (await corral.executions.get(result.execution_id)).pending == ()
    assert (await corral.executions.replay(result.execution_id)).value == 20
    assert world.done == [2]


async def test_a_call_that_is_not_awaited_pauses_its_program_at_the_end(world: World, corral: Corral) -> None:
    paused = await corral.execute("tools.pay({ n: 1 }); await tools.put({ n: 2 }); return 'done'", durable=True)
    assert (paused.status, paused.value) == ("paused", None)
    await corral.executions.settle(paused.execution_id, {1: Approved()})
    assert (await corral.executions.resume(paused.execution_id)).value == "done"
    assert world.done == [2, 1]


async def test_a_call_whose_input_is_encoded_in_a_thread_is_not_overlooked(
    world: World, warm_deno: DenoSandbox
) -> None:
    @tool
    async def total(rows: list[int]) -> int:
        return sum(rows)

    source = """
        const rows = Array.from({ length: 20_000 }, () => 1)
        return await Promise.all([tools.total({ rows }), tools.pay({ n: 1 }), tools.total({ rows: [...rows, 5] })])
    """
    async with world.corral(warm_deno, MemoryLedger(), tools=[*world.tools, total]) as corral:
        paused = await corral.execute(source, durable=True)
        assert (paused.status, len(paused.pending)) == ("paused", 1)
        await corral.executions.settle(paused.execution_id, {2: Approved()})
        result = await corral.executions.resume(paused.execution_id)
        assert result.value == [20_000, 10, 20_005]
        assert replayed(result) == [1, 3]
        assert (await corral.executions.replay(paused.execution_id)).value == result.value


# --- who resumes


async def test_only_its_user_resumes_an_execution(world: World, corral: Corral) -> None:
    paused = await corral.execute("return await tools.pay({ n: 1 })", durable=True, context=ANN)
    for other in (ExecutionContext(user_id="bob", organization_id="acme"), ExecutionContext(user_id="ann")):
        with pytest.raises(AccessDenied, match="belongs to another user or organization"):
            await corral.executions.resume(paused.execution_id, context=other)
    await corral.executions.settle(paused.execution_id, {1: Approved()})
    context = ANN.model_copy(update={"session_id": "another"})
    assert (await corral.executions.resume(paused.execution_id, context=context)).value == 10


async def test_of_two_hosts_one_resumes(world: World, warm_deno: DenoSandbox, store: Store) -> None:
    async with world.corral(warm_deno, store.ledger()) as one, world.corral(warm_deno, store.ledger()) as two:
        paused = await one.execute("return await tools.pay({ n: 1 })", durable=True)
        await two.executions.settle(paused.execution_id, {1: Approved()})
        outcomes: list[object] = []

        async def resume(corral: Corral) -> None:
            try:
                outcomes.append((await corral.executions.resume(paused.execution_id)).value)
            except HeldElsewhere as error:
                outcomes.append(error.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume, one)
            tasks.start_soon(resume, two)
        assert sorted(outcomes, key=str) == [10, "held_elsewhere"]
        assert world.done == [1]


async def test_a_host_that_was_slow_ends_and_changes_nothing_more(
    world: World, warm_deno: DenoSandbox, store: Store
) -> None:
    go_on = anyio.Event()

    @tool(read_only=True)
    async def wait() -> None:
        world.stopped.set()
        await go_on.wait()

    source = "await tools.wait(); return await tools.put({ n: 1 })"
    results, resumed = list[ExecutionResult](), list[ExecutionResult]()
    async with (
        world.corral(warm_deno, store.ledger(), tools=[*world.tools, wait]) as slow,
        world.corral(warm_deno, store.ledger(), tools=[*world.tools, wait]) as quick,
        anyio.create_task_group() as tasks,
    ):

        async def run() -> None:
            results.append(await slow.execute(source, durable=True))

        tasks.start_soon(run)
        await world.stopped.wait()
        [execution] = await quick.executions.list()
        with pytest.raises(HeldElsewhere, match="runs on another host"):
            await quick.executions.resume(execution.execution_id)
        await store.expire()
        world.stopped = anyio.Event()

        async def resume() -> None:
            resumed.append(await quick.executions.resume(execution.execution_id))

        tasks.start_soon(resume)
        await world.stopped.wait()
        go_on.set()
    assert [each.value for each in resumed] == [10]
    assert [each.error and each.error.code for each in results] == ["held_elsewhere"]
    assert world.done == [1]


# --- the same id again

FAILING = """
    console.log("1\ud800"); console.warn("two")
    const picture = await tools.draw({}); await tools.put({ n: 1 })
    tools.look({ n: 3 })
    if (process.env.MODE === "fail") throw new Error("oh\udc00", { cause: 7 })
    return { picture, when: new Date(0), big: 2n ** 70n, none: undefined }
"""


@pytest.mark.parametrize("mode", ["fail", "return"])
async def test_an_id_that_has_ended_gives_its_result_and_nothing_runs(
    world: World, warm_deno: DenoSandbox, tmp_path: Path, mode: str
) -> None:
    @tool(read_only=True)
    async def draw() -> bytes:
        return b"\x89PNG\r\n\x1a\n" + bytes(20)

    options: dict[str, Any] = {"durable": True, "context": ANN, "env": {"MODE": mode}, "execution_id": "job:1"}
    tools = [*world.tools, draw]
    async with world.corral(warm_deno, SqliteLedger(tmp_path / "runs.db", keys=KEYS), tools=tools) as corral:
        first = await corral.execute(FAILING, **options)
    done = [*world.done]
    events: list[Event] = []
    async with world.corral(warm_deno, SqliteLedger(tmp_path / "runs.db", keys=KEYS), tools=tools) as corral:
        again = await corral.execute(FAILING, **options, on_event=events.append)
        async with corral.start(FAILING, **options) as run:
            assert (run.execution_id, [event async for event in run]) == ("job:1", [])
            assert (await run.result()).status == again.status
        assert (world.done, events) == (done, [])
        for call, record in zip(first.tool_calls, again.tool_calls, strict=True):
            assert (record.input, record.output, record.state) == (call.input, call.output, call.state)
        assert again.images == first.images
        assert len(again.images) == (mode == "return")
        assert again.model_text() == first.model_text()
        assert {**again.to_dict(), "tool_calls": 0} == {**first.to_dict(), "tool_calls": 0}
        assert (again.containment, again.containment and again.containment.strength) == ("namespaces", "kernel")


async def test_an_id_that_is_paused_goes_on_once_all_is_decided(world: World, corral: Corral) -> None:
    source = "console.log(1); return [await tools.put({ n: 1 }), await tools.pay({ n: 2 })]"
    first = await corral.execute(source, durable=True, execution_id="a")
    again = await corral.execute(source, durable=True, execution_id="a")
    assert (again.status, again.pending, again.console) == ("paused", first.pending, "1\n")
    assert [call.state for call in again.tool_calls] == ["returned", "waiting"]
    await corral.executions.settle("a", {2: Approved()})
    other = ExecutionContext(scopes={"more"})
    result = await corral.execute(source, durable=True, execution_id="a", context=other)
    assert (result.value, world.done) == ([10, 20], [1, 2])
    assert (await corral.execute(source, durable=True, execution_id="a")).value == [10, 20]


async def test_an_id_whose_host_is_lost_goes_on_and_one_that_runs_is_held(world: World, corral: Corral) -> None:
    source = "return await tools.look({ n: 1 })"
    world.stops = "after"

    async def execute() -> None:
        await corral.execute(source, durable=True, context=ANN, execution_id="a")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execute)
        await world.stopped.wait()
        with pytest.raises(HeldElsewhere, match="a runs on another host"):
            await execute()
        with pytest.raises(ConfigError, match="after='a' still runs; wait for its end, or cancel it"):
            await corral.execute(source, after="a", context=ANN)
        tasks.cancel_scope.cancel()
    world.stops = None
    assert (await corral.execute(source, durable=True, context=ANN, execution_id="a")).value == 10


async def test_of_two_that_begin_an_id_at_once_one_is_refused(world: World, corral: Corral) -> None:
    outcomes: list[object] = []

    async def execute() -> None:
        try:
            outcomes.append(
                (await corral.execute("return await tools.put({ n: 1 })", durable=True, execution_id="a")).value
            )
        except HeldElsewhere as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execute)
        tasks.start_soon(execute)
    assert (sorted(outcomes, key=str), world.done) == ([10, "held_elsewhere"], [1])


async def test_an_id_is_for_one_request(world: World, corral: Corral) -> None:
    options: dict[str, Any] = {"durable": True, "context": ANN, "execution_id": "a"}
    await corral.execute("return 1", **options)
    others: list[tuple[dict[str, Any], str]] = [
        ({"context": ExecutionContext(user_id="bob", organization_id="acme")}, "user or organization"),
        ({"language": "python"}, "language"),
        ({"env": {"A": "1"}, "limits": Limits(calls=3)}, "limits and env"),
    ]
    for changes, named in others:
        with pytest.raises(ConfigError, match=f"belongs to an earlier request with another {named}; use a new id"):
            await corral.execute("return 1", **options | changes)
    with pytest.raises(ConfigError, match="another source"):
        await corral.execute("return 2", **options)
    with pytest.raises(ConfigError, match="execution_id is for durable executions; add durable=True"):
        await corral.execute("return 1", execution_id="b")
    for name in ("", "-a", "a/b", "a\n", "é", "a" * 129):
        with pytest.raises(ConfigError, match="execution_id: Value error, use 1 to 128 letters, digits and"):
            await corral.execute("return 1", durable=True, execution_id=name)


# --- after a crash


@pytest.mark.parametrize("language", ["typescript", "python"])
@pytest.mark.parametrize("stops", ["before", "after"])
async def test_a_change_that_had_started_waits_for_a_person(
    world: World, corral: Corral, language: Language, stops: str
) -> None:
    source = {
        "typescript": "const a = await tools.look({ n: 1 }); return [a, await tools.put({ n: 2 })]",
        "python": "a = await tools.look(n=1)\n[a, await tools.put(n=2)]",
    }[language]
    name = await crashed_at(world, corral, source, "put", stops, language=language)
    paused = await corral.executions.resume(name)
    assert paused.status == "paused"
    [call] = paused.pending
    assert (call.tool, call.input, call.sequence) == ("put", {"n": 2}, 2)
    assert call.reason == "it had started when its host was lost, so it may have taken effect"
    with pytest.raises(ConfigError, match="is uncertain: decide by one of Retry, Settled, Denied"):
        await corral.executions.settle(name, {2: Approved()})
    done = [*world.done]
    assert await corral.executions.settle(name, {2: Retry(by="ann") if stops == "before" else Settled(20)}) == {2}
    result = await corral.executions.resume(name)
    assert result.value == [10, 20]
    assert world.done == ([1, 2] if stops == "before" else done)
    assert {*world.keys} == {f"{name}:1", f"{name}:2"}


async def crashed_at(world: World, corral: Corral, source: str, name: str, stops: str, **options: Any) -> str:
    """Loses the host of a program in a call of one tool. Returns the execution's id."""

    def stop(event: Event) -> None:
        if event.type == "tool_call_started" and event.call.name == name:
            world.stops = stops

    observation = corral.observe(stop)
    with observation:
        return await world.crash(corral, source, **options)


async def test_an_uncertain_call_can_be_denied_and_is_asked_for_each_retry(world: World, corral: Corral) -> None:
    world.stops = "after"
    source = "return await tools.put({ n: 1 }).catch((e) => [e.code, e.message])"
    name = await world.crash(corral, source)
    await corral.executions.resume(name)
    await corral.executions.settle(name, {1: Retry()})
    world.stops = "after"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(corral.executions.resume, name)
        await world.stopped.wait()
        tasks.cancel_scope.cancel()
    world.stops = None
    assert world.done == [1, 1]
    assert (await corral.executions.resume(name)).status == "paused", "one Retry allows one more call"
    await corral.executions.settle(name, {1: Denied("it is there")})
    result = await corral.executions.resume(name)
    assert result.value == ["uncertain_call", "tools.put was not called again: it is there"]
    assert world.done == [1, 1]


@pytest.mark.parametrize("name", ["again", "look"])
async def test_calls_that_may_be_repeated_are_with_the_same_key(world: World, corral: Corral, name: str) -> None:
    world.stops = "after"
    execution = await world.crash(corral, f"return await tools.{name}({{ n: 1 }})")
    assert (await corral.executions.resume(execution)).value == 10
    assert world.done == [1, 1]
    assert world.keys == [f"{execution}:1"] * 2


async def test_an_approval_survives_a_crash_and_its_call_does_not_run_twice(world: World, corral: Corral) -> None:
    paused = await corral.execute("return await tools.pay({ n: 1 })", durable=True)
    name = paused.execution_id
    await corral.executions.settle(name, {1: Approved(by="ann")})
    world.stops = "after"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(corral.executions.resume, name)
        await world.stopped.wait()
        tasks.cancel_scope.cancel()
    world.stops = None
    uncertain = await corral.executions.resume(name)
    assert [call.reason is not None for call in uncertain.pending] == [True]
    await corral.executions.settle(name, {1: Settled("paid by hand")})
    assert (await corral.executions.resume(name)).value == "paid by hand"
    assert world.done == [1]


async def test_cancelling_an_execution_ends_it_for_good(world: World, corral: Corral) -> None:
    world.stops = "before"
    async with corral.start("return await tools.put({ n: 1 })", durable=True) as run:
        await world.stopped.wait()
        run.cancel()
        result = await run.result()
    assert result.status == "cancelled"
    with pytest.raises(HeldElsewhere, match="has ended: cancelled"):
        await corral.executions.resume(result.execution_id)


async def test_an_execution_whose_corral_is_closed_can_be_resumed(world: World, warm_deno: DenoSandbox) -> None:
    ledger = MemoryLedger()
    world.stops = "before"
    async with world.corral(warm_deno, ledger) as corral, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: corral.execute("return await tools.look({ n: 1 })", durable=True))
        await world.stopped.wait()
        await corral.aclose()
    world.stops = None
    async with world.corral(warm_deno, ledger) as corral:
        [execution] = await corral.executions.list()
        assert execution.status == "running"
        assert (await corral.executions.resume(execution.execution_id)).value == 10


# --- what does not go on


async def test_another_program_diverges_and_both_calls_are_named(world: World, corral: Corral) -> None:
    source = "const a = await tools.look({ n: 1 }); return await tools.pay({ n: a })"
    paused = await corral.execute(source, durable=True)
    other = await corral.executions.fork(paused.execution_id, at=2, source=source.replace("n: 1", "n: 7"))
    assert other.error is not None
    assert other.error.code == "diverged"
    assert 'call 1 was look({"n":1}) when it ran first, and is look({"n":7}) now' in other.error.message
    fewer = await corral.executions.fork(paused.execution_id, at=2, source="return 1")
    assert fewer.error is not None
    assert "the program ended before call 1, look" in fewer.error.message
    none = await corral.executions.fork(paused.execution_id, at=2, source="await tools.look({ n: 1 }); return 2")
    assert (none.value, replayed(none)) == (2, [1])


async def test_a_fork_goes_on_with_other_code(world: World, corral: Corral) -> None:
    source = "const a = await tools.put({ n: 1 }); const b = await tools.put({ n: 2 }); return [a, b]"
    first = await corral.execute(source, durable=True)
    other = await corral.executions.fork(
        first.execution_id, at=2, source="const a = await tools.put({ n: 1 }); return [a, await tools.put({ n: 3 })]"
    )
    assert other.execution_id != first.execution_id
    assert (other.value, replayed(other)) == ([10, 30], [1])
    assert world.done == [1, 2, 3]
    assert (await corral.executions.replay(other.execution_id)).value == [10, 30]
    part = await corral.executions.replay(first.execution_id, until=2)
    assert (part.status, part.pending, replayed(part)) == ("paused", (), [1])


async def test_a_corrected_program_does_not_repeat_what_the_failed_one_changed(world: World, corral: Corral) -> None:
    first = await corral.execute(
        "await tools.look({ n: 0 }); await tools.put({ n: 1 }); await tools.put({ n: 2 }); throw new Error('oh')",
        durable=True,
        context=ANN,
    )
    corrected = "return [await tools.look({ n: 0 }), await tools.put({ n: 1 }), await tools.put({ n: 1 })]"
    with pytest.raises(AccessDenied):
        await corral.execute(corrected, after=first.execution_id)
    result = await corral.execute(corrected, after=first.execution_id, context=ANN)
    assert result.value == [0, 10, 10]
    assert (world.done, replayed(result)) == ([0, 1, 2, 0, 1], [2])
    assert (await corral.executions.replay(result.execution_id)).value == [0, 10, 10]


async def test_a_change_that_the_failed_program_had_started_is_asked_about(world: World, corral: Corral) -> None:
    world.stops = "after"
    name = await world.crash(corral, "return await tools.put({ n: 1 })")
    paused = await corral.execute("return await tools.put({ n: 1 })", after=name, context=ANN)
    assert (paused.status, [each.reason is not None for each in paused.pending]) == ("paused", [True])
    await corral.executions.settle(paused.execution_id, {1: Settled(10)})
    assert (await corral.executions.resume(paused.execution_id)).value == 10
    assert world.done == [1]


async def test_what_a_chain_of_failed_programs_changed_is_not_repeated_also_after_a_pause(
    world: World, corral: Corral, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "await tools.put({ n: 1 }); await tools.put({ n: 2 })"
    first = await corral.execute(f"{both}; await tools.put({{ n: 1 }}); throw 1", durable=True)
    second = await corral.execute("await tools.put({ n: 1 }); throw 2", after=first.execution_id)
    assert world.done == [1, 2, 1]
    source = f"await tools.pay({{ n: 3 }}); {both}; await tools.put({{ n: 1 }}); await tools.put({{ n: 1 }})"
    paused = await corral.execute(f"await tools.put({{ n: 2 }}); {source}", after=second.execution_id)
    assert paused.status == "paused"
    await corral.executions.settle(paused.execution_id, {2: Approved()})
    result = await corral.executions.resume(paused.execution_id)
    assert (result.status, world.done) == ("succeeded", [1, 2, 1, 3, 2, 1])
    monkeypatch.setattr("corral.running.executions._MOST_EARLIER", 1)
    with pytest.raises(ConfigError, match="1 executions before it have failed; start anew"):
        await corral.execute(both, after=second.execution_id)


async def test_a_model_s_next_program_does_not_repeat_what_its_failed_one_changed(world: World, corral: Corral) -> None:
    run, *_ = corral.model.tools(durable=True, search=False)
    one, two = (ANN.model_copy(update={"session_id": name}) for name in ("one", "two"))
    failing = {"code": "await tools.put({ n: 1 }); await tools.put({ n: 2 }); throw new Error('oh')"}
    whole = {"code": "return [await tools.put({ n: 1 }), await tools.put({ n: 3 })]"}
    await run(failing, one)
    assert (await run.run({"code": "return ("}, one)).status == "rejected"
    assert (await run.run(whole, two)).value == [10, 30]
    assert world.done == [1, 2, 1, 3]
    text = await run(whole, one)
    assert world.done == [1, 2, 1, 3, 3], "only put(3) is new in its session"
    assert text == (
        "Result: [10,30]\n\nNotes:\n- not called again, since the failed program before had made the same calls: "
        'put {"n":1}; their recorded results were used'
    )
    assert "Notes" not in await run(whole, one), "the program before has succeeded"
    assert world.done == [1, 2, 1, 3, 3, 1, 3]
    await run(failing, one)
    assert "Notes" not in await run({**whole, "repeat": True}, one)
    assert world.done[7:] == [1, 2, 1, 3]
    await run(failing, ANN)
    assert "Notes" not in await run(whole, ANN), "without a session nobody knows which program is the next one"
    with pytest.raises(ConfigError, match="needs a Corral with a ledger"):
        Corral(world.tools).model.tools(durable=True)


async def test_a_journal_has_a_bound(world: World, corral: Corral) -> None:
    source = "for (let n = 0; n < 100; n++) await tools.look({ n })"
    result = await corral.execute(source, durable=True, limits=Limits(journal_bytes=2_000))
    assert result.error is not None
    assert result.error.message == "the execution has recorded all that it may: Limits(journal_bytes=2000)"
    assert len(world.done) == 10
    with pytest.raises(HeldElsewhere, match="has ended: failed"):
        await corral.executions.resume(result.execution_id)


class Full(MemoryLedger):
    """Ledger whose disk gets full."""

    full = False

    def write(self, *arguments: Any, **options: Any) -> Any:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        return super().write(*arguments, **options)

    def create(self, execution: StoredExecution) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        super().create(execution)


async def test_a_ledger_that_fails_fails_calls_before_their_tools_run(world: World, warm_deno: DenoSandbox) -> None:
    ledger = Full()
    async with world.corral(warm_deno, ledger) as corral:
        ledger.full = True
        with pytest.raises(LedgerFailed, match="disk is full"):
            await corral.execute("return await tools.put({ n: 1 })", durable=True)
        ledger.full = False

        def fill(event: Event) -> None:
            ledger.full = ledger.full or (event.type == "tool_call_started" and event.call.sequence == 2)

        source = "await tools.put({ n: 1 }); try { await tools.put({ n: 2 }) } catch {} return 1"
        result = await corral.execute(source, durable=True, on_event=fill)
        assert result.error is not None
        assert (result.status, result.error.code, world.done) == ("failed", "ledger_failed", [1])
        ledger.full = False
        resumed = await corral.executions.resume(result.execution_id)
        while resumed.status == "paused":  # the reply to call 1 was in the write that failed
            assert await corral.executions.settle(result.execution_id, {1: Settled(10)})
            resumed = await corral.executions.resume(result.execution_id)
        assert (resumed.value, world.done) == (1, [1, 2])


async def test_a_damaged_row_is_named_and_nothing_runs(world: World, warm_deno: DenoSandbox, tmp_path: Path) -> None:
    async with world.corral(warm_deno, SqliteLedger(tmp_path / "runs.db", keys=KEYS)) as corral:
        paused = await corral.execute("await tools.put({ n: 1 }); return await tools.pay({ n: 2 })", durable=True)
        await corral.executions.settle(paused.execution_id, {2: Approved()})
        with sqlite3.connect(tmp_path / "runs.db") as database:
            database.execute("UPDATE calls SET body = zeroblob(80) WHERE sequence = 1")
        with pytest.raises(LedgerDamaged, match="call 1 done 0 cannot be read: it is not sealed"):
            await corral.executions.resume(paused.execution_id)
        with sqlite3.connect(tmp_path / "runs.db") as database:
            database.execute("UPDATE executions SET user_id = 'bob'")
        with pytest.raises(LedgerDamaged, match=f"the owner of {paused.execution_id} in the ledger was altered"):
            await corral.executions.waiting(user_id="bob")
    assert world.done == [1]


async def test_calls_of_names_that_need_escapes_are_recorded_and_replayed(world: World, warm_deno: DenoSandbox) -> None:
    async with world.corral(warm_deno, MemoryLedger()) as corral:
        source = """
            const name = await tools['a",\\\\"\\n\\u00fc']({ n: [1, "é\\u2028"] }).catch((error) => error.message);
            return [name, await tools.again({ n: 1 }), await tools.pay({ n: 2 })]
        """
        paused = await corral.execute(source, durable=True)
        [call] = paused.pending
        assert (paused.status, call.input) == ("paused", {"n": 2})
        await corral.executions.settle(paused.execution_id, {call.sequence: Approved()})
        result = await corral.executions.resume(paused.execution_id)
        assert (result.status, result.value[1:], world.done) == ("succeeded", [10, 20], [1, 2])
        assert (await corral.executions.replay(paused.execution_id)).value == result.value


async def test_a_durable_read_takes_few_functions_more_than_a_plain_one(corral: Corral) -> None:
    async def calls(count: int, *, durable: bool) -> int:
        source = f"await Promise.all(Array.from({{ length: {count} }}, (_, n) => tools.look({{ n }})))"
        with calls_counted() as counted:
            result = await corral.execute(source, durable=durable)
        assert result.success, result.error
        return counted.calls

    for durable in (True, False):
        await calls(1, durable=durable)
    plain, durably = [await calls(120, durable=each) - await calls(20, durable=each) for each in (False, True)]
    assert durably < 1.45 * plain, (durably, plain)


async def test_an_execution_that_only_reads_waits_for_the_disk_once(
    world: World, warm_deno: DenoSandbox, tmp_path: Path
) -> None:
    synced: list[bool] = []

    class Watched(SqliteLedger):
        @override
        @contextmanager
        def _transaction(self, *, durably: bool) -> Generator[Any]:
            synced.append(durably)
            with super()._transaction(durably=durably) as database:
                yield database

    async with world.corral(warm_deno, Watched(tmp_path / "runs.db", keys=KEYS)) as corral:
        assert (await corral.execute("return await tools.look({ n: 1 })", durable=True)).value == 10
    assert (synced.count(True), synced[0]) == (1, False)


async def test_paused_executions_leave_nothing_in_memory(corral: Corral) -> None:
    async def objects(count: int) -> int:
        for _ in range(count):
            assert (await corral.execute("return await tools.pay({ n: 1 })", durable=True)).status == "paused"
        gc.collect()
        return sum(str(type(each).__module__).startswith("corral.") for each in gc.get_objects())

    few = await objects(3)
    assert await objects(20) < few + 20


async def test_a_result_is_encoded_beside_the_event_loop(corral: Corral, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def encode(value: object) -> Any:
        threads.append(threading.current_thread().name)
        return encode_value(value)

    monkeypatch.setattr("corral.running.recorded.encode_value", encode)
    assert (await corral.execute("return [1, [2]]", durable=True)).value == [1, [2]]
    assert threads == ["corral-ledger"]


async def test_what_cannot_be_durable_is_refused_with_its_reason(world: World, warm_deno: DenoSandbox) -> None:
    corral = Corral(world.tools, sandbox=warm_deno)
    with pytest.raises(ConfigError, match=r"durable=True needs a ledger; make the Corral with Corral\(ledger=\.\.\.\)"):
        await corral.execute("return 1", durable=True)
    with pytest.raises(ConfigError, match="durable executions need a ledger"):
        await corral.executions.resume("execution-1")
    async with Corral(sandbox="monty", ledger=MemoryLedger()) as corral:
        with pytest.raises(ConfigError, match="sandbox 'monty' cannot run a program the same way again"):
            await corral.execute("1", language="python", durable=True)
    async with Corral(sandbox=warm_deno, ledger=MemoryLedger()) as corral:
        async with corral.session(files=[Mount("/workspace")]) as session:
            with pytest.raises(ConfigError, match="the files of a session are not on record"):
                await session.execute("return 1", durable=True)
        with pytest.raises(ConfigError, match="has no execution 'execution-1'"):
            await corral.executions.resume("execution-1")

"""Several hosts over one ledger: decisions at one host on calls of executions that another one runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionResult, Later, Limits, RateLimits, tool
from corral.events import Event
from corral.sandboxes import DenoSandbox
from corral.types import Retry, Settlement
from tests.running.conftest import Store
from tests.running.test_durable import ANN, World, crashed_at
from tests.running.test_durable import world as world
from tests.until import until

pytestmark = pytest.mark.anyio


class Hosts:
    """Two hosts, A and B, over one ledger."""

    def __init__(self, a: Corral, b: Corral, go_on: anyio.Event) -> None:
        self.a, self.b = a, b
        self.go_on = go_on
        """Lets the tool `wait` end."""

    async def decided_at_b(self, decision: Settlement) -> str:
        """Waits until host B knows of a call that waits, and decides on it there. Returns its execution."""
        while not (waiting := await self.b.executions.waiting()):
            await anyio.sleep(0.01)
        [execution] = waiting
        [call] = execution.calls
        assert (execution.status, execution.context) == ("running", ANN)
        decided = await self.b.executions.settle(execution.execution_id, {call.sequence: decision}, by="bob")
        assert decided == {call.sequence}
        assert await self.b.executions.settle(execution.execution_id, {call.sequence: decision}) == frozenset()
        return execution.execution_id


@asynccontextmanager
async def hosts(world: World, sandbox: Any, store: Store, **options: Any) -> AsyncGenerator[Hosts]:
    go_on = anyio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        await go_on.wait()
        return "waited"

    tools = [*world.tools, wait]
    async with (
        world.corral(sandbox, store.ledger(), tools=tools, **options) as a,
        world.corral(sandbox, store.ledger(), tools=tools) as b,
    ):
        yield Hosts(a, b, go_on)


async def never(_: ApprovalRequest) -> Approved:
    await anyio.sleep_forever()
    raise AssertionError


def later(_: ApprovalRequest) -> Later:
    return Later()


@pytest.mark.parametrize(
    "decision",
    [
        Approved(),
        pytest.param(Denied("too much"), marks=pytest.mark.matrix("approved in the gate; the other decision")),
    ],
)
async def test_a_host_learns_of_a_decision_on_a_call_that_waits_in_its_process(
    world: World, warm_deno: DenoSandbox, store: Store, decision: Approved | Denied
) -> None:
    source = "return await tools.pay({ n: 1 }).catch((e) => e.message)"
    results: list[ExecutionResult] = []
    async with hosts(world, warm_deno, store, approve=never) as each, anyio.create_task_group() as tasks:

        async def run() -> None:
            results.append(await each.a.execute(source, durable=True, context=ANN))

        tasks.start_soon(run)
        await each.decided_at_b(decision)
        await until(lambda: results)
        [result] = results
        [call] = result.tool_calls
        assert call.decision is not None
        assert call.decision.by == "bob"
        if isinstance(decision, Approved):
            assert (result.value, world.done) == (10, [1])
        else:
            assert "tools.pay was not approved: too much" in result.value
        assert await each.b.executions.waiting() == ()


async def test_a_call_that_was_left_to_the_ledger_goes_on_while_its_program_runs(
    world: World, warm_deno: DenoSandbox, store: Store
) -> None:
    source = "return await Promise.all([tools.pay({ n: 1 }).then((n) => [n, 'paid']), tools.wait()])"
    results: list[ExecutionResult] = []
    started: list[str] = []
    rates = RateLimits(user="2/hour")  # a call that waits counts once

    def note(event: Event) -> None:
        started.extend([event.call.name] if event.type == "tool_call_started" else [])

    async with (
        hosts(world, warm_deno, store, approve=later, rates=rates, limits=Limits(calls=2)) as each,
        anyio.create_task_group() as tasks,
    ):

        async def run() -> None:
            results.append(await each.a.execute(source, durable=True, context=ANN, on_event=note))

        tasks.start_soon(run)
        name = await each.decided_at_b(Approved())
        await until(lambda: world.done == [1])
        assert not results
        each.go_on.set()
        await until(lambda: results)
        [result] = results
        assert (result.status, result.value) == ("succeeded", [[10, "paid"], "waited"])
        assert sorted(call.sequence for call in result.tool_calls) == [1, 2]
        assert sorted(started) == ["pay", "wait"]
        again = await each.b.executions.replay(name)
        assert (again.value, world.done) == (result.value, [1])


async def test_an_uncertain_call_is_made_again_while_its_program_runs(
    world: World, warm_deno: DenoSandbox, store: Store
) -> None:
    source = "return await Promise.all([tools.put({ n: 1 }), tools.wait()])"
    results: list[ExecutionResult] = []
    async with hosts(world, warm_deno, store) as each, anyio.create_task_group() as tasks:
        name = await crashed_at(world, each.a, source, "put", "before")
        await store.expire()

        async def resume() -> None:
            results.append(await each.a.executions.resume(name))

        tasks.start_soon(resume)
        assert await each.decided_at_b(Retry()) == name
        await until(lambda: world.done == [1])
        each.go_on.set()
        await until(lambda: results)
        assert [each.value for each in results] == [[10, "waited"]]


async def test_the_decision_of_the_first_host_holds_at_both(world: World, warm_deno: DenoSandbox, store: Store) -> None:
    asked, answers = anyio.Event(), anyio.Event()

    async def deny(_: ApprovalRequest) -> Denied:
        asked.set()
        with anyio.CancelScope(shield=True):
            await answers.wait()
        return Denied("no", by="ann")

    results: list[ExecutionResult] = []
    async with hosts(world, warm_deno, store, approve=deny) as each, anyio.create_task_group() as tasks:

        async def run() -> None:
            results.append(await each.a.execute("return await tools.pay({ n: 1 })", durable=True, context=ANN))

        tasks.start_soon(run)
        await asked.wait()
        try:
            await each.decided_at_b(Approved())
        finally:
            answers.set()
        await until(lambda: results)
        assert [result.value for result in results] == [10]

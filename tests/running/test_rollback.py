"""Rollback of durable executions: changes are undone, the last one first, each on record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from corral import ConfigError, Corral, ExecutionContext, Tool, ToolCall, ToolError, define_tool, tool
from corral.audit import AuditEvent, AuditLog, CallbackSink
from corral.errors import AccessDenied, HeldElsewhere, ToolDefinitionError
from corral.ledger import MemoryLedger
from corral.sandboxes import DenoSandbox

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann", organization_id="acme", scopes=frozenset({"write"}))
SOURCE = """
await tools.see({ n: 0 });
await Promise.all([tools.put({ n: 1 }), tools.keep({ n: 2 })]);
await tools.put({ n: 3 });
await tools.take({ n: 4 });
return "done"
"""


class Shop:
    """Tools whose effects can be undone, and an undo that can fail or hang."""

    def __init__(self) -> None:
        self.there: list[int] = []
        self.undone: list[Any] = []
        self.fails: set[int] = set()
        self.breaks: set[int] = set()
        self.hangs: int | None = None
        self.hanging = anyio.Event()

    def take(self, n: int) -> str:
        """Takes something."""
        self.there.append(n)
        return f"took {n}"

    def give_back(self, input: dict[str, Any], output: str) -> None:
        self.undone.append((input, output))

    @property
    def tools(self) -> list[Tool]:
        async def remove(input: dict[str, Any], output: int, context: ExecutionContext, call: ToolCall) -> None:
            n = input["n"]
            if n == self.hangs:
                self.hanging.set()
                self.hangs = None
                await anyio.sleep_forever()
            self.undone.append((n, output, context.user_id, call.idempotency_key.partition(":")[2]))
            if n in self.fails:
                raise ToolError(f"{n} is sold")
            if n in self.breaks:
                raise ValueError(n)

        @tool(undo=remove, scopes=["write"])
        async def put(n: int = 7) -> int:
            self.there.append(n)
            return n * 10

        @tool
        async def keep(n: int) -> None:
            self.there.append(n)

        @tool(read_only=True)
        async def see(n: int) -> int:
            return n

        return [put, keep, see, tool(undo=self.give_back)(self.take)]


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def corral(shop: Shop, warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with Corral(shop.tools, sandbox=warm_deno, ledger=MemoryLedger(), check=False) as corral:
        yield corral


async def executed(corral: Corral, source: str = SOURCE) -> str:
    return (await corral.execute(source, durable=True, context=ANN)).execution_id


async def test_changes_are_undone_the_last_one_first(shop: Shop, corral: Corral) -> None:
    name = await executed(corral)
    report = await corral.executions.rollback(name)
    assert [(call.sequence, call.tool, call.outcome) for call in report.calls] == [
        (5, "take", "undone"),
        (4, "put", "undone"),
        (3, "keep", "not_undoable"),
        (2, "put", "undone"),
    ]
    assert shop.undone == [({"n": 4}, "took 4"), (3, 30, "ann", "4:undo"), (1, 10, "ann", "2:undo")]
    assert not report.complete
    again = await corral.executions.rollback(name)
    assert again == report
    assert len(shop.undone) == 3
    record = await corral.executions.get(name)
    assert (record.status, record.value) == ("rolled_back", "done")
    assert (await corral.executions.replay(name)).value == "done"
    with pytest.raises(HeldElsewhere, match="has been rolled back"):
        await corral.executions.resume(name)
    job = await corral.execute("await tools.put({ n: 5 })", durable=True, context=ANN, execution_id="job-1")
    assert (await corral.executions.rollback(job.execution_id)).complete
    with pytest.raises(HeldElsewhere, match="use a new execution_id"):
        await corral.execute("await tools.put({ n: 5 })", durable=True, context=ANN, execution_id="job-1")


async def test_a_rollback_leaves_what_a_replay_until_there_shows(shop: Shop, corral: Corral) -> None:
    name = await executed(corral)
    report = await corral.executions.rollback(name, until=4)
    assert [(call.sequence, call.outcome) for call in report.calls] == [(5, "undone"), (4, "undone")]
    with pytest.raises(ConfigError, match="call 4 was rolled back; fork at 4, or an earlier call"):
        await corral.executions.fork(name, at=5)
    assert (await corral.executions.fork(name, at=4)).value == "done"
    assert shop.there == [1, 2, 3, 4, 3, 4]


async def test_a_program_after_another_makes_undone_calls_again(shop: Shop, corral: Corral) -> None:
    name = await executed(corral)
    await corral.executions.rollback(name, until=5)
    shop.there.clear()
    result = await corral.execute(SOURCE, after=name, context=ANN)
    assert (result.value, shop.there) == ("done", [4])


async def test_a_rollback_goes_on_after_its_host_was_lost(shop: Shop, corral: Corral) -> None:
    name = await executed(corral)
    shop.hangs = 3
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(corral.executions.rollback, name)
        await shop.hanging.wait()
        with pytest.raises(HeldElsewhere, match="runs on another host"):
            await corral.executions.rollback(name)
        tasks.cancel_scope.cancel()
    with pytest.raises(HeldElsewhere, match="has been rolled back"):
        await corral.executions.resume(name)
    report = await corral.executions.rollback(name)
    assert [call.outcome for call in report.calls] == ["undone", "undone", "not_undoable", "undone"]
    assert [each[0] for each in shop.undone] == [{"n": 4}, 3, 1]


async def test_all_are_tried_and_a_failed_one_is_tried_again(shop: Shop, corral: Corral) -> None:
    name = await executed(corral)
    shop.fails, shop.breaks = {3}, {1}
    report = await corral.executions.rollback(name)
    outcomes = [(call.sequence, call.outcome, call.reason) for call in report.calls]
    assert outcomes[:3] == [
        (5, "undone", None),
        (4, "failed", "3 is sold"),
        (3, "not_undoable", "the tool has no undo"),
    ]
    assert outcomes[3][:2] == (2, "failed")
    again = await corral.execute("return await tools.put({ n: 3 })", after=name, context=ANN)
    assert (again.status, again.tool_calls[0].replayed) == ("succeeded", True)  # still in effect
    paused = await corral.execute("return await tools.put({ n: 1 })", after=name, context=ANN)
    assert [call.reason for call in paused.pending] == [
        "undoing it has failed or was interrupted, so it may be in effect"
    ]
    shop.fails, shop.breaks = set(), set()
    again = await corral.executions.rollback(name)
    assert [call.outcome for call in again.calls] == ["undone", "undone", "not_undoable", "undone"]
    assert [each[0] for each in shop.undone] == [{"n": 4}, 3, 1, 3, 1]


async def test_calls_of_an_unknown_effect_are_reported(shop: Shop, warm_deno: DenoSandbox) -> None:
    @tool(timeout_seconds=0.01, undo=shop.give_back)
    async def slow() -> None:
        await anyio.sleep_forever()

    @tool(undo=shop.give_back)
    async def refuse() -> None:
        raise ToolError("no")

    async with Corral([slow, refuse], sandbox=warm_deno, ledger=MemoryLedger(), check=False) as corral:
        name = await executed(corral, "await tools.slow().catch(() => 0); await tools.refuse()")
        [call] = (await corral.executions.rollback(name)).calls
        assert (call.tool, call.outcome, call.reason) == ("slow", "uncertain", "it may have taken effect")
    assert shop.undone == []


async def test_undoing_is_judged_by_scopes_and_audited(shop: Shop, warm_deno: DenoSandbox) -> None:
    events: list[AuditEvent] = []
    log = AuditLog(CallbackSink(events.extend))
    async with Corral(shop.tools, sandbox=warm_deno, ledger=MemoryLedger(), check=False, audit=log) as corral:
        name = await executed(corral, "await tools.put({ n: 1 })")
        with pytest.raises(AccessDenied, match="belongs to another user"):
            await corral.executions.rollback(name, context=ExecutionContext(user_id="bob"))
        without = ANN.model_copy(update={"scopes": frozenset[str]()})
        [denied] = (await corral.executions.rollback(name, context=without)).calls
        assert (denied.outcome, denied.reason) == ("failed", "tools.put needs the scope write")
        assert (await corral.executions.rollback(name)).complete
        await log.flush()
    assert [(each.protocol, each.outcome, each.tool) for each in events if each.kind == "call"] == [
        ("pipe", "succeeded", "put"),
        ("rollback", "denied", "put"),
        ("rollback", "undone", "put"),
    ]


async def test_an_undo_that_takes_other_arguments_is_refused() -> None:
    def put(input: object) -> None: ...

    def wrong(input: object, output: object, context: ExecutionContext, more: int) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"its undo must take \(input, output, context\), and nothing for"):
        define_tool(name="put", execute=put, undo=wrong)

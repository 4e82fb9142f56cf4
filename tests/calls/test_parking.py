"""Decisions as data: who decided is on record, and a call may wait for a decision that comes from elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import ApprovalRequest, Approved, ConfigError, Corral, Denied, ExecutionContext, Later, Limits, tool
from corral.audit import AuditEvent, AuditFilter, open_audit
from corral.calls import Grant
from corral.errors import ApprovalDenied
from corral.events import ApprovalDecided, ApprovalRequested, Event
from corral.ledger import MemoryLedger
from corral.sandboxes import DenoSandbox
from tests.calls.clocks import grant_here, seconds_left
from tests.until import until

pytestmark = pytest.mark.anyio
BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])

CAUGHT = "try { return await tools.pay({ euros: 7 }) } catch (e) { return [e.code, e.message] }"
ANN = ExecutionContext(user_id="ann", session_id="s", organization_id="acme")


@tool(needs_approval=True)
async def pay(euros: float, to: str = "Ann") -> str:
    """Sends money."""
    return f"{euros:g} to {to}"


def later(_: ApprovalRequest) -> Later:
    return Later()


def deciding(
    corral: Corral, decision: Approved | Denied, made: list[bool] | None = None
) -> Callable[[Event], Awaitable[None]]:
    """Observer that decides on each call as soon as it hears of it, as a click does."""

    async def decide(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            settled = await corral.executions.settle(event.execution_id, {event.sequence: decision})
            if made is not None:
                made.append(event.sequence in settled)

    return decide


# --- decisions on record


@pytest.mark.parametrize(
    ("answer", "value", "decision"),
    [
        (True, "7 to Ann", Approved()),
        (Approved(by="boss"), "7 to Ann", Approved(by="boss")),
        (False, ["approval_denied", "tools.pay was not approved"], Denied()),
        (Denied(by="boss"), ["approval_denied", "tools.pay was not approved"], Denied(by="boss")),
        (Denied("too much"), ["approval_denied", "tools.pay was not approved: too much"], Denied("too much")),
        (ApprovalDenied("too much"), ["approval_denied", "tools.pay was not approved: too much"], Denied("too much")),
    ],
)
async def test_a_decision_is_in_the_record_the_events_and_the_audit(
    tmp_path: Path, warm_deno: DenoSandbox, answer: Any, value: object, decision: Approved | Denied
) -> None:
    async def approve(request: ApprovalRequest) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    events: list[Event] = []
    log = str(tmp_path / "audit.jsonl")
    async with Corral([pay], approve=approve, sandbox=warm_deno, check=False, audit=log) as corral:
        result = await corral.execute(CAUGHT, context=ANN, on_event=events.append)
    assert result.value == value
    assert [call.decision for call in result.tool_calls] == [decision]
    assert [each.type for each in events][1:-1] == [
        "tool_call_started",
        "approval_requested",
        "approval_decided",
        "tool_call_finished",
    ]
    requested, decided = events[2:4]
    assert isinstance(requested, ApprovalRequested)
    assert (requested.sequence, requested.tool, requested.input) == (1, "pay", {"euros": 7.0, "to": "Ann"})
    assert (requested.description, requested.read_only) == ("Sends money.", False)
    assert requested.shown == '{"euros": 7.0, "to": "Ann"}'
    assert isinstance(decided, ApprovalDecided)
    assert (decided.sequence, decided.tool, decided.decision) == (1, "pay", decision)
    [call] = [each for each in await audited(log) if each.kind == "call"]
    assert (call.decision, call.decided_by) == (decision.type, decision.by)


async def audited(log: str) -> list[AuditEvent]:
    reader = open_audit(log)
    try:
        return list(await reader.read(AuditFilter(), 100))
    finally:
        await reader.aclose()


async def test_a_decision_is_in_the_tables_of_an_audit_log(tmp_path: Path, warm_deno: DenoSandbox) -> None:
    log = str(tmp_path / "audit.sqlite")
    boss = Approved(by="boss")
    async with Corral([pay], approve=lambda _: boss, sandbox=warm_deno, check=False, audit=log) as corral:
        await corral.execute(CAUGHT)
    [call] = [each for each in await audited(log) if each.kind == "call"]
    assert (call.decision, call.decided_by) == ("approved", "boss")


async def test_decisions_and_their_events_are_plain_data(warm_deno: DenoSandbox) -> None:
    events: list[Event] = []
    corral = Corral([pay], approve=lambda _: Denied("no", by="boss"), sandbox=warm_deno, check=False)
    result = await corral.execute(CAUGHT, on_event=events.append)
    plain = [json.loads(each.to_json()) for each in events]
    assert plain == [each.to_dict() for each in events]
    assert plain[2]["input"] == {"euros": 7.0, "to": "Ann"}
    assert plain[2]["shown"] == '{"euros": 7.0, "to": "Ann"}'
    assert plain[3]["decision"] == {"reason": "no", "by": "boss", "type": "denied"}
    assert result.to_dict()["tool_calls"][0]["decision"] == plain[3]["decision"]


async def test_an_input_that_nobody_can_be_shown_has_no_text_for_a_person(warm_deno: DenoSandbox) -> None:
    events: list[Event] = []
    corral = Corral([pay], approve=lambda _: False, sandbox=warm_deno, check=False)
    await corral.execute("await tools.pay({ euros: 7, to: 'x'.repeat(20_000) })", on_event=events.append)
    assert [each.shown for each in events if isinstance(each, ApprovalRequested)] == [None]


async def test_a_call_that_needs_no_approval_has_no_decision(warm_deno: DenoSandbox) -> None:
    @tool
    async def look() -> int:
        return 1

    events: list[Event] = []
    result = await Corral([look], approve=later, sandbox=warm_deno, check=False).execute(
        "await tools.look()", on_event=events.append
    )
    assert [call.decision for call in result.tool_calls] == [None]
    assert [each.type for each in events] == [
        "execution_started",
        "tool_call_started",
        "tool_call_finished",
        "execution_finished",
    ]


async def test_an_execution_may_have_an_approver_of_its_own(warm_deno: DenoSandbox) -> None:
    corral = Corral([pay], approve=lambda _: Approved(by="corral"), sandbox=warm_deno, check=False)
    own = await corral.execute(CAUGHT, approve=lambda _: Approved(by="own"))
    usual = await corral.execute(CAUGHT)
    async with corral.start(CAUGHT, approve=lambda _: Denied("no")) as run:
        started = await run.result()
    by_model = await corral.model.tools(approve=lambda _: Approved(by="model's"))[0].run({"code": CAUGHT})
    assert [each.tool_calls[0].decision for each in (own, usual, started, by_model)] == [
        Approved(by="own"),
        Approved(by="corral"),
        Denied("no"),
        Approved(by="model's"),
    ]


# --- calls that wait


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("decision", "value"),
    [
        (Approved(by="ann"), "7 to Ann"),
        (Denied("no", by="ann"), ["approval_denied", "tools.pay was not approved: no"]),
    ],
)
async def test_a_call_waits_until_somebody_decides(decision: Approved | Denied, value: object) -> None:
    corral = Corral([pay], approve=later, sandbox=DenoSandbox(isolation="process", pool_size=0), check=False)
    async with corral.start(CAUGHT, context=ANN) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                assert await corral.executions.waiting(user_id="bob") == ()
                [execution] = await corral.executions.waiting(user_id=ANN.user_id)
                [request] = execution.calls
                assert (execution.execution_id, request.sequence) == (run.execution_id, event.sequence)
                assert (request.tool, request.context, execution.context) == ("pay", ANN, ANN)
                settled = await corral.executions.settle(run.execution_id, {event.sequence: decision, 99: decision})
                assert settled == {event.sequence}
                assert await corral.executions.waiting() == ()
        result = await run.result()
    assert result.value == value
    assert result.tool_calls[0].decision == decision


async def test_the_first_decision_holds_and_others_are_told_that_they_came_late(warm_deno: DenoSandbox) -> None:
    corral = Corral([pay], approve=later, sandbox=warm_deno, check=False)
    made: list[bool] = []
    with (
        corral.observe(deciding(corral, Approved(by="first"), made)),
        corral.observe(deciding(corral, Denied(by="second"), made)),
    ):
        result = await corral.execute(CAUGHT)
    assert (made, result.value) == ([True, False], "7 to Ann")
    assert not await corral.executions.settle(result.execution_id, {1: Denied()})
    assert not await corral.executions.settle("execution-of-others", {1: Approved()})


async def test_a_decision_ends_the_question_of_an_approver_that_still_asks(warm_deno: DenoSandbox) -> None:
    withdrawn = anyio.Event()

    async def approve(request: ApprovalRequest) -> bool:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        return False

    corral = Corral([pay], approve=approve, sandbox=warm_deno, check=False)
    with corral.observe(deciding(corral, Approved(by="page"))):
        result = await corral.execute(CAUGHT)
    assert (result.value, withdrawn.is_set()) == ("7 to Ann", True)


async def test_another_thread_may_decide(warm_deno: DenoSandbox) -> None:
    corral = Corral([pay], approve=later, sandbox=warm_deno, check=False)
    threads: list[threading.Thread] = []

    def decide(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            settle = partial(corral.executions.settle, event.execution_id, {event.sequence: Approved()}, by="thread")
            threads.append(threading.Thread(target=anyio.run, args=(settle,)))
            threads[-1].start()

    with corral.observe(decide):
        result = await corral.execute(CAUGHT)
    threads[0].join()
    assert result.tool_calls[0].decision == Approved(by="thread")


def test_programs_without_an_event_loop_wait_too(warm_deno: DenoSandbox) -> None:
    with (
        Corral([pay], approve=later, sandbox=warm_deno, check=False) as corral,
        corral.observe(deciding(corral, Approved())),
    ):
        assert corral.sync.execute(CAUGHT).value == "7 to Ann"


async def test_only_a_decision_decides() -> None:
    with pytest.raises(ConfigError, match="decision"):
        await Corral([pay]).executions.settle("execution-1", {1: True})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_call_that_waits_too_long_is_denied_on_record(warm_deno: DenoSandbox) -> None:
    corral = Corral([pay], approve=later, approval_seconds=0.05, sandbox=warm_deno, check=False)
    result = await corral.execute(CAUGHT)
    assert result.value == ["approval_denied", "tools.pay requires approval, but no decision came within 0.05 s"]
    assert result.tool_calls[0].decision == Denied("no decision came within 0.05 s")
    assert await corral.executions.waiting() == ()


async def test_the_programs_clock_stands_while_its_call_waits_and_goes_on_with_the_decision(
    warm_deno: DenoSandbox,
) -> None:
    grants: list[Grant] = []
    left: list[float] = []

    @tool(name="pay", needs_approval=True)
    async def note() -> None:
        left.append(seconds_left(grants[0]))

    def approve(_: ApprovalRequest) -> Later:
        grants.append(grant_here())
        return Later()

    async def decide(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            await until(lambda: grants)
            left.append(seconds_left(grants[0]))
            await corral.executions.settle(event.execution_id, {event.sequence: Approved()})

    corral = Corral([note], approve=approve, limits=Limits(wall_seconds=60), sandbox=warm_deno, check=False)
    await corral.execute("await tools.pay()", on_event=decide)
    assert [seconds > 60 for seconds in left] == [True, False]


async def test_a_cancelled_execution_leaves_no_call_that_waits(warm_deno: DenoSandbox) -> None:
    corral = Corral([pay], approve=later, sandbox=warm_deno, check=False)
    async with corral.start(CAUGHT) as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                run.cancel()
        assert (await run.result()).status == "cancelled"
    assert await corral.executions.waiting() == ()
    assert not await corral.executions.settle(run.execution_id, {1: Approved()})


async def test_only_so_many_executions_wait_with_as_many_calls_as_they_like(
    monkeypatch: pytest.MonkeyPatch, warm_deno: DenoSandbox
) -> None:
    monkeypatch.setattr("corral.calls.guards._MOST_PARKED", 1)
    corral = Corral([pay], approve=later, sandbox=warm_deno, check=False)
    both = "return await Promise.all([tools.pay({ euros: 1 }), tools.pay({ euros: 2 })])"
    async with corral.start(both) as run:
        asked: list[int] = []
        async for event in run:
            if isinstance(event, ApprovalRequested):
                asked.append(event.sequence)
            if len(asked) == 2:
                break
        refused = await corral.execute(CAUGHT)
        assert refused.value[1].endswith(
            "too many of your programs are waiting for a decision; try again after some are decided"
        )
        decisions = dict.fromkeys(asked, Approved())
        assert await corral.executions.settle(run.execution_id, decisions) == set(asked)
        assert (await run.result()).value == ["1 to Ann", "2 to Ann"]


# --- durable executions, whose calls wait in a ledger


@pytest.mark.parametrize("asks", [True, False], ids=["in vain", "not now"])
async def test_a_call_that_nobody_decides_pauses_a_durable_program(
    tmp_path: Path, warm_deno: DenoSandbox, *, asks: bool
) -> None:
    async def approve(request: ApprovalRequest) -> Later:
        if asks:
            await anyio.sleep_forever()
        return Later()

    @tool
    async def look() -> int:
        return 1

    log = str(tmp_path / "audit.jsonl")
    events: list[Event] = []
    async with Corral(
        [pay, look],
        sandbox=warm_deno,
        approve=approve,
        approval_seconds=0.05,
        check=False,
        audit=log,
        ledger=MemoryLedger(),
    ) as corral:
        program = f"await tools.look(); const paid = await (async () => {{ {CAUGHT} }})(); console.log('answered')"
        result = await corral.execute(program, on_event=events.append, durable=True)
    assert (result.status, result.console, result.error) == ("paused", "", None)
    [request] = result.pending
    assert (request.tool, request.sequence, request.input) == ("pay", 2, {"euros": 7, "to": "Ann"})
    parked = result.tool_calls[1]
    assert (parked.error, parked.duration_ms, parked.state, parked.decision) == (None, None, "waiting", None)
    assert "Calls waiting for a decision, which have not run: pay" in result.model_text()
    assert [each.type for each in events] == [
        "execution_started",
        "tool_call_started",
        "tool_call_finished",
        "tool_call_started",
        "approval_requested",
        "execution_paused",
        "execution_finished",
    ]
    assert [each.outcome for each in await audited(log) if each.tool in ("pay", None)] == ["pending", "pending"]

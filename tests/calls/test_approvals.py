"""Calls that need an approval run only after a clear yes, and the program's clock stands while somebody is asked."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from corral import ApprovalRequest, Corral, ExecutionContext, Limits, define_tool, tool
from corral.errors import ApprovalDenied
from corral.sandboxes import DenoSandbox
from tests.calls.clocks import grant_here, seconds_left

pytestmark = pytest.mark.anyio

CAUGHT = "try { return await tools.pay({ euros: 7 }) } catch (e) { return [e.name, e.code, e.message] }"


def paying(needs_approval: Any = True) -> tuple[list[float], Any]:
    paid: list[float] = []

    @tool(needs_approval=needs_approval)
    async def pay(euros: float, to: str = "Ann") -> str:
        """Sends money."""
        paid.append(euros)
        return f"{euros:g} to {to}"

    return paid, pay


async def test_an_approved_call_runs_and_the_approver_saw_what_the_tool_gets(warm_deno: DenoSandbox) -> None:
    paid, pay = paying()
    seen: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        seen.append(request)
        return True

    context = ExecutionContext(user_id="u", organization_id="o")
    result = await Corral([pay], approve=approve, sandbox=warm_deno, check=False).execute(CAUGHT, context=context)
    assert (result.value, paid) == ("7 to Ann", [7])
    (request,) = seen
    assert (request.tool, request.input, request.description) == ("pay", {"euros": 7.0, "to": "Ann"}, "Sends money.")
    assert (request.context, request.execution_id, request.sequence) == (context, result.execution_id, 1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (False, "tools.pay was not approved"),
        (None, "tools.pay was not approved"),
        ("yes", "tools.pay was not approved"),
        (ApprovalDenied("not allowed"), "tools.pay was not approved: not allowed"),
        (ApprovalDenied(), "tools.pay was not approved"),
        (ValueError("secret"), r"tools.pay was not approved: asking failed (correlation id "),
    ],
)
async def test_anything_but_yes_denies_and_the_program_can_catch_it(
    answer: object, said: str, warm_deno: DenoSandbox
) -> None:
    paid, pay = paying()

    async def approve(request: ApprovalRequest) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    result = await Corral([pay], approve=approve, sandbox=warm_deno, check=False).execute(CAUGHT)
    assert result.value[:2] == ["ApprovalDenied", "approval_denied"]
    assert result.value[2].startswith(said)
    assert "secret" not in result.value[2]
    assert paid == []


async def test_where_nobody_can_be_asked_it_is_denied(warm_deno: DenoSandbox) -> None:
    paid, pay = paying()
    result = await Corral([pay], sandbox=warm_deno, check=False).execute(CAUGHT)
    assert (result.value[1], paid) == ("approval_denied", [])


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
async def test_a_predicate_decides_by_the_validated_input_and_the_context(
    *, asynchronous: bool, warm_deno: DenoSandbox
) -> None:
    def is_much(input: dict[str, Any], context: ExecutionContext) -> bool | Awaitable[bool]:
        much = input["euros"] > 5 and context.user_id != "boss"

        async def later() -> bool:
            return much

        return later() if asynchronous else much

    paid, pay = paying(is_much)
    asked: list[float] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.input["euros"])
        return True

    corral = Corral([pay], approve=approve, sandbox=warm_deno, check=False)
    program = "await tools.pay({ euros: 1 }); await tools.pay({ euros: 10 })"
    await corral.execute(program)
    await corral.execute(program, context=ExecutionContext(user_id="boss"))
    assert (asked, paid) == ([10], [1, 10, 1, 10])


async def test_a_predicate_that_fails_lets_nothing_through(warm_deno: DenoSandbox) -> None:
    def broken(input: Any, context: ExecutionContext) -> bool:
        raise KeyError("secret")

    paid, pay = paying(broken)
    result = await Corral([pay], approve=lambda _: True, sandbox=warm_deno, check=False).execute(CAUGHT)
    assert (result.value[1], paid) == ("tool_failed", [])
    assert "secret" not in result.value[2]


async def test_an_invalid_input_is_refused_before_anybody_is_asked(warm_deno: DenoSandbox) -> None:
    _, pay = paying()
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    result = await Corral([pay], approve=approve, sandbox=warm_deno, check=False).execute(
        "try { await tools.pay({}) } catch (e) { return e.code }"
    )
    assert (result.value, asked) == ("invalid_arguments", [])


async def test_no_answer_in_time_denies(warm_deno: DenoSandbox) -> None:
    paid, pay = paying()

    async def approve(request: ApprovalRequest) -> bool:
        await anyio.sleep_forever()
        return True

    corral = Corral([pay], approve=approve, approval_seconds=0.05, sandbox=warm_deno, check=False)
    result = await corral.execute(CAUGHT)
    assert result.value[1:] == ["approval_denied", "tools.pay requires approval, but no decision came within 0.05 s"]
    assert paid == []


async def test_after_a_question_without_an_answer_no_other_is_asked(warm_deno: DenoSandbox) -> None:
    _, pay = paying()
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        await anyio.sleep_forever()
        return True

    corral = Corral([pay], approve=approve, approval_seconds=0.05, sandbox=warm_deno, check=False)
    for _ in range(2):  # of each execution
        result = await corral.execute(f"const a = await (async () => {{ {CAUGHT} }})(); {CAUGHT}")
        assert result.value[2] == "tools.pay requires approval, but an earlier request was not answered in time"
    assert len(asked) == 2


async def test_the_programs_clock_stands_while_anybody_is_asked_and_goes_on_with_the_last_answer(
    warm_deno: DenoSandbox,
) -> None:
    left: list[float] = []
    both_asked, first_paid = anyio.Event(), anyio.Event()

    @tool(needs_approval=True)
    async def pay(euros: float) -> None:
        left.append(seconds_left(grant_here()))
        first_paid.set()

    async def approve(request: ApprovalRequest) -> bool:
        left.append(seconds_left(grant_here()))
        if len(left) == 2:
            both_asked.set()
            await first_paid.wait()
        await both_asked.wait()
        return True

    corral = Corral([pay], approve=approve, limits=Limits(wall_seconds=60), sandbox=warm_deno, check=False)
    await corral.execute("await Promise.all([tools.pay({ euros: 1 }), tools.pay({ euros: 2 })])")
    assert [seconds > 60 for seconds in left] == [True, True, True, False]


async def test_two_calls_at_once_are_both_asked_about_and_each_runs_once(warm_deno: DenoSandbox) -> None:
    paid, pay = paying()
    both = anyio.Event()
    asked: list[float] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request.input["euros"])
        if len(asked) == 2:
            both.set()
        await both.wait()
        return True

    await Corral([pay], approve=approve, sandbox=warm_deno, check=False).execute(
        "await Promise.all([tools.pay({ euros: 1 }), tools.pay({ euros: 2 })])"
    )
    assert (sorted(asked), sorted(paid)) == ([1, 2], [1, 2])


async def test_one_program_waits_for_an_approval_while_its_other_calls_go_on(warm_deno: DenoSandbox) -> None:
    _, pay = paying()
    read = anyio.Event()

    @tool
    async def look() -> int:
        read.set()
        return 1

    async def approve(request: ApprovalRequest) -> bool:
        await read.wait()
        return True

    program = "const paid = tools.pay({ euros: 1 }); return [await tools.look(), await paid]"
    result = await Corral([pay, look], approve=approve, sandbox=warm_deno, check=False).execute(program)
    assert result.value == [1, "1 to Ann"]


async def test_cancelling_the_execution_withdraws_the_question(warm_deno: DenoSandbox) -> None:
    paid, pay = paying()
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def approve(request: ApprovalRequest) -> bool:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        return True

    async with Corral([pay], approve=approve, sandbox=warm_deno, check=False) as corral, corral.start(CAUGHT) as run:
        await asked.wait()
        run.cancel()
        assert (await run.result()).status == "cancelled"
    assert withdrawn.is_set()
    assert paid == []


async def test_the_approver_of_a_defined_tool_sees_its_model(warm_deno: DenoSandbox) -> None:
    class Order(BaseModel):
        item: str

    seen: list[Any] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append(request.input)
        return True

    async def execute(input: Order) -> str:
        return input.item

    order = define_tool(name="order", input_schema=Order, execute=execute, needs_approval=True)
    result = await Corral([order], approve=approve, sandbox=warm_deno, check=False).execute(
        "return await tools.order({ item: 'tea' })"
    )
    assert (result.value, seen) == ("tea", [Order(item="tea")])


async def test_an_approver_may_show_a_person_what_the_tool_gets(warm_deno: DenoSandbox) -> None:
    paid, pay = paying()
    shown: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        shown.append(request.shown(100))
        return True

    corral = Corral([pay], approve=approve, sandbox=warm_deno, check=False)
    assert (await corral.execute(CAUGHT)).value == "7 to Ann"
    long = await corral.execute("await tools.pay({ euros: 7, to: 'x'.repeat(100) })")
    assert long.error is not None
    assert long.error.message.startswith("tools.pay was not approved: its input takes more than 100 characters to show")
    assert (shown, paid) == (['{"euros": 7.0, "to": "Ann"}'], [7])

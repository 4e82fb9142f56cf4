"""Programs of MCP clients that are in a ledger while their clients answer questions."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from corral import ApprovalRequest, Corral, ExecutionContext, tool
from corral.integrations.mcp import ask_client, mcp_server
from corral.ledger import Ledger, MemoryLedger
from corral.sandboxes import DenoSandbox
from corral.types import MayDecide
from tests.integrations.mcp.serving import Elicitation

pytestmark = pytest.mark.anyio

CODE = """
await tools.put({ n: 1 });
const both = await Promise.allSettled([tools.pay({ n: 2 }), tools.pay({ n: 3 })]);
return both.map((each) => each.value ?? each.reason.message);
"""
GONE = "the program is no longer waiting for this answer"


class World:
    def __init__(self, sandbox: DenoSandbox) -> None:
        self.done: list[int] = []
        self.users = ["ann"]
        self.may_decide: MayDecide | None = None
        self._sandbox = sandbox
        self.ledger: Ledger = MemoryLedger()
        self.holding = anyio.Event()

    async def ask(self, code: str = CODE, *, pays: bool = True, **options: Any) -> Any:
        """Calls a server that is started for this one call, over the same ledger."""

        @tool
        async def put(n: int) -> None:
            self.done.append(n)

        @tool(read_only=True)
        async def hold() -> None:
            self.holding.set()
            await anyio.sleep_forever()

        @tool(needs_approval=True)
        async def pay(n: int) -> int:
            self.done.append(n)
            return n

        async with Corral(
            [put, hold, pay] if pays else [put, hold],
            sandbox=self._sandbox,
            approve=ask_client,
            may_decide=self.may_decide,
            check=False,
            ledger=self.ledger,
        ) as corral:
            scopes = frozenset({"small"})
            server = mcp_server(corral, context=lambda _: ExecutionContext(user_id=self.users[-1], scopes=scopes))
            async with Client(server, elicitation_callback=Elicitation(lambda _: answer(yes=True))) as client:
                return await client.session.call_tool(
                    "execute_code", {"code": code}, allow_input_required=True, **options
                )


def answer(*, yes: bool) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"approve": yes})


def answers(asked: Any, **decisions: bool) -> dict[str, Any]:
    given = {f"approval-{key[1:]}": answer(yes=yes) for key, yes in decisions.items()}
    return {"input_responses": given, "request_state": asked.request_state}


@pytest.fixture
def world(warm_deno: DenoSandbox) -> World:
    return World(warm_deno)


async def test_answers_reach_a_program_after_a_restart_of_the_server(world: World) -> None:
    asked = await world.ask()
    assert world.done == [1]
    assert sorted(asked.input_requests) == ["approval-2", "approval-3"]
    assert '"n": 2' in asked.input_requests["approval-2"].params.message
    for _ in range(2):  # a result that got lost is sent again
        result = await world.ask(**answers(asked, n2=True, n3=False))
        assert result.structured_content["value"] == [2, "tools.pay was not approved"]
        assert world.done == [1, 2]


async def test_a_question_without_an_answer_is_asked_again_after_a_restart(world: World) -> None:
    asked = await world.ask()
    again = await world.ask(**answers(asked, n2=True))
    assert list(again.input_requests) == ["approval-3"]
    assert world.done == [1]
    result = await world.ask(**answers(again, n3=True))
    assert result.structured_content["value"] == [2, 3]
    assert sorted(world.done) == [1, 2, 3]


async def test_only_its_user_with_the_same_program_continues_it(world: World) -> None:
    asked = await world.ask()
    both = answers(asked, n2=True, n3=True)
    others = [await world.ask("return 1", **both), await world.ask(request_state="execution-0000000000000000/1")]
    world.users.append("eve")
    others.append(await world.ask(**both))
    assert [each.structured_content["error"]["message"] for each in others] == [GONE] * 3
    assert world.done == [1]


async def test_a_client_that_may_not_decide_is_told_and_nothing_runs(world: World) -> None:
    def small(call: ApprovalRequest, person: ExecutionContext) -> bool:
        return "small" in person.scopes and call.input["n"] < 3

    world.may_decide = small
    asked = await world.ask()
    refused = await world.ask(**answers(asked, n2=True, n3=True))
    assert refused.is_error
    assert "ann may not decide on call 3, pay, of execution-" in refused.content[0].text
    assert world.done == [1]
    again = await world.ask(**answers(asked, n2=True))
    assert (list(again.input_requests), world.done) == (["approval-3"], [1])


async def test_an_answer_is_for_one_question(world: World) -> None:
    code = "return [await tools.pay({ n: 1 }), await tools.pay({ n: 2 })]"
    first = await world.ask(code)
    one = answers(first, n1=True, n2=True)
    second = await world.ask(code, **one)
    assert list(second.input_requests) == ["approval-2"]
    assert (await world.ask(code, **one)).request_state == second.request_state
    assert world.done == [1]
    result = await world.ask(code, **answers(second, n2=True))
    assert result.structured_content["value"] == [1, 2]


async def test_programs_that_need_no_approval_are_not_recorded(world: World) -> None:
    result = await world.ask("return await tools.put({ n: 1 })", pays=False)
    assert result.structured_content["status"] == "succeeded"
    async with Corral(ledger=world.ledger, check=False) as corral:
        assert await corral.executions.list() == ()


async def test_a_cancelled_request_ends_its_program_for_good(world: World) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.ask, "await tools.hold(); await tools.put({ n: 1 })")
        await world.holding.wait()
        tasks.cancel_scope.cancel()
    async with Corral(ledger=world.ledger, check=False) as corral:
        [execution] = await corral.executions.list()
        record = await corral.executions.get(execution.execution_id)
        assert (record.status, record.result and record.result.status) == ("cancelled", "cancelled")
        assert await corral.executions.resume_lost() == ()

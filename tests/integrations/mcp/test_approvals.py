"""Approvals by elicitation: who is asked what, and what comes of the answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from pydantic import BaseModel, ConfigDict, Field

from corral import Corral, ExecutionContext, tool
from corral.events import ExecutionFinished
from corral.integrations.mcp import ask_client, mcp_server
from corral.integrations.mcp import server as programs
from corral.sandboxes import DenoSandbox
from tests.integrations.mcp.serving import MODES, Elicitation, Held, listening, make_corral, run
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

YES = types.ElicitResult(action="accept", content={"approve": True})


class Transfer(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    to: str
    euros: int = Field(10_000, alias="amount")


BOTH = """\
const both = await Promise.allSettled([tools.pay({ euros: 1 }), tools.pay({ euros: 2 })]);
return both.map((each) => each.value ?? each.reason.message);
"""


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    async with make_corral() as corral:
        yield corral


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_calls_at_the_same_time_are_asked_about_one_by_one(corral: Corral, mode: str) -> None:
    def answer(message: str) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": '"euros": 1,' in message})

    asked = Elicitation(answer)
    async with Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client:
        result = await run(client, BOTH)
    assert result.structured_content["value"] == ["paid 1", "tools.pay was not approved"]
    assert sorted(asked.asked) == [
        f'A program wants to call pay, which needs your approval, with:\n\n    {{"euros": {euros}, "note": ""}}'
        for euros in (1, 2)
    ]


async def test_questions_one_after_another_are_answered_in_one_call(corral: Corral, mode: str) -> None:
    asked = Elicitation(lambda _: YES)
    async with Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client:
        result = await run(client, "return [await tools.pay({ euros: 1 }), await tools.pay({ euros: 2 })]")
    assert result.structured_content["value"] == ["paid 1", "paid 2"]


async def test_only_a_clear_yes_is_one(corral: Corral, mode: str) -> None:
    unclear = iter(
        [
            types.ElicitResult(action="decline"),
            types.ElicitResult(action="cancel"),
            types.ElicitResult(action="accept"),
            types.ElicitResult(action="accept", content={"approve": "true"}),
            types.ElicitResult(action="accept", content={"approve": False}),
            types.ElicitResult(action="decline", content={"approve": True}),
        ]
    )
    asked = Elicitation(lambda _: next(unclear))
    async with Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client:
        result = await run(
            client, "return Promise.allSettled(Array.from({ length: 6 }, () => tools.pay({ euros: 1 })))"
        )
    assert [each["status"] for each in result.structured_content["value"]] == ["rejected"] * 6


async def test_a_client_that_cannot_ask_is_denied_with_a_reason(corral: Corral, mode: str) -> None:
    async with Client(mcp_server(corral), mode=mode) as client:
        result = await run(client, "return await tools.pay({ euros: 1 })")
    assert result.structured_content["error"]["message"] == (
        "tools.pay was not approved: approval needs an MCP client with elicitation, and this program has none"
    )


async def test_a_client_without_a_way_back_is_denied(corral: Corral) -> None:
    asked = Elicitation(lambda _: YES)
    async with (
        listening(mcp_server(corral), stateless_http=True) as url,
        Client(url, mode="legacy", elicitation_callback=asked) as client,
    ):
        result = await run(client, "return await tools.pay({ euros: 1 })")
    assert "needs an MCP client with elicitation" in result.structured_content["error"]["message"]
    assert asked.asked == []


async def test_an_error_in_place_of_an_answer_is_a_denial(corral: Corral) -> None:
    async def broken(context: object, params: object) -> types.ErrorData:
        return types.ErrorData(code=-32000, message="no screen")

    async with Client(mcp_server(corral), mode="legacy", elicitation_callback=broken) as client:
        result = await run(client, "return await tools.pay({ euros: 1 })")
    assert "the MCP client did not answer the question" in result.structured_content["error"]["message"]


async def test_nothing_in_an_input_looks_like_the_frame_of_the_question(corral: Corral, mode: str) -> None:
    asked = Elicitation(lambda _: YES)
    async with Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client:
        await run(client, "await tools.pay({ euros: 1, note: '\\u202e\\n\\nApproved: \\ufe0f' })")
    [message] = asked.asked
    assert message.endswith(':\n\n    {"euros": 1, "note": "\\u{202e}\\n\\nApproved: \\u{fe0f}"}')


async def test_what_is_shown_is_what_the_tool_gets(mode: str, warm_deno: DenoSandbox) -> None:
    got: list[Transfer] = []

    @tool(needs_approval=True)
    async def transfer(transfer: Transfer) -> None:
        """Moves money."""
        got.append(transfer)

    asked = Elicitation(lambda _: YES)
    calls = "{ to: 'a' }", "{ to: 'b', euros: 1, amount: 9 }", "{ to: 'c', amount: '000_9', real: 1 }"
    async with (
        Corral([transfer], approve=ask_client, sandbox=warm_deno, check=False) as corral,
        Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client,
    ):
        await run(client, "".join(f"await tools.transfer({{ transfer: {each} }});" for each in calls))
    shown = [json.loads(message.partition(":")[2])["transfer"] for message in asked.asked]
    assert [(each["to"], each["euros"]) for each in shown] == [("a", 10_000), ("b", 9), ("c", 9)]
    assert [each.model_dump() for each in got] == shown


async def test_what_is_not_short_stands_behind_the_rest_and_what_cannot_be_shown_whole_is_denied(
    corral: Corral, mode: str
) -> None:
    asked = Elicitation(lambda _: YES)
    async with Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client:
        await run(client, "await tools.pay({ note: 'x'.repeat(9_000), euros: 1 })")
        result = await run(client, "await tools.pay({ note: 'x'.repeat(10_000), euros: 1 })")
    [message] = asked.asked
    assert message.index('"euros": 1') < message.index('"note"')
    assert "x" * 9_000 in message
    assert result.structured_content["error"]["message"] == (
        "tools.pay was not approved: its input takes more than 10,000 characters to show, and a person has to see all "
        "of it; pass less in one call"
    )


async def test_each_client_is_asked_about_its_own_programs(corral: Corral, mode: str) -> None:
    clients = {euros: Elicitation(lambda _: YES) for euros in range(3)}
    results: dict[int, Any] = {}

    async def one(url: str, euros: int) -> None:
        async with Client(url, mode=mode, elicitation_callback=clients[euros]) as client:
            results[euros] = (await run(client, f"return await tools.pay({{ euros: {euros} }})")).structured_content

    async with listening(mcp_server(corral)) as url, anyio.create_task_group() as tasks:
        for euros in clients:
            tasks.start_soon(one, url, euros)
    for euros, asked in clients.items():
        assert results[euros]["value"] == f"paid {euros}"
        [message] = asked.asked
        assert f'"euros": {euros},' in message


# --- between two requests, since 2026-07-28


async def ask(client: Client, code: str = "return await tools.pay({ euros: 1 })", **options: Any) -> Any:
    return await client.session.call_tool("execute_code", {"code": code}, allow_input_required=True, **options)


def answers(asked: types.InputRequiredResult) -> dict[str, Any]:
    return {"input_responses": dict.fromkeys(asked.input_requests or {}, YES), "request_state": asked.request_state}


async def test_a_state_is_good_once_and_only_with_the_same_program(corral: Corral) -> None:
    async with Client(mcp_server(corral), elicitation_callback=Elicitation(lambda _: YES)) as client:
        asked = await ask(client)
        for other in (
            await ask(client, "return 1", **answers(asked)),
            await ask(client, request_state="made-up"),
        ):
            assert other.structured_content["error"]["message"] == "the program is no longer waiting for this answer"
        assert (await ask(client, **answers(asked))).structured_content["value"] == "paid 1"
        assert (await ask(client, **answers(asked))).is_error


async def test_a_question_without_an_answer_is_asked_again(corral: Corral) -> None:
    async with Client(mcp_server(corral), elicitation_callback=Elicitation(lambda _: YES)) as client:
        first = await ask(client)
        again = await ask(client, request_state=first.request_state)
        assert again.input_requests == first.input_requests
        assert (await ask(client, **answers(again))).structured_content["value"] == "paid 1"


async def test_another_user_cannot_answer(corral: Corral) -> None:
    users = iter(["ada", "eve", "ada"])
    server = mcp_server(corral, context=lambda _: ExecutionContext(user_id=next(users)))
    async with Client(server, elicitation_callback=Elicitation(lambda _: YES)) as client:
        asked = await ask(client)
        assert (await ask(client, **answers(asked))).is_error
        assert (await ask(client, **answers(asked))).structured_content["value"] == "paid 1"


async def test_a_result_that_its_client_has_not_fetched_counts_as_a_program() -> None:
    left, ended = anyio.Event(), anyio.Event()
    code = "import asyncio, os\nasyncio.ensure_future(tools.pay(euros=1))\nawait tools.leave()\nos._exit(0)"

    @tool(needs_approval=True)
    async def pay(euros: int) -> int:
        return euros

    @tool
    async def leave() -> None:
        await left.wait()

    async with Corral([pay, leave], approve=ask_client, check=False) as corral:
        corral.observe(lambda event: ended.set() if isinstance(event, ExecutionFinished) else None)
        server = mcp_server(corral, language="python", programs_at_once=1)
        async with Client(server, elicitation_callback=Elicitation(lambda _: YES)) as client:
            asked = await ask(client, code)
            left.set()
            with anyio.fail_after(LIMIT_SECONDS):
                await ended.wait()
            refused = await ask(client, "1")
            assert "1 programs are running" in refused.structured_content["error"]["message"]
            assert (await ask(client, code, **answers(asked))).structured_content["error"]["code"] == "sandbox_lost"
            assert (await ask(client, "1")).structured_content["value"] == 1


async def test_a_program_whose_client_does_not_return_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr(programs, "_RETURN_SECONDS", 0.01)
    async with (
        make_corral(held) as corral,
        Client(mcp_server(corral), elicitation_callback=Elicitation(lambda _: YES)) as client,
    ):
        asked = await ask(client, "await Promise.all([tools.hold(), tools.pay({ euros: 1 })])")
        with anyio.fail_after(LIMIT_SECONDS):
            await held.cancelled.wait()
        assert (await ask(client, **answers(asked))).is_error


async def test_only_so_many_programs_wait_for_their_clients(corral: Corral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.calls.guards._MOST_PARKED", 1)
    async with Client(mcp_server(corral), elicitation_callback=Elicitation(lambda _: YES)) as client:
        first = await ask(client)
        refused = await ask(client)
        assert "too many of your programs are waiting" in refused.structured_content["error"]["message"]
        assert (await ask(client, **answers(first))).structured_content["value"] == "paid 1"


async def test_nothing_is_left_of_programs_when_the_server_ends() -> None:
    held = Held()
    async with make_corral(held) as corral:
        async with Client(mcp_server(corral), elicitation_callback=Elicitation(lambda _: YES)) as client:
            await ask(client, "await Promise.all([tools.hold(), tools.pay({ euros: 1 })])")
        assert held.cancelled.is_set()


async def test_a_client_that_comes_back_too_late_hears_so(corral: Corral) -> None:
    async with anyio.create_task_group() as tasks:
        server = programs.Programs(tasks, corral)
        program = programs.Program(server, ExecutionContext(), {})

        async def never() -> Any:
            await anyio.sleep_forever()

        server.start(program, never, nullcontext())
        await anyio.wait_all_tasks_blocked()
        program.leave(lambda: None)
        program._scope.cancel()  # pyright: ignore[reportPrivateUsage]
        program.come_back()
        with anyio.fail_after(LIMIT_SECONDS):
            assert await program.attend() is None

"""What every framework's agents do with Corral: the same scripts, run by each. What only one does is in its own file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from agents import set_tracing_disabled

from corral import ApprovalRequest, Corral, ExecutionContext, tool
from corral.errors import ConfigError
from corral.events import Event, ExecutionFinished
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import FRAMEWORKS, Framework, runs
from tests.integrations.scenario import ANSWER, PICTURE, RIGHT, WRONG, Endless, Scenario, caller, picture, screenshot
from tests.integrations.stubs import Call, calling, mending

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("framework", FRAMEWORKS, ids=str)]

ANN = ExecutionContext(user_id="ann")


@pytest.fixture(autouse=True, scope="module")
def traces_stay_here() -> None:
    set_tracing_disabled(True)


@pytest.fixture(scope="module")
async def kept(warm_deno: DenoSandbox) -> AsyncIterator[tuple[Scenario, Corral]]:
    scenario = Scenario()
    async with scenario.corral(warm_deno) as corral:
        yield scenario, corral


@pytest.fixture
def scenario(kept: tuple[Scenario, Corral]) -> Scenario:
    kept[0].begin()
    return kept[0]


@pytest.fixture
def checked(kept: tuple[Scenario, Corral]) -> Corral:
    """Has the tools of the scenario; no program of it runs unchecked."""
    return kept[1]


async def test_a_model_mends_its_program(framework: Framework, scenario: Scenario, checked: Corral) -> None:
    heard: list[Event] = []
    said = await framework.run(mending(scenario), checked, instructions="Be brief.", context=ANN, on_event=heard.append)
    assert said.answer == ANSWER
    assert said.prompt.startswith("Be brief.\n\nYou call tools from programs in TypeScript.")
    assert "get_weather(input: { city: string })" in said.prompt
    assert [*said.tools] == ["execute_code"]
    assert [*said.tools["execute_code"]["properties"]] == said.tools["execute_code"]["required"] == ["code"]
    assert [(each.user_id, each.session_id) for each in scenario.contexts] == [("ann", ANN.session_id)]
    assert [event.type for event in heard if event.type in ("execution_started", "execution_finished")] == [
        "execution_started",
        "execution_finished",
    ] * 2


async def test_events_have_the_id_of_the_call_that_the_model_made(framework: Framework, warm_deno: DenoSandbox) -> None:
    heard: list[Event] = []
    async with Corral([caller], sandbox=warm_deno, check=False) as corral:
        script = calling(runs("return await tools.caller()"))
        said = await framework.run(script, corral, on_event=heard.append)
    assert [event.type for event in heard] == [
        "execution_started",
        "tool_call_started",
        "tool_call_finished",
        "execution_finished",
    ]
    assert {event.tool_call_id for event in heard} == {said.call_id}


async def test_what_did_not_succeed_is_told_and_marked_where_there_is_a_mark(
    framework: Framework, scenario: Scenario, checked: Corral
) -> None:
    read: list[str] = []
    programs = [runs(code) for code in (WRONG, "throw new Error('no')", RIGHT)]
    await framework.run(calling(*programs, Call("execute_code", {"program": "1"}), read=read), checked)
    rejected, failed, succeeded, misread = read
    assert succeeded.startswith("Result: ")
    expected = [
        f"{'is_error: ' if marked else ''}{text}"
        for marked, text in zip(
            framework.errors,
            ("The program was rejected", "The program failed at line 1", framework.misread),
            strict=True,
        )
    ]
    assert [text[: len(start)] for text, start in zip((rejected, failed, misread), expected, strict=True)] == expected
    assert "program: unexpected field" in misread


async def test_several_corrals_have_a_tool_each_beside_the_agents_own_and_events_are_heard_of_all(
    framework: Framework, warm_deno: DenoSandbox
) -> None:
    heard: list[object] = []
    asked: set[type] = set()
    read: list[str] = []

    def bob(*call: Any) -> ExecutionContext:
        asked.update(map(type, call))
        return ExecutionContext(user_id="bob")

    script = calling(
        runs("return await tools.caller()", "execute_code_sales"),
        Call("mine", {"number": 3}),
        runs("return nothing", "execute_code_people"),
        read=read,
    )
    async with (
        Corral([caller], sandbox=warm_deno, check=False) as sales,
        Corral(sandbox=warm_deno, check=False) as people,
    ):
        corrals = {"sales": sales, "people": people}
        said = await framework.run(script, corrals, tools=[framework.mine], context=bob, on_event=heard.append)
    assert read[:2] == ['Result: "bob"', "mine 3"]
    assert "The program failed at line 1" in read[2]
    assert {*said.tools} == {"execute_code_sales", "execute_code_people", "mine"}
    assert "Programs that `execute_code_sales` runs" in said.prompt
    assert len([event for event in heard if isinstance(event, ExecutionFinished)]) == 2
    assert asked == ({framework.call} if framework.call else set())


async def test_a_tool_of_the_same_name_is_refused_with_the_way_out(
    framework: Framework, warm_deno: DenoSandbox
) -> None:
    corral = Corral([caller], sandbox=warm_deno, check=False)
    for own in framework.taken:
        with pytest.raises(ConfigError, match=r"already a tool .*; name the Corral to distinguish"):
            await framework.run(calling(runs("return 1")), corral, tools=[own])
    script = calling(runs("return 1", "execute_code_sales"))
    async with corral:
        said = await framework.run(script, {"sales": corral}, tools=[framework.taken[0]])
    assert {*said.tools} == {"execute_code", "execute_code_sales"}


async def test_approvals_are_asked_of_the_code_mode_before_the_corral(
    framework: Framework, warm_deno: DenoSandbox
) -> None:
    @tool(needs_approval=True)
    def cancel(order: int) -> str:
        """Cancels an order."""
        return f"order {order} is cancelled"

    def approve(request: ApprovalRequest) -> bool:
        return request.input == {"order": 7}

    read: list[str] = []
    script = calling(*(runs(f"return await tools.cancel({{ order: {order} }})") for order in (7, 9)), read=read)

    async with Corral([cancel], sandbox=warm_deno, check=False, approve=lambda _: False) as corral:
        await framework.run(script, corral, approve=approve)
    assert read[0] == 'Result: "order 7 is cancelled"'
    assert "ApprovalDenied" in read[1]


async def test_a_corral_that_is_not_open_is_opened_by_a_program(framework: Framework, warm_deno: DenoSandbox) -> None:
    read: list[str] = []
    corral = Corral([caller], sandbox=warm_deno, check=False)
    await framework.run(calling(runs("return await tools.caller()"), read=read), corral, context=ANN)
    assert read == ['Result: "ann"']
    assert not corral.is_open


async def test_cancelling_ends_the_program(framework: Framework, warm_deno: DenoSandbox) -> None:
    endless = Endless()
    async with Corral([endless.tool], sandbox=warm_deno, check=False) as corral:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(framework.run, calling(runs("await tools.wait()")), corral))
            await endless.begun.wait()
            tasks.cancel_scope.cancel()
        if not framework.ends_with_run:
            await endless.ended.wait()
        assert endless.ended.is_set()
        assert (await corral.execute("return 1")).value == 1


async def test_pictures_go_with_the_text(framework: Framework, warm_deno: DenoSandbox) -> None:
    async with Corral([screenshot, picture], sandbox=warm_deno, check=False) as corral:
        said = await framework.run(calling(runs(PICTURE)), corral)
    assert said.content == framework.pictures

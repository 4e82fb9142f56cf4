"""Corral for agents of Google's ADK, with a model that follows a script."""

from __future__ import annotations

import pytest
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.tool_context import ToolContext

from corral import Corral, ExecutionContext, tool
from corral.integrations.google_adk import CodeMode
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import GoogleModel, ask_google, runs
from tests.integrations.scenario import Scenario
from tests.integrations.stubs import calling, turns

pytestmark = pytest.mark.anyio


async def test_programs_run_for_the_user_and_the_session_or_whom_the_state_says(warm_deno: DenoSandbox) -> None:
    @tool
    async def who(*, context: ExecutionContext) -> list[str | None]:
        return [context.user_id, context.session_id]

    def of_state(call: ToolContext) -> ExecutionContext:
        return ExecutionContext(user_id=call.state["account"], session_id="s-2")

    read: list[str] = []
    async with Corral([who], sandbox=warm_deno, check=False) as corral:
        for context in (None, of_state):
            script = calling(runs("return await tools.who()"), read=read)
            await ask_google(GoogleModel(script=script), CodeMode(corral, context=context).kwargs(), {"account": "bob"})
    assert read == ['Result: ["ann","s-1"]', 'Result: ["bob","s-2"]']


async def test_braces_of_declarations_are_no_variables_and_those_of_an_own_instruction_are(
    warm_deno: DenoSandbox,
) -> None:
    @tool
    async def weather(city: str) -> dict[str, float]:
        """The weather, {city}."""
        return {}

    async def provider(context: ReadonlyContext) -> str:
        return f"Speak {context.state['language']} {{so}}."

    async with Corral([weather], sandbox=warm_deno, check=False) as corral:
        for own in ("Speak {language}.", provider):
            model = GoogleModel(script=turns("Hei."))
            await ask_google(model, CodeMode(corral).kwargs(instruction=own), {"language": "Norwegian"})
            told = model.requests[0].config.model_dump(exclude_none=True)["system_instruction"]
            assert told.startswith("Speak Norwegian")
            assert "weather(input: { city: string }): Promise<Record<string, number>>" in told
            assert "The weather, {city}." in told


async def test_programs_of_one_turn_run_at_the_same_time(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()  # whose tools wait for each other
    texts: list[str] = []
    programs = [
        runs(f'return await tools.{name}({{ city: "Oslo" }})')
        for name in ("get_weather", "get_population", "get_timezone")
    ]
    async with Corral(scenario.tools, sandbox=warm_deno, check=False) as corral:
        await ask_google(GoogleModel(script=calling(*programs, read=texts)), CodeMode(corral).kwargs())
    assert texts == ['Result: {"degrees":-2.5}', "Result: 709000", 'Result: "Europe/Oslo"']

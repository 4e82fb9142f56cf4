"""Corral for agents of Google's ADK, with a model that follows a script."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.tool_context import ToolContext
from google.genai.types import Content, Part
from pydantic import Field

from corral import Corral, Event, ExecutionContext, ExecutionFinished, tool
from corral.errors import ConfigError
from corral.integrations.google_adk import code_mode
from corral.sandboxes import DenoSandbox
from tests.integrations.scenario import (
    ANSWER,
    PICTURE,
    PICTURE_TEXT,
    PNG,
    QUESTION,
    Endless,
    Scenario,
    picture,
    screenshot,
)
from tests.integrations.stubs import Call, Script, Turn, calling, mending

pytestmark = pytest.mark.anyio


class ScriptedModel(BaseLlm):
    model: str = "scripted"
    script: Any
    requests: list[LlmRequest] = Field(default_factory=list[LlmRequest])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append(llm_request)
        turn: Turn = self.script.send(read(llm_request)) if len(self.requests) > 1 else next(self.script)
        parts = (
            [Part(text=turn)]
            if isinstance(turn, str)
            else [Part.from_function_call(name=call.name, args=call.arguments) for call in turn]
        )
        yield LlmResponse(content=Content(role="model", parts=parts))


def read(request: LlmRequest) -> list[str]:
    """What came of the last calls; an error is marked as one."""
    responses = [part.function_response for part in request.contents[-1].parts or []]
    return [
        "".join(f"{'error: ' if key == 'error' else ''}{text}" for key, text in (response.response or {}).items())
        for response in responses
        if response is not None
    ]


def saying(text: str) -> Script:
    yield text


async def run(script: Script, options: Any, state: dict[str, Any] | None = None) -> tuple[str, list[LlmRequest]]:
    """The last text of an agent, and what its model was asked."""
    model = ScriptedModel(script=script)
    agent = LlmAgent(name="agent", model=model, **options)
    async with InMemoryRunner(agent=agent, app_name="tests") as runner:
        await runner.session_service.create_session(app_name="tests", user_id="ann", session_id="s-1", state=state)
        text = ""
        question = Content(role="user", parts=[Part(text=QUESTION)])
        async for event in runner.run_async(user_id="ann", session_id="s-1", new_message=question):
            text = "".join(part.text or "" for part in (event.content.parts if event.content else None) or [])
    return text, model.requests


def sent(request: LlmRequest) -> dict[str, Any]:
    """The instruction and the tools of a request."""
    return request.config.model_dump(exclude_none=True)


async def test_a_model_mends_its_program_for_the_user_of_the_session(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with scenario.corral(warm_deno) as corral:
        text, requests = await run(mending(scenario), code_mode(corral))
    assert text == ANSWER
    assert [(context.user_id, context.session_id) for context in scenario.contexts] == [("ann", "s-1")]
    [declared] = sent(requests[0])["tools"][0]["function_declarations"]
    assert declared["name"] == "execute_code"
    assert declared["parameters_json_schema"]["required"] == ["code"]


async def test_events_have_the_id_of_the_call_that_the_model_made(warm_deno: DenoSandbox) -> None:
    heard: list[Event] = []
    async with Corral(sandbox=warm_deno, check=False) as corral:
        script = calling(Call("execute_code", {"code": "return 1"}))
        agent = LlmAgent(name="agent", model=ScriptedModel(script=script), **code_mode(corral, on_event=heard.append))
        async with InMemoryRunner(agent=agent, app_name="tests") as runner:
            await runner.session_service.create_session(app_name="tests", user_id="ann", session_id="s-1")
            question = Content(role="user", parts=[Part(text=QUESTION)])
            events = [event async for event in runner.run_async(user_id="ann", session_id="s-1", new_message=question)]
    [made] = [call.id for event in events for call in event.get_function_calls()]
    assert made
    assert {each.tool_call_id for each in heard} == {made}


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
            _, [request] = await run(saying("Hei."), code_mode(corral, instruction=own), {"language": "Norwegian"})
            told = sent(request)["system_instruction"]
            assert told.startswith("Speak Norwegian")
            assert "weather(input: { city: string }): Promise<Record<string, number>>" in told
            assert "The weather, {city}." in told


async def test_programs_of_one_turn_run_at_the_same_time(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()  # whose tools wait for each other
    texts: list[str] = []
    programs = [
        Call("execute_code", {"code": f'return await tools.{name}({{ city: "Oslo" }})'})
        for name in ("get_weather", "get_population", "get_timezone")
    ]
    async with Corral(scenario.tools, sandbox=warm_deno, check=False) as corral:
        await run(calling(*programs, read=texts), code_mode(corral))
    assert texts == ['Result: {"degrees":-2.5}', "Result: 709000", 'Result: "Europe/Oslo"']


async def test_several_corrals_have_a_tool_each_beside_the_callers_own_and_events_are_heard_of_all(
    warm_deno: DenoSandbox,
) -> None:
    @tool
    async def who(*, context: ExecutionContext) -> str:
        return context.user_id

    def mine(number: int) -> dict[str, int]:
        """Mine."""
        return {"mine": number}

    def context(call: ToolContext) -> ExecutionContext:
        return ExecutionContext(user_id=call.state["account"])

    heard: list[object] = []
    texts: list[str] = []
    calls = [
        Call("execute_code_sales", {"code": "return await tools.who()"}),
        Call("mine", {"number": 3}),
        Call("execute_code_people", {"code": "return nothing"}),
    ]
    async with Corral([who], sandbox=warm_deno, check=False) as sales, Corral(sandbox=warm_deno, check=False) as people:
        options = code_mode({"sales": sales, "people": people}, tools=[mine], context=context, on_event=heard.append)
        await run(calling(*calls, read=texts), options, {"account": "bob"})
    assert texts[:2] == ['Result: "bob"', "3"]
    assert texts[2].startswith("error: The program failed at line 1")
    assert len([event for event in heard if isinstance(event, ExecutionFinished)]) == 2


async def test_a_tool_of_the_same_name_is_an_error_that_names_the_fix(warm_deno: DenoSandbox) -> None:
    def execute_code() -> None: ...

    with pytest.raises(ConfigError, match=r"name the Corral, \{'name': corral\}"):
        code_mode(Corral(sandbox=warm_deno, check=False), tools=[execute_code])


async def test_cancelling_ends_the_program(warm_deno: DenoSandbox) -> None:
    endless = Endless()
    async with Corral([endless.tool], sandbox=warm_deno, check=False) as corral:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, calling(Call("execute_code", {"code": "await tools.wait()"})), code_mode(corral))
            await endless.begun.wait()
            tasks.cancel_scope.cancel()
        assert endless.ended.is_set()
        assert (await corral.execute("return 1")).value == 1


async def test_pictures_go_with_the_text(warm_deno: DenoSandbox) -> None:
    async with Corral([screenshot, picture], sandbox=warm_deno, check=False) as corral:
        _, requests = await run(calling(Call("execute_code", {"code": PICTURE})), code_mode(corral))
    [part] = requests[-1].contents[-1].parts or []
    assert part.function_response is not None
    assert part.function_response.response == {"result": PICTURE_TEXT}
    blobs = [each.inline_data for each in part.function_response.parts or []]
    assert [(blob.mime_type, blob.data) for blob in blobs if blob is not None] == [("image/png", PNG)] * 2

"""Corral for the OpenAI SDK by itself, against its two APIs on loopback."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI

from corral import Corral, Event, ExecutionContext, ExecutionFinished, ToolCallStarted, tool
from corral.errors import ConfigError
from corral.integrations.openai import CodeMode, code_mode
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
from tests.integrations.stubs import Call, Script, Stub, calling, mending, stub

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def api(script: Script) -> AsyncGenerator[tuple[AsyncOpenAI, Stub]]:
    with stub(script) as model:
        async with AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=0) as client:
            yield client, model


async def responses(client: AsyncOpenAI, kit: CodeMode, context: ExecutionContext | None = None) -> str:
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        response = await client.responses.create(
            model="scripted", instructions=kit.instructions, tools=kit.tools, input=items
        )
        outputs = await kit.outputs(response, context)
        if not outputs:
            return response.output_text
        items += [*response.output, *outputs]


async def test_a_model_mends_its_program_over_the_responses_api(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with api(mending(scenario)) as (client, model), scenario.corral(warm_deno) as corral:
        context = ExecutionContext(user_id="ann")
        assert await responses(client, code_mode(corral, instructions="Be brief.", context=context)) == ANSWER
    first = model.requests[0]
    assert first["instructions"].startswith("Be brief.\n\nYou call tools from programs in TypeScript.")
    assert "get_weather(input: { city: string })" in first["instructions"]
    [given] = first["tools"]
    assert (given["type"], given["name"], given["strict"]) == ("function", "execute_code", False)
    assert scenario.contexts == [context]


async def test_a_model_mends_its_program_over_chat_completions(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with api(mending(scenario)) as (client, model), scenario.corral(warm_deno) as corral:
        kit = code_mode(corral)
        messages: list[Any] = [{"role": "system", "content": kit.instructions}, {"role": "user", "content": QUESTION}]
        outputs: list[Any] = [...]
        answer = None
        while outputs:
            completion = await client.chat.completions.create(model="scripted", messages=messages, tools=kit.chat_tools)
            answer = completion.choices[0].message
            outputs = await kit.outputs(completion)
            messages += [answer, *outputs]
    assert answer is not None
    assert answer.content == ANSWER
    assert model.requests[0]["tools"][0]["function"]["name"] == "execute_code"


async def test_events_have_the_id_of_the_call_that_the_model_made_over_both_apis(warm_deno: DenoSandbox) -> None:
    heard: list[Event] = []
    async with Corral(sandbox=warm_deno, check=False) as corral:
        kit = code_mode(corral, on_event=heard.append)
        async with api(calling(Call("execute_code", {"code": "return 1"}))) as (client, _):
            response = await client.responses.create(model="scripted", tools=kit.tools, input=QUESTION)
            [output] = await kit.outputs(response)
            assert {each.tool_call_id for each in heard} == {output.get("call_id")} == {"call_1_0"}
        heard.clear()
        async with api(calling(Call("execute_code", {"code": "return 1"}))) as (client, _):
            asked: list[Any] = [{"role": "user", "content": QUESTION}]
            completion = await client.chat.completions.create(model="scripted", messages=asked, tools=kit.chat_tools)
            [message] = await kit.outputs(completion)
            assert {each.tool_call_id for each in heard} == {message["tool_call_id"]} == {"call_1_0"}


async def test_all_programs_of_a_response_run_at_the_same_time_and_others_calls_are_left(
    warm_deno: DenoSandbox,
) -> None:
    scenario = Scenario()  # whose tools wait for each other
    programs = [
        Call("execute_code", {"code": f'return await tools.{name}({{ city: "Oslo" }})'})
        for name in ("get_weather", "get_population", "get_timezone")
    ]
    async with (
        api(calling(programs[0], Call("mine", {}), *programs[1:])) as (client, _),
        Corral(scenario.tools, sandbox=warm_deno, check=False) as corral,
    ):
        kit = code_mode(corral, tools=[{"type": "function", "name": "mine", "parameters": {}, "strict": False}])
        assert [tool.get("name") for tool in kit.tools] == ["execute_code", "mine"]
        response = await client.responses.create(model="scripted", tools=kit.tools, input=QUESTION)
        assert await kit.call(response.output[1]) is None
        outputs = await kit.outputs(response)
    assert [output.get("call_id") for output in outputs] == ["call_1_0", "call_1_2", "call_1_3"]
    assert [output["output"] for output in outputs] == [
        'Result: {"degrees":-2.5}',
        "Result: 709000",
        'Result: "Europe/Oslo"',
    ]


async def test_a_context_is_fixed_or_found_out_from_the_call_or_given_with_it(warm_deno: DenoSandbox) -> None:
    @tool
    async def who(*, context: ExecutionContext) -> str:
        return context.user_id

    program = Call("execute_code", {"code": "return await tools.who()"})
    async with api(calling(program)) as (client, _), Corral([who], sandbox=warm_deno, check=False) as corral:
        response = await client.responses.create(model="scripted", input=QUESTION)
        by_call = code_mode(corral, context=lambda call: ExecutionContext(user_id=type(call).__name__))
        [found] = await by_call.outputs(response)
        [given] = await by_call.outputs(response, ExecutionContext(user_id="ann"))
    assert found["output"] == 'Result: "ResponseFunctionToolCall"'
    assert given["output"] == 'Result: "ann"'


async def test_several_corrals_have_a_tool_each_and_events_are_heard_of_all(warm_deno: DenoSandbox) -> None:
    @tool
    async def count() -> int:
        return 7

    @tool
    async def names() -> list[str]:
        return ["Ann"]

    heard: list[object] = []
    sales = Call("execute_code_sales", {"code": "return await tools.count()"})
    people = Call("execute_code_people", {"code": "return await tools.names()"})
    read: list[str] = []
    async with (
        api(calling(sales, people, read=read)) as (client, _),
        Corral([count], sandbox=warm_deno, check=False) as first,
        Corral([names], sandbox=warm_deno, check=False) as second,
    ):
        kit = code_mode({"sales": first, "people": second}, on_event=heard.append)
        assert "Programs that `execute_code_sales` runs have these tools" in kit.instructions
        await responses(client, kit)
    assert read == ["Result: 7", 'Result: ["Ann"]']
    assert len([event for event in heard if isinstance(event, ExecutionFinished)]) == 2
    assert {event.call.name for event in heard if isinstance(event, ToolCallStarted)} == {"count", "names"}


async def test_arguments_that_are_not_json_are_answered_with_what_is_wrong(warm_deno: DenoSandbox) -> None:
    async with api(calling(Call("execute_code", {}))) as (client, _), Corral(sandbox=warm_deno, check=False) as corral:
        response = await client.responses.create(model="scripted", input=QUESTION)
        [call] = response.output
        output = await code_mode(corral).call(call.model_copy(update={"arguments": '{"code": "return 1'}))
    assert output is not None
    assert "rejected; nothing ran" in str(output)


async def test_a_corral_that_is_closed_is_the_operators_to_mend(warm_deno: DenoSandbox) -> None:
    async with api(calling(*[Call("execute_code", {"code": "return 1"})] * 2)) as (client, _):
        async with Corral(sandbox=warm_deno, check=False) as corral:
            kit = code_mode(corral)
        response = await client.responses.create(model="scripted", input=QUESTION)
        with pytest.raises(ConfigError, match="closed"):
            await kit.outputs(response)


@pytest.mark.parametrize(
    "own",
    [{"type": "function", "name": "execute_code"}, {"type": "function", "function": {"name": "execute_code"}}],
)
async def test_a_tool_of_the_same_name_is_an_error_that_names_the_fix(
    own: dict[str, Any], warm_deno: DenoSandbox
) -> None:
    with pytest.raises(ConfigError, match=r"name the Corral, \{'name': corral\}"):
        code_mode(Corral(sandbox=warm_deno, check=False), tools=[own])
    assert (
        code_mode({"sales": Corral(sandbox=warm_deno, check=False)}, tools=[own]).tools[0].get("name")
        == "execute_code_sales"
    )


async def test_cancelling_ends_the_programs(warm_deno: DenoSandbox) -> None:
    endless = Endless()
    program = Call("execute_code", {"code": "await tools.wait()"})
    async with api(calling(program)) as (client, _), Corral([endless.tool], sandbox=warm_deno, check=False) as corral:
        response = await client.responses.create(model="scripted", input=QUESTION)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(code_mode(corral).outputs, response)
            await endless.begun.wait()
            tasks.cancel_scope.cancel()
        assert endless.ended.is_set()
        assert (await corral.execute("return 1")).value == 1


async def test_pictures_go_with_a_text_over_the_responses_api_and_a_chat_gets_the_text(warm_deno: DenoSandbox) -> None:
    script = calling(Call("execute_code", {"code": PICTURE}))
    async with api(script) as (client, model), Corral([screenshot, picture], sandbox=warm_deno, check=False) as corral:
        await responses(client, code_mode(corral))
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}
    assert model.requests[-1]["input"][-1]["output"] == [{"type": "input_text", "text": PICTURE_TEXT}, image, image]
    async with (
        api(calling(Call("execute_code", {"code": PICTURE}))) as (client, _),
        Corral([screenshot, picture], sandbox=warm_deno, check=False) as c,
    ):
        completion = await client.chat.completions.create(model="scripted", messages=[])
        [output] = await code_mode(c).outputs(completion)
    assert output["content"] == PICTURE_TEXT

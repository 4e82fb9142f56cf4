"""Corral for the tool runner of Anthropic's SDK, against its API on loopback."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anthropic import AsyncAnthropic, beta_async_tool
from anthropic.types.beta import BetaMessageParam

from corral import Corral, Event, ExecutionContext, ExecutionFinished, tool
from corral.errors import ConfigError
from corral.integrations.anthropic import RunnerParts, code_mode
from corral.sandboxes import DenoSandbox
from tests.integrations.scenario import (
    ANSWER,
    PICTURE,
    PICTURE_TEXT,
    PNG,
    QUESTION,
    RIGHT,
    WRONG,
    Endless,
    Scenario,
    picture,
    screenshot,
)
from tests.integrations.stubs import Call, Script, Stub, calling, mending, stub

pytestmark = pytest.mark.anyio

MESSAGES: list[BetaMessageParam] = [{"role": "user", "content": QUESTION}]


@asynccontextmanager
async def api(script: Script) -> AsyncGenerator[tuple[AsyncAnthropic, Stub]]:
    with stub(script) as model:
        async with AsyncAnthropic(base_url=model.url, api_key="none", max_retries=0) as client:
            yield client, model


async def run(client: AsyncAnthropic, options: RunnerParts) -> str:
    """The text of the last message."""
    runner = client.beta.messages.tool_runner(model="scripted", max_tokens=1_000, messages=MESSAGES, **options)
    message = await runner.until_done()
    return "".join(block.text for block in message.content if block.type == "text")


async def test_a_model_mends_its_program(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    context = ExecutionContext(user_id="ann")
    async with api(mending(scenario)) as (client, model), scenario.corral(warm_deno) as corral:
        assert await run(client, code_mode(corral, system="Be brief.", context=context)) == ANSWER
    first = model.requests[0]
    assert first["system"].startswith("Be brief.\n\nYou call tools from programs in TypeScript.")
    assert "get_weather(input: { city: string })" in first["system"]
    [given] = first["tools"]
    assert given["name"] == "execute_code"
    assert given["input_schema"]["required"] == ["code"]
    assert scenario.contexts == [context]


async def test_a_model_mends_its_program_while_its_replies_stream(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with api(mending(scenario)) as (client, model), scenario.corral(warm_deno) as corral:
        runner = client.beta.messages.tool_runner(
            model="scripted", max_tokens=1_000, messages=MESSAGES, stream=True, **code_mode(corral)
        )
        texts = [[text async for text in stream.text_stream] async for stream in runner]
    assert ["".join(text) for text in texts] == ["", "", ANSWER]
    assert model.requests[0]["stream"] is True


async def test_a_program_that_did_not_succeed_is_a_result_that_is_an_error(warm_deno: DenoSandbox) -> None:
    read: list[str] = []
    programs = [Call("execute_code", {"code": code}) for code in (WRONG, "throw new Error('no')", RIGHT)]
    scenario = Scenario()
    async with (
        api(calling(*programs, Call("execute_code", {"program": "1"}), read=read)) as (client, _),
        scenario.corral(warm_deno) as corral,
    ):
        await run(client, code_mode(corral))
    rejected, failed, succeeded, misread = read
    assert rejected.startswith("is_error: The program was rejected")
    assert failed.startswith("is_error: The program failed at line 1")
    assert succeeded.startswith("Result: ")
    assert misread.startswith("is_error: The call was rejected; nothing ran.")
    assert "program: unexpected field" in misread


async def test_events_have_no_id_of_the_call_because_the_sdk_tells_a_tool_none(warm_deno: DenoSandbox) -> None:
    heard: list[Event] = []
    async with (
        api(calling(Call("execute_code", {"code": "return 1"}))) as (client, _),
        Corral(sandbox=warm_deno, check=False) as corral,
    ):
        await run(client, code_mode(corral, on_event=heard.append))
    assert {each.tool_call_id for each in heard} == {None}


async def test_what_the_operator_must_mend_is_logged_and_told_by_the_runner(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    read: list[str] = []
    async with api(calling(Call("execute_code", {"code": "return 1"}), read=read)) as (client, _):
        async with Corral(sandbox=warm_deno, check=False) as corral:
            options = code_mode(corral)
        await run(client, options)
    assert read == ["is_error: ConfigError('this Corral is closed')"]
    assert "Error occurred while calling tool: execute_code" in caplog.text


async def test_what_the_provider_may_keep_ends_with_the_system_prompt(warm_deno: DenoSandbox) -> None:
    async with Corral(sandbox=warm_deno, check=False) as corral:
        options = code_mode(corral, system="Be brief.", cache_control={"type": "ephemeral"})
        assert options["system"] == [
            {
                "type": "text",
                "text": code_mode(corral, system="Be brief.")["system"],
                "cache_control": {"type": "ephemeral"},
            }
        ]
        async with api(calling(Call("execute_code", {"code": "return 1"}))) as (client, model):
            await run(client, options)
    assert model.requests[0]["system"] == options["system"]


async def test_several_corrals_have_a_tool_each_beside_the_callers_own_and_events_are_heard_of_all(
    warm_deno: DenoSandbox,
) -> None:
    @tool
    async def who(*, context: ExecutionContext) -> str:
        return context.user_id

    @beta_async_tool
    async def mine(number: int) -> str:
        """Mine."""
        return f"mine {number}"

    heard: list[object] = []
    calls = [
        Call("execute_code_sales", {"code": "return await tools.who()"}),
        Call("mine", {"number": 3}),
        Call("execute_code_people", {"code": "return Object.keys(tools)"}),
    ]
    read: list[str] = []
    async with (
        api(calling(*calls, read=read)) as (client, model),
        Corral([who], sandbox=warm_deno, check=False) as sales,
        Corral(sandbox=warm_deno, check=False) as people,
    ):
        options = code_mode(
            {"sales": sales, "people": people},
            tools=[mine, {"type": "web_search_20250305", "name": "web_search"}],
            context=lambda: ExecutionContext(user_id="bob"),
            on_event=heard.append,
        )
        assert await run(client, options) == "Done."
    assert read == ['Result: "bob"', "mine 3", "Result: []"]
    assert [each["name"] for each in model.requests[0]["tools"]] == [
        "execute_code_sales",
        "execute_code_people",
        "mine",
        "web_search",
    ]
    assert len([event for event in heard if isinstance(event, ExecutionFinished)]) == 2


async def test_a_tool_of_the_same_name_is_an_error_that_names_the_fix(warm_deno: DenoSandbox) -> None:
    @beta_async_tool(name="execute_code")
    async def mine() -> str:
        """Mine."""
        return ""

    for own in (mine, {"name": "execute_code", "input_schema": {"type": "object"}}):
        with pytest.raises(ConfigError, match=r"name the Corral, \{'name': corral\}"):
            code_mode(Corral(sandbox=warm_deno, check=False), tools=[own])


async def test_cancelling_ends_the_program(warm_deno: DenoSandbox) -> None:
    endless = Endless()
    program = Call("execute_code", {"code": "await tools.wait()"})
    async with api(calling(program)) as (client, _), Corral([endless.tool], sandbox=warm_deno, check=False) as corral:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, client, code_mode(corral))
            await endless.begun.wait()
            tasks.cancel_scope.cancel()
        assert endless.ended.is_set()
        assert (await corral.execute("return 1")).value == 1


async def test_pictures_go_with_the_text(warm_deno: DenoSandbox) -> None:
    script = calling(Call("execute_code", {"code": PICTURE}))
    async with api(script) as (client, model), Corral([screenshot, picture], sandbox=warm_deno, check=False) as corral:
        await run(client, code_mode(corral))
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    image = {"type": "image", "source": source}
    [answer] = model.requests[-1]["messages"][-1]["content"]
    assert answer["content"] == [{"type": "text", "text": PICTURE_TEXT}, image, image]

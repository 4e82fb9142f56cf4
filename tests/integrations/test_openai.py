"""Corral for the OpenAI SDK by itself, against its two APIs on loopback."""

from __future__ import annotations

import pytest

from corral import Corral, ExecutionContext
from corral.integrations.openai import CodeMode
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import openai_api, runs
from tests.integrations.scenario import QUESTION, Scenario, caller
from tests.integrations.stubs import Call, calling

pytestmark = pytest.mark.anyio


async def test_all_programs_of_a_response_run_at_the_same_time_and_others_calls_are_left(
    warm_deno: DenoSandbox,
) -> None:
    scenario = Scenario()  # whose tools wait for each other
    programs = [
        runs(f'return await tools.{name}({{ city: "Oslo" }})')
        for name in ("get_weather", "get_population", "get_timezone")
    ]
    async with (
        openai_api(calling(programs[0], Call("mine", {}), *programs[1:])) as (client, _),
        Corral(scenario.tools, sandbox=warm_deno, check=False) as corral,
    ):
        kit = CodeMode(corral)
        request = kit.kwargs(tools=[{"type": "function", "name": "mine", "parameters": {}, "strict": False}])
        assert [tool.get("name") for tool in request["tools"]] == ["execute_code", "mine"]
        assert request["tools"][0].get("strict") is False
        response = await client.responses.create(model="scripted", input=QUESTION, **request)
        assert await kit.call(response.output[1]) is None
        outputs = await kit.outputs(response)
    assert [output.get("call_id") for output in outputs] == ["call_1_0", "call_1_2", "call_1_3"]
    assert [output["output"] for output in outputs] == [
        'Result: {"degrees":-2.5}',
        "Result: 709000",
        'Result: "Europe/Oslo"',
    ]


async def test_a_context_that_is_given_with_a_response_is_the_one_that_counts(warm_deno: DenoSandbox) -> None:
    script = calling(runs("return await tools.caller()"))
    async with openai_api(script) as (client, _), Corral([caller], sandbox=warm_deno, check=False) as corral:
        kit = CodeMode(corral, context=lambda call: ExecutionContext(user_id="bob"))
        response = await client.responses.create(model="scripted", input=QUESTION)
        [given] = await kit.outputs(response, ExecutionContext(user_id="ann"))
    assert given["output"] == 'Result: "ann"'


async def test_arguments_that_are_not_json_are_answered_with_what_is_wrong(warm_deno: DenoSandbox) -> None:
    async with (
        openai_api(calling(Call("execute_code", {}))) as (client, _),
        Corral(sandbox=warm_deno, check=False) as corral,
    ):
        response = await client.responses.create(model="scripted", input=QUESTION)
        [call] = response.output
        output = await CodeMode(corral).call(call.model_copy(update={"arguments": '{"code": "return 1'}))
    assert output is not None
    assert "rejected; nothing ran" in str(output)

"""Corral for the tool runner of Anthropic's SDK, against its API on loopback."""

from __future__ import annotations

import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaMessageParam

from corral import Corral
from corral.integrations.anthropic import RunnerParts, code_mode
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import anthropic_api, runs
from tests.integrations.scenario import ANSWER, QUESTION, Scenario
from tests.integrations.stubs import calling, mending

pytestmark = pytest.mark.anyio

MESSAGES: list[BetaMessageParam] = [{"role": "user", "content": QUESTION}]


async def run(client: AsyncAnthropic, options: RunnerParts) -> None:
    await client.beta.messages.tool_runner(
        model="scripted", max_tokens=1_000, messages=MESSAGES, **options
    ).until_done()


@pytest.mark.matrix("test_frameworks has it without streaming, which is the SDK's own")
async def test_a_model_mends_its_program_while_its_replies_stream(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with anthropic_api(mending(scenario)) as (client, model), scenario.corral(warm_deno) as corral:
        runner = client.beta.messages.tool_runner(
            model="scripted", max_tokens=1_000, messages=MESSAGES, stream=True, **code_mode(corral)
        )
        texts = [[text async for text in stream.text_stream] async for stream in runner]
    assert ["".join(text) for text in texts] == ["", "", ANSWER]
    assert model.requests[0]["stream"] is True


async def test_what_the_operator_must_mend_is_logged_and_told_by_the_runner(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    read: list[str] = []
    async with anthropic_api(calling(runs("return 1"), read=read)) as (client, _):
        async with Corral(sandbox=warm_deno, check=False) as corral:
            options = code_mode(corral)
        await run(client, options)
    assert read == ["is_error: ConfigError('this Corral is closed; `async with corral` opens it again')"]
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
        async with anthropic_api(calling(runs("return 1"))) as (client, model):
            await run(client, options)
    assert model.requests[0]["system"] == options["system"]

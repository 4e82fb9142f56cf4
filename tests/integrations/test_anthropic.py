"""Corral for the tool runner of Anthropic's SDK, against its API on loopback."""

from __future__ import annotations

import pytest
from anthropic.types.beta import BetaMessageParam

from corral import Corral
from corral.integrations.anthropic import CodeMode
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import anthropic_api, runs
from tests.integrations.scenario import ANSWER, QUESTION, Scenario
from tests.integrations.stubs import calling, mending

pytestmark = pytest.mark.anyio

MESSAGES: list[BetaMessageParam] = [{"role": "user", "content": QUESTION}]


@pytest.mark.matrix("test_frameworks has it without streaming, which is the SDK's own")
async def test_a_model_mends_its_program_while_its_replies_stream(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with anthropic_api(mending(scenario)) as (client, model), scenario.corral(warm_deno) as corral:
        runner = client.beta.messages.tool_runner(
            model="scripted", max_tokens=1_000, messages=MESSAGES, stream=True, **CodeMode(corral).kwargs()
        )
        texts = [[text async for text in stream.text_stream] async for stream in runner]
    assert ["".join(text) for text in texts] == ["", "", ANSWER]
    assert model.requests[0]["stream"] is True


async def test_what_the_provider_may_keep_ends_with_the_system_prompt(warm_deno: DenoSandbox) -> None:
    async with Corral(sandbox=warm_deno, check=False) as corral:
        options = CodeMode(corral).kwargs(system="Be brief.", cache_control={"type": "ephemeral"})
        assert options["system"] == [
            {
                "type": "text",
                "text": CodeMode(corral).kwargs(system="Be brief.")["system"],
                "cache_control": {"type": "ephemeral"},
            }
        ]
        async with anthropic_api(calling(runs("return 1"))) as (client, model):
            await client.beta.messages.tool_runner(
                model="scripted", max_tokens=1_000, messages=MESSAGES, **options
            ).until_done()
    assert model.requests[0]["system"] == options["system"]

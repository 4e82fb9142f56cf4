"""An agent of openai-agents behind the chat page, against a stub of its provider on loopback."""

from __future__ import annotations

import pytest
from agents import Agent, OpenAIResponsesModel, set_tracing_disabled
from openai import AsyncOpenAI

from corral import Corral, ExecutionContext
from corral.chat import chat_app
from corral.chat.agents import chat_agent_of
from corral.integrations.openai_agents import code_mode
from tests.chat.conftest import Browser, parts_of
from tests.integrations.stubs import Call, calling, stub

pytestmark = pytest.mark.anyio


async def test_its_words_and_programs_come_in_one_stream(corral: Corral) -> None:
    set_tracing_disabled(True)
    code = {"code": 'return await tools.greet({ name: "Ann" })'}
    with stub(calling(Call("execute_code", code))) as provider:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIResponsesModel("scripted", client)
            agent = Agent[ExecutionContext](name="agent", model=model, **code_mode(corral))
            app = chat_app(corral, chat_agent_of(agent), authenticate=lambda _: ExecutionContext(user_id="ann"))
            parts = parts_of(await Browser(app, "ann").send("greet Ann"))
    last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
    assert (last["status"], len(last["calls"])) == ("succeeded", 1)
    [made] = [part for part in parts if part["type"] == "tool-input-available"]
    assert (made["toolCallId"], made["input"]) == (last["toolCallId"], code)
    assert [part["toolCallId"] for part in parts if part["type"] == "tool-output-available"] == [last["toolCallId"]]
    texts = [part for part in parts if part["type"].startswith("text-")]
    assert (texts[0]["type"], texts[-1]["type"]) == ("text-start", "text-end")
    assert len({part["id"] for part in texts}) == 1

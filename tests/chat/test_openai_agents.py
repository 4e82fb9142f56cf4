"""An agent of openai-agents behind the chat page, against a stub of its provider on loopback."""

from __future__ import annotations

import pytest
from agents import Agent, OpenAIResponsesModel, set_tracing_disabled
from openai import AsyncOpenAI

from corral import Corral, ExecutionContext
from corral.chat import chat_app
from corral.chat.agents import chat_agent_of
from corral.integrations.openai_agents import CodeMode
from tests.chat.conftest import Browser, one_program, parts_of
from tests.integrations.stubs import Call, calling, stub

pytestmark = pytest.mark.anyio


async def test_its_words_and_programs_come_in_one_stream(corral: Corral) -> None:
    set_tracing_disabled(True)
    code = {"code": 'return await tools.greet({ name: "Ann" })'}
    with stub(calling(Call("execute_code", code))) as provider:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIResponsesModel("scripted", client)
            agent = Agent[ExecutionContext](name="agent", model=model, **CodeMode(corral).kwargs())
            app = chat_app(corral, chat_agent_of(agent), authenticate=lambda _: ExecutionContext(user_id="ann"))
            parts = parts_of(await Browser(app, "ann").send("greet Ann"))
    assert "Hello Ann" in one_program(parts, code)
    texts = [part for part in parts if part["type"].startswith("text-")]
    assert (texts[0]["type"], texts[-1]["type"]) == ("text-start", "text-end")
    assert len({part["id"] for part in texts}) == 1

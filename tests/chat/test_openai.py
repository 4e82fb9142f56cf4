"""A model of the Responses API behind the chat page, against a stub of its provider on loopback."""

from __future__ import annotations

import pytest
from openai import AsyncOpenAI

from corral import Corral, ExecutionContext
from corral.chat import chat_app
from corral.chat.agents.openai import from_openai
from corral.integrations.openai import CodeMode
from tests.chat.conftest import Browser, one_program, parts_of
from tests.integrations.stubs import Call, calling, stub

pytestmark = pytest.mark.anyio

CODE = {"code": 'return await tools.greet({ name: "Ann" })'}


async def test_its_words_and_programs_come_in_one_stream(corral: Corral) -> None:
    with stub(calling(Call("execute_code", CODE))) as provider:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0) as client:
            agent = from_openai(client, "scripted", CodeMode(corral), steps=2)
            app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"))
            parts = parts_of(await Browser(app, "ann").send("greet Ann"))
    assert "Hello Ann" in one_program(parts, CODE)
    texts = [part for part in parts if part["type"].startswith("text-")]
    assert (texts[0]["type"], texts[-1]["type"]) == ("text-start", "text-end")
    assert len({part["id"] for part in texts}) == 1
    assert [request["tool_choice"] for request in provider.requests] == ["auto", "none"]

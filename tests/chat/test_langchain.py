"""An agent of LangChain behind the chat page."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_core.messages import AIMessage

from corral import Corral, ExecutionContext
from corral.chat import chat_app
from corral.chat.agents import chat_agent_of
from corral.integrations.langchain import CodeMode
from tests.chat.conftest import Browser, one_program, parts_of
from tests.integrations.frameworks import LangchainModel

pytestmark = pytest.mark.anyio


async def test_its_words_and_programs_come_in_one_stream(corral: Corral) -> None:
    code = {"code": 'return await tools.greet({ name: "Ann" })'}
    call = {"name": "execute_code", "args": code, "id": "call-8", "type": "tool_call"}
    model = LangchainModel(AIMessage("I greet.", tool_calls=[call]), "Greeted.")
    agent: Any = create_agent(model, middleware=[CodeMode(corral)])  # pyright: ignore[reportUnknownVariableType]
    ann = Browser(chat_app(corral, chat_agent_of(agent), authenticate=lambda _: ExecutionContext(user_id="ann")), "ann")
    parts = parts_of(await ann.send("greet Ann"))
    assert "Hello Ann" in one_program(parts, code)
    assert [part["delta"] for part in parts if part["type"] == "text-delta"] == ["I greet.", "Greeted."]
    assert [part["toolCallId"] for part in parts if part["type"] == "tool-output-available"] == ["call-8"]

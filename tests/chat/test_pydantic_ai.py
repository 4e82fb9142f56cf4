"""An agent of pydantic-ai behind the chat page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from corral import Corral, ExecutionContext
from corral.chat import chat_app
from corral.chat.agents import chat_agent_of
from corral.errors import ConfigError
from corral.integrations.pydantic_ai import CodeMode
from tests.chat.conftest import Browser, parts_of

pytestmark = pytest.mark.anyio


async def script(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        yield f"done after {sum(isinstance(each, ModelRequest) for each in messages)} requests"
    elif "break" in str(last.parts[-1]):
        raise RuntimeError("the provider's secret trouble")
    else:
        yield "I greet. "
        code = json.dumps({"code": 'return await tools.greet({ name: "Ann" })'})
        yield {1: DeltaToolCall(name="execute_code", json_args=code[:10], tool_call_id="call-7")}
        yield {1: DeltaToolCall(json_args=code[10:])}


async def test_its_words_and_programs_come_in_one_stream_and_it_knows_the_conversation(corral: Corral) -> None:
    agent = Agent(FunctionModel(stream_function=script), capabilities=[CodeMode(corral)])
    ann = Browser(chat_app(corral, chat_agent_of(agent), authenticate=lambda _: ExecutionContext(user_id="ann")), "ann")
    parts = parts_of(await ann.send("greet Ann"))
    kinds = [part["type"] for part in parts]
    assert kinds[0] == "start"
    assert kinds.count("start") == kinds.count("finish") == 1
    last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
    assert (last["toolCallId"], last["status"], len(last["calls"])) == ("call-7", "succeeded", 1)
    assert {"tool-input-delta", "tool-input-available", "tool-output-available", "text-delta"} <= {*kinds}
    again = parts_of(await ann.send("greet Ann again", message="m2"))
    text = "".join(part["delta"] for part in again if part["type"] == "text-delta")
    assert "done after 4 requests" in text
    failed = parts_of(await ann.send("break", message="m3"))
    assert failed[-1]["type"] == "error"
    assert "secret" not in str(failed)


def test_an_object_without_an_adapter_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a ChatAgent"):
        chat_agent_of(object())

"""An agent of google-adk behind the chat page, with a model that follows a script and streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai.types import Content, Part
from pydantic import Field

from corral import Corral, ExecutionContext
from corral.chat import chat_app, turn_context
from corral.chat.agents import chat_agent_of
from corral.chat.agents.google_adk import from_google_adk
from corral.integrations.google_adk import CodeMode
from tests.chat.conftest import Browser, one_program, parts_of

pytestmark = pytest.mark.anyio

CODE = {"code": 'return await tools.greet({ name: "Ann" })'}


class ScriptedModel(BaseLlm):
    """Sends one program, then its answer in two pieces and once more as a whole."""

    model: str = "scripted"
    requests: list[LlmRequest] = Field(default_factory=list[LlmRequest])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        assert stream
        self.requests.append(llm_request)
        last: Any = (llm_request.contents[-1].parts or [])[-1]
        if last.function_response is None:
            part = Part.from_function_call(name="execute_code", args=CODE)
            yield LlmResponse(content=Content(role="model", parts=[part]))
            return
        for text, partial in (("Do", True), ("ne.", True), ("Done.", False)):
            yield LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=partial)


async def test_its_words_and_programs_come_in_one_stream_and_it_remembers_the_conversation(corral: Corral) -> None:
    model = ScriptedModel()
    agent = LlmAgent(name="agent", model=model, **CodeMode(corral, context=turn_context).kwargs())
    caller = ExecutionContext(user_id="ann", organization_id="acme")
    ann = Browser(chat_app(corral, chat_agent_of(agent), authenticate=lambda _: caller), "ann")
    parts = parts_of(await ann.send("greet Ann"))
    assert "Hello Ann" in one_program(parts, CODE)
    texts = [part for part in parts if part["type"].startswith("text-")]
    assert [part["type"] for part in texts] == ["text-start", "text-delta", "text-delta", "text-end"]
    assert [part["delta"] for part in texts[1:3]] == ["Do", "ne."]
    parts_of(await ann.send("again", message="m2"))
    told = [
        "".join(part.text or "" for part in content.parts or [])
        for content in model.requests[2].contents
        if content.role in {"user", "model"}
    ]
    assert told == ["greet Ann", "Done.", "again"]


async def test_a_reply_makes_so_many_requests_at_most(corral: Corral) -> None:
    class Endless(ScriptedModel):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            self.requests.append(llm_request)
            part = Part.from_function_call(name="execute_code", args=CODE)
            yield LlmResponse(content=Content(role="model", parts=[part]))

    model = Endless()
    agent = from_google_adk(
        LlmAgent(name="agent", model=model, **CodeMode(corral, context=turn_context).kwargs()), steps=2
    )
    app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"))
    parts = parts_of(await Browser(app, "ann").send("greet Ann"))
    assert (parts[-1]["type"], len(model.requests)) == ("error", 2)

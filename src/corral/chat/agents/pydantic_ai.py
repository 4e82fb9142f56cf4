"""Chat with an agent of pydantic-ai."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from pydantic_ai.ui.vercel_ai.request_types import SubmitMessage
from pydantic_ai.ui.vercel_ai.response_types import (
    AbortChunk,
    BaseChunk,
    DoneChunk,
    ErrorChunk,
    FinishChunk,
    StartChunk,
)

from corral.chat.turn import ChatAgent, ChatTurn, Message, Part
from corral.errors import CorralError

__all__ = ["from_pydantic_ai"]

_ADDED_BY_THE_SERVER = (StartChunk, FinishChunk, DoneChunk, AbortChunk)
_SDK_VERSION = 6


class _AgentFailed(CorralError):
    """The agent's run ended with an error."""


class _PydanticAIChat:
    def __init__(self, agent: Agent[Any, Any], deps: Callable[[ChatTurn], Any]) -> None:
        self._agent = agent
        self._deps = deps

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        request = SubmitMessage.model_validate(
            {
                "id": turn.conversation_id,
                "trigger": "submit-message",
                "messages": [_without_data(each) for each in turn.messages],
            }
        )
        adapter = VercelAIAdapter(self._agent, request, sdk_version=_SDK_VERSION)
        chunks = adapter.run_stream(deps=self._deps(turn), conversation_id=turn.conversation_id)
        async with aclosing(cast("Any", chunks)) as stream:
            async for chunk in stream:
                if isinstance(chunk, ErrorChunk):
                    raise _AgentFailed(chunk.error_text)
                if isinstance(chunk, BaseChunk) and not isinstance(chunk, _ADDED_BY_THE_SERVER):
                    yield json.loads(chunk.encode(_SDK_VERSION))


def from_pydantic_ai(agent: Agent[Any, Any], *, deps: Callable[[ChatTurn], Any] | None = None) -> ChatAgent:
    """Adapts an agent, whose programs run by `corral.integrations.pydantic_ai.CodeMode`.

    `deps` makes the dependencies of a run. By default, these are the turn's `ExecutionContext`, for which `CodeMode`
    runs programs. With other dependencies, pass `CodeMode(context=...)` a function that returns the `ExecutionContext`.
    """
    return _PydanticAIChat(agent, deps or (lambda turn: turn.context))


def _without_data(message: Message) -> Message:
    """Removes the parts that are only for the page."""
    parts = [part for part in message["parts"] if not part["type"].startswith("data-")]
    return {**message, "parts": [{name: part[name] for name in part if name != "id"} for part in parts]}

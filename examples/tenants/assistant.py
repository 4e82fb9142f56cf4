"""The agent of the chat page and of jobs: a model that writes programs for the tools."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator

from corral import Corral, ExecutionContext
from corral.chat.agents.environment import model_by_environment
from corral.integrations.pydantic_ai import CodeMode
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

__all__ = ["invoice_agent"]

_OVERVIEW = """\
const unpaid = (await tools.list_invoices()).filter(({ paid }) => !paid);
return `${unpaid.length} unpaid: ${unpaid.map(({ number }) => number).join(", ")}`;
"""


def invoice_agent(corral: Corral, model: Model | str | None = None) -> Agent[ExecutionContext, str]:
    """An agent whose programs run for its `deps`, the caller."""
    return Agent(
        model or model_by_environment() or _SCRIPTED,
        deps_type=ExecutionContext,
        instructions="You help with the invoices of one organization. Amounts are in cents.",
        capabilities=[CodeMode(corral)],
    )


def _next(messages: list[ModelMessage]) -> str | dict[str, str]:
    """The scripted model: sends the program between ``` of the last message, or the overview, and tells its result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    for part in last.parts:
        if isinstance(part, ToolReturnPart):
            told = part.model_response_str()
            text = re.fullmatch(r'Result: "(.*)"\s*', told)
            return text[1] if text else told
    said = "".join(str(part.content) for part in last.parts if isinstance(part, UserPromptPart))
    found = re.search(r"```(?:ts|typescript)?\n(.*?)```", said, re.DOTALL)
    return {"code": found[1] if found else _OVERVIEW}


def _answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    said = _next(messages)
    return ModelResponse([TextPart(said) if isinstance(said, str) else ToolCallPart("execute_code", said)])


async def _stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncGenerator[str | DeltaToolCalls]:
    said = _next(messages)
    yield said if isinstance(said, str) else {0: DeltaToolCall(name="execute_code", json_args=json.dumps(said))}


_SCRIPTED = FunctionModel(_answer, stream_function=_stream, model_name="scripted")
"""Where there is no key."""

"""Chat with an agent of LangChain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage

from corral.chat.turn import ChatAgent, ChatTurn, Part, texts_of

__all__ = ["from_langchain"]


class _LangChainChat:
    def __init__(self, agent: Any, context: Callable[[ChatTurn], Any]) -> None:
        self._agent = agent
        self._context = context

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        history = [HumanMessage(text) if role == "user" else AIMessage(text) for role, text in texts_of(turn.messages)]
        stream = self._agent.astream(
            {"messages": history},
            context=self._context(turn),
            config={"configurable": {"thread_id": turn.conversation_id}},
            stream_mode=["messages", "updates"],
        )
        text: str | None = None
        async for mode, item in stream:
            if mode == "messages":
                message = item[0]
                if isinstance(message, AIMessageChunk | AIMessage) and (delta := message.text):
                    if text is None:
                        text = str(message.id)
                        yield {"type": "text-start", "id": text}
                    yield {"type": "text-delta", "id": text, "delta": str(delta)}
                continue
            if text is not None:
                yield {"type": "text-end", "id": text}
                text = None
            for part in _parts_of_update(item):
                yield part


def from_langchain(agent: Any, *, context: Callable[[ChatTurn], Any] | None = None) -> ChatAgent:
    """Adapts an agent of `create_agent`, whose programs run by `corral.integrations.langchain.CodeMode`.

    `context` makes the agent's runtime context. By default, that is the turn's `ExecutionContext`, for which `CodeMode`
    runs programs. The model gets the texts of earlier messages without their programs.
    """
    return _LangChainChat(agent, context or (lambda turn: turn.context))


def _parts_of_update(update: Any) -> list[Part]:
    """Makes the parts of finished steps: calls that the model made, and their outputs."""
    parts: list[Part] = []
    messages = [each for step in update.values() if isinstance(step, dict) for each in step.get("messages", ())]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    for message in messages:  # pyright: ignore[reportUnknownVariableType]
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                named = {"toolCallId": call["id"], "toolName": call["name"]}
                parts.append({"type": "tool-input-available", **named, "input": call["args"]})
        elif isinstance(message, ToolMessage):
            failed = message.status == "error"
            answer = {"errorText": message.text} if failed else {"output": message.text}
            kind = "tool-output-error" if failed else "tool-output-available"
            parts.append({"type": kind, "toolCallId": message.tool_call_id, **answer})
    return parts

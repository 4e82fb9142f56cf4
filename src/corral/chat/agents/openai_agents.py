"""Chat with an agent of openai-agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from agents import Agent, ItemHelpers, Runner, TResponseInputItem
from agents.items import MessageOutputItem, RunItem, ToolCallItem, ToolCallOutputItem

from corral.chat.turn import ChatAgent, ChatTurn, Part, texts_of
from corral.integrations.kit import read_arguments

__all__ = ["from_openai_agents"]


class _OpenAIAgentsChat:
    def __init__(self, agent: Agent[Any], context: Callable[[ChatTurn], Any]) -> None:
        self._agent = agent
        self._context = context

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        history = [
            cast("TResponseInputItem", {"role": role, "content": text}) for role, text in texts_of(turn.messages)
        ]
        result = Runner.run_streamed(self._agent, history, context=self._context(turn))
        try:
            number, streamed = 0, False
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    if not streamed:
                        yield {"type": "text-start", "id": f"text-{number}"}
                        streamed = True
                    yield {"type": "text-delta", "id": f"text-{number}", "delta": event.data.delta}
                elif event.type == "run_item_stream_event":
                    if isinstance(event.item, MessageOutputItem) and streamed:
                        yield {"type": "text-end", "id": f"text-{number}"}
                        number, streamed = number + 1, False
                        continue
                    for part in _parts_of(event.item, f"text-{number}"):
                        yield part
                    number += 1
        finally:
            result.cancel()


def from_openai_agents(agent: Agent[Any], *, context: Callable[[ChatTurn], Any] | None = None) -> ChatAgent:
    """Adapts an agent, whose programs run by `corral.integrations.openai_agents.CodeMode`.

    `context` makes the run's context. By default, that is the turn's `ExecutionContext`, for which `CodeMode` runs
    programs. The model gets the texts of earlier messages without their programs.
    """
    return _OpenAIAgentsChat(agent, context or (lambda turn: turn.context))


def _parts_of(item: RunItem, text_id: str) -> list[Part]:
    match item:
        case MessageOutputItem():
            text = {"type": "text-delta", "id": text_id, "delta": ItemHelpers.text_message_output(item)}
            return [{"type": "text-start", "id": text_id}, text, {"type": "text-end", "id": text_id}]
        case ToolCallItem():
            call: Any = item.raw_item
            arguments = read_arguments(getattr(call, "arguments", "{}"))
            named = {"toolCallId": getattr(call, "call_id", ""), "toolName": getattr(call, "name", "tool")}
            return [{"type": "tool-input-available", **named, "input": arguments}]
        case ToolCallOutputItem():
            raw = cast("dict[str, Any]", item.raw_item)
            return [{"type": "tool-output-available", "toolCallId": raw["call_id"], "output": str(item.output)}]
        case _:
            return []

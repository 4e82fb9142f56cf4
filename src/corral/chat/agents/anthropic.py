"""Chat with a model of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from anthropic import AsyncAnthropic
from anthropic.lib.tools import ToolError

from corral.arguments import checked
from corral.chat.turn import ChatAgent, ChatTurn, Part, texts_of
from corral.integrations.anthropic import TOOL_USE_ID
from corral.logs import get_logger
from corral.types import Positive

__all__ = ["from_anthropic"]

logger = get_logger("corral.chat")

_TOOL_STOPS = ("tool_use", "pause_turn")
"""Stop reasons after which to continue: tools must be run here, or the provider's own have not ended."""


class _AnthropicChat:
    def __init__(
        self, client: AsyncAnthropic, model: str, parts: Mapping[str, Any], steps: int, max_tokens: int
    ) -> None:
        self._client = client
        self._model = model
        self._system = parts["system"]
        self._steps = steps
        self._max_tokens = max_tokens
        tools = parts["tools"]
        self._tools = {each.name: each for each in tools if not isinstance(each, Mapping)}
        self._declared: list[Any] = [
            cast("Any", each) if isinstance(each, Mapping) else each.to_dict() for each in tools
        ]

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        messages: list[Any] = [{"role": role, "content": text} for role, text in texts_of(turn.messages)]
        for step in range(self._steps):
            async with self._client.beta.messages.stream(
                model=self._model,
                max_tokens=self._max_tokens,
                system=self._system,
                tools=self._declared,
                # The last request must be answered with text.
                tool_choice={"type": "auto"} if step + 1 < self._steps else {"type": "none"},
                messages=messages,
            ) as stream:
                started = set[int]()
                async for event in stream:
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        name = f"{step}-{event.index}"
                        if event.index not in started:
                            started.add(event.index)
                            yield {"type": "text-start", "id": name}
                        yield {"type": "text-delta", "id": name, "delta": event.delta.text}
                    elif event.type == "content_block_stop" and event.index in started:
                        yield {"type": "text-end", "id": f"{step}-{event.index}"}
                message = await stream.get_final_message()
            uses = [block for block in message.content if block.type == "tool_use"]
            results: list[dict[str, Any]] = []
            for use in uses if message.stop_reason == "tool_use" else []:
                yield {
                    "type": "tool-input-available",
                    "toolCallId": use.id,
                    "toolName": use.name,
                    "input": use.input,
                }
                results.append(result := await self._result(use))
                yield {"type": "tool-output-available", "toolCallId": use.id, "output": _text_of(result["content"])}
            if message.stop_reason not in _TOOL_STOPS:
                return
            messages.append({"role": "assistant", "content": message.content})
            if results:
                messages.append({"role": "user", "content": results})

    async def _result(self, use: Any) -> dict[str, Any]:
        """Runs a tool. Its errors are for the model."""
        result = {"type": "tool_result", "tool_use_id": use.id}
        tool = self._tools.get(use.name)
        if tool is None:
            return {**result, "content": f"there is no tool {use.name!r}", "is_error": True}
        token = TOOL_USE_ID.set(use.id)
        try:
            return {**result, "content": await tool.call(use.input)}
        except ToolError as error:
            return {**result, "content": error.content, "is_error": True}
        except ValueError as error:  # invalid input
            return {**result, "content": str(error), "is_error": True}
        except Exception:
            logger.exception("the tool %s of a chat failed", use.name)
            return {**result, "content": f"{use.name} failed", "is_error": True}
        finally:
            TOOL_USE_ID.reset(token)


@checked
def from_anthropic(
    client: AsyncAnthropic, model: str, parts: Mapping[str, Any], *, steps: Positive = 32, max_tokens: Positive = 8_192
) -> ChatAgent:
    """Adapts a model with the tools and the system prompt of `corral.integrations.anthropic.CodeMode`.

    Pass `CodeMode(corral, context=turn_context).kwargs(...)` as `parts`, so that programs run for the caller. Your own
    tools can be made with `beta_async_tool`, or be the provider's. `steps` limits the requests per reply, and
    `max_tokens` the answer to each; in the last request, the model cannot call tools. The model gets the texts of
    earlier messages without their programs.
    """
    return _AnthropicChat(client, model, parts, steps, max_tokens)


def _text_of(content: Any) -> str:
    """Returns the text of a tool's result, without pictures, which the program's card shows."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if block["type"] == "text")

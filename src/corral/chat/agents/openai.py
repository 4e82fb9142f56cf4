"""Chat with a model of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)

from corral.arguments import checked
from corral.chat.turn import ChatAgent, ChatTurn, Part, texts_of
from corral.integrations.kit import read_arguments
from corral.integrations.openai import CodeMode
from corral.types import Positive

__all__ = ["from_openai"]


class _OpenAIChat:
    def __init__(self, client: AsyncOpenAI, model: str, mode: CodeMode, request: Mapping[str, Any], steps: int) -> None:
        self._client = client
        self._model = model
        self._mode = mode
        self._request = request
        self._steps = steps

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        items: list[Any] = [{"role": role, "content": text} for role, text in texts_of(turn.messages)]
        for step in range(self._steps):
            response: Response | None = None
            async with await self._client.responses.create(
                model=self._model,
                **self._request,
                # The last request must be answered with text.
                tool_choice="auto" if step + 1 < self._steps else "none",
                input=items,
                stream=True,
            ) as stream:
                started = set[str]()
                async for event in stream:
                    match event:
                        case ResponseTextDeltaEvent(item_id=item, content_index=index, delta=delta):
                            name = f"{step}-{item}-{index}"
                            if name not in started:
                                started.add(name)
                                yield {"type": "text-start", "id": name}
                            yield {"type": "text-delta", "id": name, "delta": delta}
                        case ResponseTextDoneEvent(item_id=item, content_index=index):
                            if (name := f"{step}-{item}-{index}") in started:
                                yield {"type": "text-end", "id": name}
                        case ResponseCompletedEvent():
                            response = event.response
                        case _:
                            pass
            if response is None:
                raise RuntimeError(f"the reply of {self._model} did not complete; see the provider's log")
            for call in response.output:
                if isinstance(call, ResponseFunctionToolCall):
                    named = {"toolCallId": call.call_id, "toolName": call.name}
                    yield {"type": "tool-input-available", **named, "input": read_arguments(call.arguments)}
            outputs = await self._mode.outputs(response, turn.context)
            for output in outputs:
                content = _text_of(output["output"])
                yield {"type": "tool-output-available", "toolCallId": output.get("call_id"), "output": content}
            if not outputs:
                return
            items += [*response.output, *outputs]


@checked
def from_openai(
    client: AsyncOpenAI,
    model: str,
    mode: CodeMode,
    *,
    instructions: str = "",
    tools: Iterable[Mapping[str, Any]] = (),
    steps: Positive = 32,
) -> ChatAgent:
    """Adapts a model, whose programs run by `corral.integrations.openai.CodeMode`.

    The model also gets `instructions` and `tools`, which must be the provider's own. `steps` limits the requests per
    reply; in the last request, the model cannot call tools. The model gets the texts of earlier messages without their
    programs.
    """
    return _OpenAIChat(client, model, mode, mode.kwargs(instructions=instructions, tools=tools), steps)


def _text_of(output: Any) -> str:
    """Returns the text of a call's output, without pictures, which the program's card shows."""
    if isinstance(output, str):
        return output
    return "\n".join(str(part["text"]) for part in output if part["type"] == "input_text")

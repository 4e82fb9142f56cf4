"""Corral for the OpenAI SDK: Responses API and chat completions. Requires the extra `openai`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypedDict, cast, overload

import anyio

from corral import ExecutionContext
from corral.arguments import checked
from corral.errors import requires_extra
from corral.integrations.kit import (
    CodeModeBase,
    Kit,
    context_for,
    entries_of,
    in_conversation,
    own_tools,
    parts_of,
    read_arguments,
    require_distinct,
)
from corral.model import ModelTool
from corral.rendering.images import Picture

with requires_extra("corral.integrations.openai", "openai"):
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionMessageFunctionToolCall,
        ChatCompletionMessageParam,
        ChatCompletionToolMessageParam,
        ChatCompletionToolUnionParam,
    )
    from openai.types.responses import Response, ResponseFunctionToolCall, ToolParam
    from openai.types.responses.response_function_call_output_item_param import ResponseFunctionCallOutputItemParam
    from openai.types.responses.response_input_item_param import FunctionCallOutput

__all__ = ["CodeMode", "FunctionCall"]

FunctionCall: TypeAlias = ResponseFunctionToolCall | ChatCompletionMessageFunctionToolCall
"""Function call of a model: an item of a response's output, or a tool call in a chat completion's message."""


class _Kwargs(TypedDict):
    instructions: str
    tools: list[ToolParam]


class _ChatKwargs(TypedDict):
    messages: list[ChatCompletionMessageParam]
    tools: list[ChatCompletionToolUnionParam]


@checked
class CodeMode(CodeModeBase[[FunctionCall]]):
    """Parameters for requests, and functions that answer the calls in their responses.

    The model gets the tools that exist at the first request. `context` can be a function of the call.

    Raises:
        ConfigError: the Corral is missing, or its name cannot be part of a tool's name.
    """

    @cached_property
    def _kit(self) -> Kit:
        return self.kit()

    @checked
    def kwargs(self, *, instructions: str = "", tools: Iterable[Mapping[str, Any]] = ()) -> _Kwargs:
        """Returns your `instructions` and `tools` for `client.responses.create`, with those for programs added.

        Raises:
            ConfigError: two tools have the same name, one is Corral's, or `describe_shell` has no open shell.
        """
        own = cast("list[ToolParam]", self._own(tools))
        return {"instructions": self._prompt(instructions), "tools": [*map(_for_responses, self._kit.tools), *own]}

    @checked
    def chat_kwargs(
        self, messages: Iterable[Any], *, instructions: str = "", tools: Iterable[Mapping[str, Any]] = ()
    ) -> _ChatKwargs:
        """Returns `tools` for `client.chat.completions.create`, and `messages` preceded by one with the instructions.

        Raises:
            ConfigError: see `kwargs`.
        """
        own = cast("list[ChatCompletionToolUnionParam]", self._own(tools))
        system: ChatCompletionMessageParam = {"role": "system", "content": self._prompt(instructions)}
        return {"messages": [system, *messages], "tools": [*map(_for_chat, self._kit.tools), *own]}

    def _own(self, tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        own = own_tools(tools)
        require_distinct(self._kit, (str(tool.get("function", tool).get("name")) for tool in own))
        return own

    def _prompt(self, instructions: str) -> str:
        return "\n\n".join(filter(None, (instructions, self._kit.prompt)))

    @overload
    async def call(
        self,
        item: ResponseFunctionToolCall,
        context: ExecutionContext | None = None,
        *,
        conversation: Sequence[object] = (),
    ) -> FunctionCallOutput | None: ...
    @overload
    async def call(
        self,
        item: ChatCompletionMessageFunctionToolCall,
        context: ExecutionContext | None = None,
        *,
        conversation: Sequence[object] = (),
    ) -> ChatCompletionToolMessageParam | None: ...
    @overload
    async def call(
        self, item: object, context: ExecutionContext | None = None, *, conversation: Sequence[object] = ()
    ) -> FunctionCallOutput | ChatCompletionToolMessageParam | None: ...
    async def call(
        self, item: object, context: ExecutionContext | None = None, *, conversation: Sequence[object] = ()
    ) -> FunctionCallOutput | ChatCompletionToolMessageParam | None:
        """Runs the call in an item; returns None if it is not a call of Corral's tools.

        In the Responses API, the answer has pictures; chat completions do not accept them from tools. `context`
        replaces the `CodeMode`'s for this call. `conversation` is the request's `input` or `messages`, from which a
        policy that follows data takes the user's texts.

        Raises:
            See `ModelTool.run`.
        """
        if not isinstance(item, ResponseFunctionToolCall | ChatCompletionMessageFunctionToolCall):
            return None
        is_response = isinstance(item, ResponseFunctionToolCall)
        called, call_id = (item, item.call_id) if is_response else (item.function, item.id)
        tool = next((each for each in self._kit.tools if each.name == called.name), None)
        if tool is None:
            return None
        caller = context or context_for(self.context, item)
        caller = in_conversation(caller, tool.name, self.asked, item, lambda: entries_of(conversation))
        arguments = read_arguments(called.arguments)
        result = await self._kit.run(
            tool, arguments, caller, on_event=self.listener, tool_call_id=call_id, ask=lambda _: None
        )
        if is_response:
            return {"type": "function_call_output", "call_id": call_id, "output": parts_of(result, _item)}
        return {"role": "tool", "tool_call_id": call_id, "content": result.model_text()}

    @overload
    async def outputs(
        self, response: Response, context: ExecutionContext | None = None, *, conversation: Sequence[object] = ()
    ) -> list[FunctionCallOutput]: ...
    @overload
    async def outputs(
        self, response: ChatCompletion, context: ExecutionContext | None = None, *, conversation: Sequence[object] = ()
    ) -> list[ChatCompletionToolMessageParam]: ...
    async def outputs(
        self,
        response: Response | ChatCompletion,
        context: ExecutionContext | None = None,
        *,
        conversation: Sequence[object] = (),
    ) -> Sequence[FunctionCallOutput | ChatCompletionToolMessageParam]:
        """Runs all calls of Corral's tools in a response concurrently, and returns their outputs.

        Only the first choice of a chat completion counts. `conversation` is as in `call`.

        Raises:
            See `ModelTool.run`.
        """
        items = response.output if isinstance(response, Response) else response.choices[0].message.tool_calls or []
        answers: dict[int, FunctionCallOutput | ChatCompletionToolMessageParam | None] = {}

        async def call(number: int, item: object) -> None:
            answers[number] = await self.call(item, context, conversation=conversation)

        try:
            async with anyio.create_task_group() as tasks:
                for number, item in enumerate(items):
                    tasks.start_soon(call, number, item)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [output for _, output in sorted(answers.items()) if output is not None]


def _item(part: str | Picture) -> ResponseFunctionCallOutputItemParam:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    return {"type": "input_image", "image_url": part.url}


def _for_responses(tool: ModelTool) -> ToolParam:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": False,
    }


def _for_chat(tool: ModelTool) -> ChatCompletionToolUnionParam:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
    }

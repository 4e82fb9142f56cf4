"""Corral for the OpenAI SDK by itself: for the Responses API, and for chat completions. Needs the extra `openai`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, overload

import anyio

from corral import ExecutionContext, ExecutionResult, Language, ModelTool
from corral.arguments import checked
from corral.errors import MissingExtra
from corral.integrations.kit import (
    Context,
    Corrals,
    DescribeShell,
    OnEvent,
    ShellChoice,
    context_for,
    kit,
    own_tools,
    parts_of,
    read_arguments,
    require_distinct,
)
from corral.rendering.images import Picture

try:
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionMessageFunctionToolCall,
        ChatCompletionToolMessageParam,
        ChatCompletionToolUnionParam,
    )
    from openai.types.responses import Response, ResponseFunctionToolCall, ToolParam
    from openai.types.responses.response_function_call_output_item_param import ResponseFunctionCallOutputItemParam
    from openai.types.responses.response_input_item_param import FunctionCallOutput
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"corral.integrations.openai needs the module {error.name}: pip install 'corral[openai]'"
    ) from error

__all__ = ["CodeMode", "FunctionCall", "code_mode"]

FunctionCall: TypeAlias = ResponseFunctionToolCall | ChatCompletionMessageFunctionToolCall
"""A model's call of a function: an item of a response's output, or a tool call of a chat completion's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMode:
    """Parameters of requests, and functions that answer the calls in their responses."""

    instructions: str
    tools: list[ToolParam]
    """For the Responses API: Corral's, then those of the caller."""
    chat_tools: list[ChatCompletionToolUnionParam]
    """The same for chat completions."""
    context: Context[FunctionCall] = None
    on_event: OnEvent | None = None
    by_name: Mapping[str, ModelTool] = field(repr=False)

    @overload
    async def call(
        self, item: ResponseFunctionToolCall, context: ExecutionContext | None = None
    ) -> FunctionCallOutput | None: ...
    @overload
    async def call(
        self, item: ChatCompletionMessageFunctionToolCall, context: ExecutionContext | None = None
    ) -> ChatCompletionToolMessageParam | None: ...
    @overload
    async def call(
        self, item: object, context: ExecutionContext | None = None
    ) -> FunctionCallOutput | ChatCompletionToolMessageParam | None: ...
    async def call(
        self, item: object, context: ExecutionContext | None = None
    ) -> FunctionCallOutput | ChatCompletionToolMessageParam | None:
        """The answer to an item; None if it is no call of a tool of Corral's.

        Pictures go with it over the Responses API; a chat completion takes none from tools.

        `context` is for this call, in place of the one that `code_mode` was given.

        Raises:
            As `ModelTool.run`.
        """
        match item:
            case ResponseFunctionToolCall(name=name, arguments=arguments) if name in self.by_name:
                result = await self._answer(name, arguments, context or context_for(self.context, item), item.call_id)
                output = parts_of(result, _text, _image)
                return {"type": "function_call_output", "call_id": item.call_id, "output": output}
            case ChatCompletionMessageFunctionToolCall(function=called) if called.name in self.by_name:
                caller = context or context_for(self.context, item)
                result = await self._answer(called.name, called.arguments, caller, item.id)
                return {"role": "tool", "tool_call_id": item.id, "content": result.model_text()}
            case _:
                return None

    @overload
    async def outputs(
        self, response: Response, context: ExecutionContext | None = None
    ) -> list[FunctionCallOutput]: ...
    @overload
    async def outputs(
        self, response: ChatCompletion, context: ExecutionContext | None = None
    ) -> list[ChatCompletionToolMessageParam]: ...
    async def outputs(
        self, response: Response | ChatCompletion, context: ExecutionContext | None = None
    ) -> Sequence[FunctionCallOutput | ChatCompletionToolMessageParam]:
        """The answers to all calls of Corral's tools in a response, which run at the same time.

        Of a chat completion only the first choice counts.

        Raises:
            As `ModelTool.run`.
        """
        items = response.output if isinstance(response, Response) else response.choices[0].message.tool_calls or []
        given: dict[int, FunctionCallOutput | ChatCompletionToolMessageParam | None] = {}

        async def call(number: int, item: object) -> None:
            given[number] = await self.call(item, context)

        try:
            async with anyio.create_task_group() as tasks:
                for number, item in enumerate(items):
                    tasks.start_soon(call, number, item)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [output for _, output in sorted(given.items()) if output is not None]

    async def _answer(self, name: str, arguments: str, context: ExecutionContext, call_id: str) -> ExecutionResult:
        tool = self.by_name[name]
        return await tool.run(read_arguments(arguments), context, on_event=self.on_event, tool_call_id=call_id)


@checked
def code_mode(
    corrals: Corrals,
    *,
    instructions: str = "",
    tools: Iterable[Mapping[str, Any]] = (),
    context: Context[FunctionCall] = None,
    language: Language = "typescript",
    budget_tokens: int = 4_000,
    on_event: OnEvent | None = None,
    shell: ShellChoice | None = None,
    describe_shell: DescribeShell | None = None,
) -> CodeMode:
    """Instructions and tools for requests, together with the caller's own.

    `tools` are in the form of the API that is used. `context` may be a function of the call.

    `shell` is the shell of each call's programs, or opens one for each; `describe_shell` tells the model of it.

    Raises:
        ConfigError: a tool has a name that another has, or is Corral's; or as `corral.integrations.kit.kit`.
    """
    own = own_tools(tools)
    added = kit(
        corrals,
        instructions=instructions,
        language=language,
        budget_tokens=budget_tokens,
        context=context,
        shell=shell,
        describe_shell=describe_shell,
    )
    require_distinct(added, (str(tool.get("function", tool).get("name")) for tool in own))
    return CodeMode(
        instructions=added.prompt,
        tools=[*map(_for_responses, added.tools), *cast("list[ToolParam]", own)],
        chat_tools=[*map(_for_chat, added.tools), *cast("list[ChatCompletionToolUnionParam]", own)],
        context=context,
        on_event=on_event,
        by_name={tool.name: tool for tool in added.tools},
    )


def _text(text: str) -> ResponseFunctionCallOutputItemParam:
    return {"type": "input_text", "text": text}


def _image(picture: Picture) -> ResponseFunctionCallOutputItemParam:
    return {"type": "input_image", "image_url": picture.url}


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

"""Corral for agents of the OpenAI Agents SDK. Needs the extra `openai-agents`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias, TypedDict

from agents import Agent, FunctionTool, RunContextWrapper, Tool, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext
from agents.tracing import FunctionSpanData, Span, SpanError, function_span, get_current_span

from corral import Event, Language, ModelTool, ToolCallFinished, ToolCallStarted
from corral.arguments import checked
from corral.integrations.kit import (
    Context,
    Corrals,
    DescribeShell,
    OnEvent,
    ShellChoice,
    carrying,
    context_for,
    kit,
    own_tools,
    parts_of,
    read_arguments,
    require_distinct,
)
from corral.integrations.openai_agents.tools import RUN_CONTEXT
from corral.rendering.images import Picture
from corral.rendering.preview import preview_json

Instructions: TypeAlias = str | Callable[[RunContextWrapper[Any], Agent[Any]], str | Awaitable[str]]


_SPAN_CHARS = 10_000


class AgentParts(TypedDict):
    """Keyword arguments for `Agent`."""

    instructions: Instructions
    tools: list[Tool]


@checked
def code_mode(
    corrals: Corrals,
    *,
    instructions: Instructions = "",
    tools: Iterable[Tool] = (),
    context: Context[ToolContext[Any]] = None,
    language: Language = "typescript",
    budget_tokens: int = 4_000,
    on_event: OnEvent | None = None,
    shell: ShellChoice | None = None,
    describe_shell: DescribeShell | None = None,
) -> AgentParts:
    """Instructions and tools for `Agent`, together with the caller's own.

    `context` may be a function of the `ToolContext`. Without it programs run for the context of the run, if that is an
    `ExecutionContext`.

    `shell` is the shell of each call's programs, or opens one for each; `describe_shell` tells the model of it.

    Raises:
        ConfigError: a tool has a name that another has, or is Corral's; or as `corral.integrations.kit.kit`.
    """
    own = own_tools(tools)
    added = kit(
        corrals,
        language=language,
        budget_tokens=budget_tokens,
        context=context,
        shell=shell,
        describe_shell=describe_shell,
    )
    require_distinct(added, (tool.name for tool in own))
    made = [_function_tool(tool, context, on_event) for tool in added.tools]
    return AgentParts(instructions=_with_prompt(instructions, added.prompt), tools=[*made, *own])


def _with_prompt(own: Instructions, prompt: str) -> Instructions:
    if isinstance(own, str):
        return f"{own}\n\n{prompt}" if own else prompt

    async def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        said = own(context, agent)
        return f"{await said if inspect.isawaitable(said) else said}\n\n{prompt}"

    return instructions


def _function_tool(tool: ModelTool, context: Context[ToolContext[Any]], on_event: OnEvent | None) -> FunctionTool:
    async def invoke(call: ToolContext[Any], arguments: str) -> str | list[ToolOutputText | ToolOutputImage]:
        caller = carrying(context_for(context, call, call.context), RUN_CONTEXT, call)
        read = read_arguments(arguments)
        with _spans(call, on_event) as traced:
            result = await tool.run(read, caller, on_event=traced, tool_call_id=call.tool_call_id)
        return parts_of(result, _text, _image)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.input_schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


@contextmanager
def _spans(call: ToolContext[Any], on_event: OnEvent | None) -> Generator[OnEvent]:
    """Makes a function span of the SDK for each call of a program, below that of the program."""
    parent = get_current_span()
    shows_data = call.run_config is None or call.run_config.trace_include_sensitive_data
    begun: dict[int, Span[FunctionSpanData]] = {}

    def traced(event: Event) -> object:
        if isinstance(event, ToolCallStarted):
            shown = preview_json(event.call.input, _SPAN_CHARS) if shows_data else None
            span = function_span(event.call.name, shown, parent=parent)
            begun[event.call.sequence] = span
            span.start()
        elif isinstance(event, ToolCallFinished) and (span := begun.pop(event.call.sequence, None)) is not None:
            if shows_data:
                span.span_data.output = preview_json(event.call.output, _SPAN_CHARS)
            if (error := event.call.error) is not None:
                span.set_error(SpanError(message=error.message, data={"code": error.code}))
            span.finish()
        return None if on_event is None else on_event(event)

    try:
        yield traced
    finally:
        for span in begun.values():
            span.finish()


def _text(text: str) -> ToolOutputText | ToolOutputImage:
    return ToolOutputText(text=text)


def _image(picture: Picture) -> ToolOutputText | ToolOutputImage:
    return ToolOutputImage(image_url=picture.url)

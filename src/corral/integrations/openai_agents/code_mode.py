"""Corral for agents of the OpenAI Agents SDK. Needs the extra `openai-agents`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

from agents import Agent, FunctionTool, RunContextWrapper, Tool, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext
from agents.tracing import FunctionSpanData, Span, SpanError, function_span, get_current_span
from typing_extensions import Unpack

from corral.arguments import checked
from corral.events import Event, ToolCallFinished, ToolCallStarted
from corral.integrations.kit import (
    AgentCodeMode,
    Context,
    Corrals,
    OnEvent,
    Options,
    carrying,
    context_for,
    own_tools,
    parts_of,
    read_arguments,
    register,
)
from corral.integrations.openai_agents.tools import RUN_CONTEXT, tools_of
from corral.model import ModelTool
from corral.rendering.images import Picture
from corral.rendering.preview import preview_json

Instructions: TypeAlias = str | Callable[[RunContextWrapper[Any], Agent[Any]], str | Awaitable[str]]


_SPAN_CHARS = 10_000


@checked
class CodeMode(AgentCodeMode[[ToolContext[Any]]]):
    """Instructions and tools for an agent: `Agent(name="...", **CodeMode().kwargs(instructions="...", tools=[...]))`.

    Without a Corral, or with `tools`, programs call the agent's own function tools: all of them, or those that `tools`
    names, except those in `outside`. The others stay with the model, as do tools that programs cannot call: with
    guardrails or hosted by OpenAI, with a warning, and those that need approval if neither `approve` nor the Corral
    decides about it. With a Corral and no `tools`, all of the agent's tools stay with the model.

    `context` can be a function of the `ToolContext`; default: the context of the run, if it is an `ExecutionContext`. A
    program opens a Corral that is not open; it is closed after a minute without programs.

    Raises:
        ConfigError: the name of a Corral cannot be part of a tool's name.
    """

    def __init__(
        self,
        corrals: Corrals | None = None,
        *,
        tools: Literal["all"] | Collection[str] | None = None,
        outside: Collection[str] = (),
        **options: Unpack[Options[[ToolContext[Any]]]],
    ) -> None:
        super().__init__(corrals, tools=tools, outside=outside, **options)

    @checked
    def kwargs(self, *, instructions: Instructions = "", tools: Iterable[Tool] = ()) -> dict[str, Any]:
        """Returns `instructions` and `tools` with those of programs.

        Raises:
            ConfigError: two tools have the same name, one is Corral's, or `describe_shell` has no open shell.
        """
        own = own_tools(tools)
        registry = self.corral.tools.copy()
        inside = [each.name for each in own if self._asks(each) and register(registry, partial(tools_of, each, None))]
        outside = [each for each in own if each.name not in inside]
        registry.outside = frozenset(each.name for each in outside)
        added = self.kit([each.name for each in own], tools=None if self.choice is None else registry)
        made = [_function_tool(tool, self.context, self.listener) for tool in added.tools]
        return {"instructions": _with_prompt(instructions, added.prompt), "tools": [*made, *outside]}

    def _asks(self, tool: Tool) -> bool:
        """True if programs call a tool, and its approval, if needed, has a decider."""
        needs_approval = isinstance(tool, FunctionTool) and tool.needs_approval is not False
        answers = self.approve is not None or self.corral.approve is not None
        return self.takes(tool.name) and (answers or not needs_approval)


def _with_prompt(own: Instructions, prompt: str) -> Instructions:
    if isinstance(own, str):
        return f"{own}\n\n{prompt}" if own else prompt

    async def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        rendered = own(context, agent)
        return f"{await rendered if inspect.isawaitable(rendered) else rendered}\n\n{prompt}"

    return instructions


def _function_tool(tool: ModelTool, context: Context[[ToolContext[Any]]], on_event: OnEvent | None) -> FunctionTool:
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
    """Makes an SDK function span for each call of a program, below the program's span."""
    parent = get_current_span()
    shows_data = call.run_config is None or call.run_config.trace_include_sensitive_data
    open_spans: dict[int, Span[FunctionSpanData]] = {}

    def traced(event: Event) -> object:
        if isinstance(event, ToolCallStarted):
            shown = preview_json(event.call.input, _SPAN_CHARS) if shows_data else None
            span = function_span(event.call.name, shown, parent=parent)
            open_spans[event.call.sequence] = span
            span.start()
        elif isinstance(event, ToolCallFinished) and (span := open_spans.pop(event.call.sequence, None)) is not None:
            if shows_data:
                span.span_data.output = preview_json(event.call.output, _SPAN_CHARS)
            if (error := event.call.error) is not None:
                span.set_error(SpanError(message=error.message, data={"code": error.code}))
            span.finish()
        return None if on_event is None else on_event(event)

    try:
        yield traced
    finally:
        for span in open_spans.values():
            span.finish()


def _text(text: str) -> ToolOutputText | ToolOutputImage:
    return ToolOutputText(text=text)


def _image(picture: Picture) -> ToolOutputText | ToolOutputImage:
    return ToolOutputImage(image_url=picture.url)

"""Tools and toolsets of pydantic-ai as tools for programs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias, cast

from pydantic import ValidationError
from pydantic_ai import BinaryContent, RunContext, RunUsage, ToolReturn
from pydantic_ai import Tool as AgentTool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_core import to_jsonable_python

from corral import ExecutionContext, Tool, ToolCall, ToolError, define_tool
from corral.errors import ToolDefinitionError
from corral.integrations.kit import invalid
from corral.integrations.name_conflicts import offer_usable
from corral.logs import get_logger
from corral.tools import Offer, ToolSource

logger = get_logger("corral.tools")

RUN_CONTEXT = "pydantic_ai.run_context"
"""Key in `ExecutionContext.local` under which tools find the `RunContext` of the agent that runs the program."""

_AnyToolset: TypeAlias = AbstractToolset[Any]

Invoke: TypeAlias = Callable[[_AnyToolset, ToolDefinition, dict[str, Any], ToolCall], Awaitable[object]]
"""Calls a tool of a toolset with these arguments."""


def run_context(context: ExecutionContext) -> RunContext[Any]:
    """Returns the run context of the program's agent run. Outside a run, returns one whose `deps` are the context
    itself."""
    current: RunContext[Any] | None = context.local.get(RUN_CONTEXT)
    return current or RunContext[Any](deps=context, model=TestModel(), usage=RunUsage())


def tools_of(thing: object, namespace: str | None = None) -> Sequence[Tool | ToolSource]:
    """Turns a `pydantic_ai.Tool` or a toolset into tools for programs.

    Tools of a `FunctionToolset` are declared at once. Any other toolset is listed when the Corral opens.

    Raises:
        ToolDefinitionError: the object is neither, or has a tool that does not run in this process.
    """
    if isinstance(thing, AgentTool):
        thing = FunctionToolset([cast("AgentTool[Any]", thing)])
    if isinstance(thing, FunctionToolset):
        toolset = cast("FunctionToolset[Any]", thing)
        return [tool_of(lambda _: toolset, tool.tool_def, namespace) for tool in toolset.tools.values()]
    if isinstance(thing, AbstractToolset):
        return [ToolsetSource(cast("_AnyToolset", thing), namespace)]
    raise ToolDefinitionError(f"expected a Tool or a toolset of pydantic-ai, not {type(thing).__name__}")


class ToolsetSource(ToolSource):
    """Toolset that is entered while a Corral is open. Its tools are listed once, outside an agent run."""

    def __init__(self, toolset: _AnyToolset, namespace: str | None = None) -> None:
        self.namespace = namespace
        self._toolset = toolset

    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        async with self._toolset as toolset:
            listed = await toolset.get_tools(run_context(ExecutionContext()))
            tools: list[Tool] = []
            for each in listed.values():
                try:
                    tools.append(tool_of(lambda _: toolset, each.tool_def, self.namespace))
                except ToolDefinitionError as error:
                    logger.warning("a tool of %s is left out: %s", toolset.label, error)
            offer_usable(offer, tools, self.namespace)
            yield


def tool_of(
    toolset: Callable[[ExecutionContext], _AnyToolset],
    definition: ToolDefinition,
    namespace: str | None,
    invoke: Invoke | None = None,
) -> Tool:
    """Makes a Corral tool that calls a tool of its caller's toolset, with `invoke` if passed.

    Raises:
        ToolDefinitionError: the tool does not run in this process, or programs could not name it.
    """
    if definition.kind not in {"function", "unapproved"}:
        raise ToolDefinitionError(f"tool {definition.name!r} is {definition.kind}: it does not run in this process")

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return await (invoke or _call)(toolset(call.context), definition, input, call)

    async def resolve(input: dict[str, Any], context: ExecutionContext) -> object:
        _, arguments, _ = await _prepared(toolset(context), definition, input, context)
        return arguments

    tool = define_tool(
        name=definition.name,
        namespace=namespace,
        description=definition.description or "",
        input_schema=definition.parameters_json_schema,
        output_schema=definition.return_schema or None,
        needs_approval=definition.kind == "unapproved",
        sequential=definition.sequential,
        execute=execute,
    )
    return replace(tool, resolve=resolve)


async def _call(toolset: _AnyToolset, definition: ToolDefinition, input: dict[str, Any], call: ToolCall) -> object:
    """Calls a tool as pydantic-ai does. Errors for the model become errors for the program."""
    tool, arguments, context = await _prepared(toolset, definition, input, call.context)
    with speaking(definition):
        result = await toolset.call_tool(definition.name, arguments, context, tool)
    return data_of(result, definition)


def data_of(result: object, definition: ToolDefinition) -> object:
    """Converts the result of a tool for a program."""
    return to_jsonable_python(_returned(result, definition), bytes_mode="base64")


async def _prepared(
    toolset: _AnyToolset, definition: ToolDefinition, input: dict[str, Any], caller: ExecutionContext
) -> tuple[ToolsetTool[Any], dict[str, Any], RunContext[Any]]:
    """Returns the tool, the parsed arguments, and the context of the call.

    The call counts as approved, because Corral asks for approval before it calls.
    """
    approved = definition.kind == "unapproved"
    context = replace(run_context(caller), tool_name=definition.name, tool_call_approved=approved, retry=0)
    try:
        tool = await toolset.get_tool_for_tool_def(definition, context)
    except KeyError:
        raise ToolError(f"{definition.name} is not available at present") from None
    try:
        arguments = tool.args_validator.validate_python(input, context=context.validation_context)
    except ValidationError as error:
        raise invalid(definition.name, error) from error
    if tool.args_validator_func is not None:
        with speaking(definition):
            judged = tool.args_validator_func(context, **arguments)
            if inspect.isawaitable(judged):
                await judged
    return tool, arguments, context


@contextmanager
def speaking(definition: ToolDefinition) -> Generator[None]:
    """Converts errors for the model, raised in the block, to errors for the program."""
    try:
        yield
    except (ModelRetry, ToolFailed) as error:
        raise ToolError(error.message) from error
    except (ApprovalRequired, CallDeferred) as error:
        raise ToolError(
            f"{definition.name} defers its answer, and programs cannot wait for deferred answers"
        ) from error


def _returned(result: object, definition: ToolDefinition) -> object:
    """Returns the value, with its pictures for the model unless the tool has a return schema."""
    if not isinstance(result, ToolReturn):
        return result
    answer = cast("ToolReturn[Any]", result)
    content: Sequence[object] = () if answer.content is None or isinstance(answer.content, str) else answer.content
    pictures = [each for each in content if isinstance(each, BinaryContent) and each.is_image]
    if not pictures or definition.return_schema:
        return answer.return_value
    return {"value": answer.return_value, "content": pictures}

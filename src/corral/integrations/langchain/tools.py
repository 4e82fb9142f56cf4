"""LangChain tools as tools for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException
from langchain_core.tools import Tool as TextTool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from corral import ExecutionContext, Tool, ToolError, define_tool
from corral.errors import InvalidArguments, ToolDefinitionError
from corral.tools import ToolSource
from corral.types import JsonSchema

RUNTIME = "langchain.runtime"
"""The key in `ExecutionContext.local` under which tools find the `ToolRuntime` of the agent that runs a program."""


def runtime_of(context: ExecutionContext) -> ToolRuntime[Any, Any] | None:
    """Returns the runtime of the agent that runs the program; None outside an agent."""
    return context.local.get(RUNTIME)


def tools_of(thing: object, namespace: str | None = None) -> Sequence[Tool | ToolSource]:
    """Makes the tool for programs of a `BaseTool`: from `@tool`, a `StructuredTool`, or a subclass.

    Raises:
        ToolDefinitionError: it is not a `BaseTool`, or has an injected parameter other than a `ToolRuntime`.
    """
    if not isinstance(thing, BaseTool):
        raise ToolDefinitionError(f"expected a BaseTool of LangChain, not {type(thing).__name__}")
    runtimes = _runtime_arguments(thing)
    raising = thing.model_copy(update={"handle_tool_error": False, "handle_validation_error": False})

    async def execute(input: dict[str, Any], context: ExecutionContext) -> object:
        runtime = runtime_of(context)
        if runtimes and runtime is None:
            raise ToolError(f"{thing.name} can only be called by programs of a LangChain agent")
        arguments = {**input, **dict.fromkeys(runtimes, runtime)}
        _require_valid(thing, arguments)  # `ainvoke` raises the same error for failures within the tool
        try:
            result = await raising.ainvoke(arguments, None if runtime is None else runtime.config)
        except ToolException as error:
            raise ToolError(_text_of(thing, error)) from error
        return _value_of(result, thing.name)

    return [
        define_tool(
            name=thing.name,
            namespace=namespace,
            description=thing.description,
            input_schema=_input_schema(thing),
            output_schema=_returned(thing),
            execute=execute,
        )
    ]


def _require_valid(tool: BaseTool, arguments: dict[str, Any]) -> None:
    """Raises InvalidArguments for rules that the JSON Schema does not cover."""
    schema = tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return
    try:
        schema.model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InvalidArguments(f'tool "{tool.name}": {problems}') from error


def _value_of(result: object, name: str) -> object:
    if isinstance(result, Command):
        raise ToolError(f"{name} changes the agent's state, which a program cannot do")
    if not isinstance(result, ToolMessage):
        return result
    if result.status == "error":
        raise ToolError(result.text)
    return result.content


def _text_of(tool: BaseTool, error: ToolException) -> str:
    """Returns the tool's own message about its failure, for models."""
    handler = tool.handle_tool_error
    if isinstance(handler, str):
        return handler
    return str(handler(error)) if callable(handler) else str(error)


def _function(tool: BaseTool) -> Callable[..., Any] | None:
    return tool.coroutine or tool.func if isinstance(tool, StructuredTool) else tool._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _hints(source: object) -> dict[str, Any]:
    """Returns the type hints of a function or model; empty if a name in them cannot be resolved."""
    try:
        return get_type_hints(source, include_extras=True)
    except (NameError, TypeError):
        return {}


def _runtime_arguments(tool: BaseTool) -> list[str]:
    """Returns the names of parameters that take the `ToolRuntime`."""
    names: list[str] = []
    for name, hint in {**_hints(tool.args_schema), **_hints(_function(tool))}.items():
        if hint is ToolRuntime or get_origin(hint) is ToolRuntime:
            names.append(name)
        elif any(isinstance(each, InjectedToolArg) or _is_marker(each) for each in get_args(hint)[1:]):
            raise ToolDefinitionError(
                f"tool {tool.name!r}: only LangChain can inject {name!r}; take `runtime: ToolRuntime` instead"
            )
    return names


def _is_marker(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, InjectedToolArg)


def _input_schema(tool: BaseTool) -> JsonSchema:
    if isinstance(tool, TextTool) and tool.args_schema is None:
        return {"type": "object", "properties": tool.args, "required": [*tool.args]}
    schema = tool.tool_call_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        # pydantic ignores unknown arguments; programs get an error instead
        schema = {"additionalProperties": False, **schema.model_json_schema()}
    if not isinstance(schema, dict):
        raise ToolDefinitionError(
            f"tool {tool.name!r}: args_schema is a model of pydantic 1; make it one of pydantic 2"
        )
    return {key: value for key, value in schema.items() if key not in {"title", "description"}}


def _returned(tool: BaseTool) -> object:
    """Returns the function's declared return type, if it has a JSON Schema."""
    if not isinstance(tool, StructuredTool) or tool.response_format != "content":
        return None
    hint = _hints(_function(tool)).get("return", Any)
    if hint is Any or hint is object:
        return None
    try:
        TypeAdapter[Any](hint).json_schema(mode="serialization")
    except PydanticUserError:  # for example a Command
        return None
    return hint

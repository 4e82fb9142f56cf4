"""Code mode for agents of LangChain: `create_agent(model, **code_mode(corral))`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Never, TypeAlias, TypedDict, cast

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime

from corral import Language, ModelTool
from corral.arguments import checked
from corral.errors import ConfigError
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
    require_distinct,
)
from corral.integrations.langchain.tools import RUNTIME
from corral.rendering.images import Picture

__all__ = ["AgentParts", "code_mode"]

AgentTool: TypeAlias = BaseTool | Callable[..., Any] | dict[str, Any]


class AgentParts(TypedDict):
    """Keyword arguments for `create_agent`, besides the model."""

    system_prompt: str
    tools: list[AgentTool]


@checked
def code_mode(
    corrals: Corrals,
    *,
    system_prompt: str = "",
    tools: Iterable[AgentTool] = (),
    language: Language = "typescript",
    context: Context[ToolRuntime[Any, Any]] = None,
    budget_tokens: int = 4_000,
    on_event: OnEvent | None = None,
    shell: ShellChoice | None = None,
    describe_shell: DescribeShell | None = None,
) -> AgentParts:
    """The given prompt and tools, with the tool that runs programs and how to write them.

    The prompt shows the tools that there are now: open a Corral first whose tools come with a connection.
    `context` says on whose behalf programs run; without it the agent's runtime context does, if that is an
    `ExecutionContext`. Tools find the `ToolRuntime` by `runtime_of(context)`. What is not a success becomes a message
    with the status `error`.

    `shell` is the shell of each call's programs, or opens one for each; `describe_shell` tells the model of it.

    Raises:
        ConfigError: a tool has a name that another has, or is Corral's; or as `corral.integrations.kit.kit`.
    """
    added = kit(
        corrals,
        instructions=system_prompt,
        language=language,
        budget_tokens=budget_tokens,
        context=context,
        shell=shell,
        describe_shell=describe_shell,
    )
    own = own_tools(tools)
    require_distinct(added, map(_name, own))
    made = [_structured(tool, context, on_event) for tool in added.tools]
    return AgentParts(system_prompt=added.prompt, tools=[*own, *made])


def _structured(tool: ModelTool, context: Context[ToolRuntime[Any, Any]], on_event: OnEvent | None) -> StructuredTool:
    async def run(runtime: ToolRuntime[Any, Any], **arguments: object) -> str | list[dict[str, str]]:
        caller = carrying(context_for(context, runtime, runtime.context), RUNTIME, runtime)
        result = await tool.run(arguments, caller, on_event=on_event, tool_call_id=runtime.tool_call_id)
        if not result.success:
            raise ToolException(result.model_text())
        return parts_of(result, _text, _image)

    def refuse(runtime: ToolRuntime[Any, Any], **arguments: object) -> Never:  # noqa: ARG001
        raise ConfigError(f"{tool.name} is asynchronous: await agent.ainvoke(...) instead of agent.invoke(...)")

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.input_schema,
        coroutine=run,
        func=refuse,
        handle_tool_error=True,
    )


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _image(picture: Picture) -> dict[str, str]:
    return {"type": "image", "base64": picture.base64, "mime_type": picture.media_type}


def _name(tool: AgentTool) -> str:
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, dict):
        described = cast("dict[str, Any]", tool)
        return str(described.get("name") or described.get("function", {}).get("name"))
    return getattr(tool, "__name__", type(tool).__name__)

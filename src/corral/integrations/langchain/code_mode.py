"""Code mode for agents of LangChain: `create_agent(model, tools, middleware=[CodeMode()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias, TypedDict, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime
from typing_extensions import override

from corral import Corral, Language, ModelTool, Tool
from corral.arguments import checked
from corral.concurrency.lifecycle import run_in_loop_of
from corral.errors import ToolDefinitionError
from corral.integrations.kit import (
    Context,
    Corrals,
    DescribeShell,
    Kit,
    OnEvent,
    ShellChoice,
    carrying,
    context_for,
    kit,
    opened,
    own_tools,
    parts_of,
    require_distinct,
)
from corral.integrations.langchain.tools import RUNTIME, tools_of
from corral.logs import get_logger
from corral.rendering.images import Picture
from corral.tools import ToolRegistry

logger = get_logger("corral.tools")

_MOST_KITS = 32
"""Sets of an agent's tools whose prompts are kept."""

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
    first = next(iter(added.corrals.values()))
    made = [
        _structured(tool, added.corrals.get(tool.name, first), lambda _, tool=tool: tool, context, on_event)
        for tool in added.tools
    ]
    return AgentParts(system_prompt=added.prompt, tools=[*own, *made])


@checked
class CodeMode(AgentMiddleware[Any, Any, Any]):
    """Makes the agent's own tools what its programs call: `create_agent(model, tools, middleware=[CodeMode()])`.

    `outside` names tools that stay with the model; those that programs cannot call stay too, with a warning in the log.
    Programs also have the tools of `corral`, whose limits, sandbox, approvals and audit hold. One that is not open is
    opened by the first program, and closed after a minute without any; a Corral with tool sources has to be open.

    The other parameters are those of `code_mode`. Works in `agent.invoke` and in `agent.ainvoke`.
    """

    def __init__(
        self,
        corral: Corral | None = None,
        *,
        outside: Collection[str] = (),
        language: Language = "typescript",
        context: Context[ToolRuntime[Any, Any]] = None,
        budget_tokens: int = 4_000,
        on_event: OnEvent | None = None,
        shell: ShellChoice | None = None,
    ) -> None:
        super().__init__()
        self._corral = corral or Corral()
        self._outside = frozenset(outside)
        self._options: dict[str, Any] = {"language": language, "budget_tokens": budget_tokens, "shell": shell}
        self._made: dict[tuple[int, ...], tuple[Sequence[BaseTool], Kit, Sequence[BaseTool]]] = {}
        self._left: set[str] = set()
        self.tools = [
            _structured(tool, self._corral, partial(self._current, tool.name), context, on_event, opens=True)
            for tool in self._corral.model_tools(language, search=True)
        ]
        self._names = frozenset(tool.name for tool in self.tools)

    @override
    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return handler(self._with_programs(request))

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(self._with_programs(request))

    def _with_programs(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        inside, added = self._kit(request.tools)
        taken = self._names | {each.name for each in inside}
        kept = [each for each in request.tools if _name(each) not in taken]
        described = {tool.name: {"description": tool.description} for tool in added.tools}
        ours = [tool.model_copy(update=described[tool.name]) for tool in self.tools if tool.name in described]
        system = request.system_message
        blocks: list[Any] = [] if system is None else [{"type": "text", "text": system.content}]
        if system is not None and not isinstance(system.content, str):
            blocks = [*system.content]
        prompt = {"type": "text", "text": f"\n\n{added.prompt}" if blocks else added.prompt}
        return request.override(tools=[*kept, *ours], system_message=SystemMessage(content=[*blocks, prompt]))

    def _current(self, name: str, runtime: ToolRuntime[Any, Any]) -> ModelTool:
        """The tool of this name, for the tools that the agent has now."""
        _, added = self._kit(runtime.tools)
        found = next((tool for tool in added.tools if tool.name == name), None)
        if found is None:
            raise ToolException(f"there is no tool {name!r} now")
        return found

    def _kit(self, tools: Sequence[AgentTool]) -> tuple[Sequence[BaseTool], Kit]:
        """The tools of the agent that programs call, and what the model gets for them."""
        own = [each for each in tools if isinstance(each, BaseTool) and each.name not in self._names | self._outside]
        key = tuple(map(id, own))
        if key not in self._made:
            registry = self._corral.tools.copy()
            inside = [each for each in own if self._register(registry, each)]
            registry.outside = frozenset(map(_name, tools)) - {each.name for each in inside} - self._names
            if len(self._made) >= _MOST_KITS:
                self._made.pop(next(iter(self._made)))
            added = kit(self._corral, callable_tools=registry, **self._options)
            self._made[key] = inside, added, own  # kept, so that no other tool gets the id of one of them
        return self._made[key][:2]

    def _register(self, registry: ToolRegistry, tool: BaseTool) -> bool:
        try:
            for each in tools_of(tool):
                registry.register(cast("Tool", each))
        except ToolDefinitionError as error:
            if tool.name not in self._left:
                self._left.add(tool.name)
                logger.warning("a tool of the agent stays with the model: %s", error)
            return False
        return True


def _structured(
    tool: ModelTool,
    corral: Corral,
    current: Callable[[ToolRuntime[Any, Any]], ModelTool],
    context: Context[ToolRuntime[Any, Any]],
    on_event: OnEvent | None,
    *,
    opens: bool = False,
) -> StructuredTool:
    """The model's tool, which does what the `current` one does."""

    async def run(runtime: ToolRuntime[Any, Any], **arguments: object) -> str | list[dict[str, str]]:
        caller = carrying(context_for(context, runtime, runtime.context), RUNTIME, runtime)
        async with opened(corral) if opens else nullcontext():
            result = await current(runtime).run(arguments, caller, on_event=on_event, tool_call_id=runtime.tool_call_id)
        if not result.success:
            raise ToolException(result.model_text())
        return parts_of(result, _text, _image)

    def run_sync(runtime: ToolRuntime[Any, Any], **arguments: object) -> str | list[dict[str, str]]:
        return run_in_loop_of(corral, partial(run, runtime, **arguments))

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.input_schema,
        coroutine=run,
        func=run_sync,
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

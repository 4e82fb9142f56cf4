"""Code mode for agents of LangChain: `create_agent(model, tools, middleware=[CodeMode()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import Unpack, override

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionContext, Tool, ToolError, define_tool
from corral.arguments import checked
from corral.concurrency.lifecycle import run_in_loop_of
from corral.errors import ToolDefinitionError, requires_extra
from corral.integrations.kit import (
    AgentCodeMode,
    Corrals,
    Decide,
    Entry,
    Kit,
    Options,
    Pause,
    carrying,
    context_for,
    in_conversation,
    invalid,
    own_tools,
    parts_of,
    person,
    register,
    result_of,
)
from corral.model import ModelTool
from corral.rendering.images import Picture
from corral.tools import ToolSource
from corral.types import JsonSchema

with requires_extra("corral.integrations.langchain", "langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException
    from langchain_core.tools import Tool as TextTool
    from langgraph.prebuilt import ToolRuntime
    from langgraph.types import Command, interrupt

__all__ = ["RUNTIME", "CodeMode", "runtime_of", "tools_of"]

RUNTIME = "langchain.runtime"
"""Key in `ExecutionContext.local` under which tools find the `ToolRuntime` of the agent that runs a program."""


def runtime_of(context: ExecutionContext) -> ToolRuntime[Any, Any] | None:
    """Returns the runtime of the agent that runs the program; None outside an agent."""
    return context.local.get(RUNTIME)


def tools_of(thing: object, namespace: str | None = None) -> Sequence[Tool | ToolSource]:
    """Turns a `BaseTool` into a tool for programs: the result of `@tool`, a `StructuredTool`, or a subclass.

    Raises:
        ToolDefinitionError: the object is not a `BaseTool`, or has an injected parameter other than a `ToolRuntime`.
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
    """Raises InvalidArguments if the input breaks rules that the JSON Schema does not cover."""
    schema = tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return
    try:
        schema.model_validate(arguments)
    except ValidationError as error:
        raise invalid(tool.name, error) from error


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
        raise ToolDefinitionError(f"tool {tool.name!r}: args_schema is a pydantic 1 model; make it a pydantic 2 model")
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


# --- code mode ----------------------------------------------------------------------------------------------

_MOST_KITS = 32
"""Maximum number of an agent's tool sets whose prompts are kept."""

AgentTool: TypeAlias = BaseTool | Callable[..., Any] | dict[str, Any]


@checked
class CodeMode(AgentCodeMode[[ToolRuntime[Any, Any]]], AgentMiddleware[Any, Any, Any]):
    """Gives an agent the tool that runs programs: `create_agent(model, tools, middleware=[CodeMode()])`.

    Without a Corral, or with `tools`, programs call the agent's own tools: all of them, or those that `tools` names,
    except those in `outside`. The others stay with the model, as do tools that programs cannot call, with a warning.
    With a Corral and no `tools`, all of the agent's tools stay with the model. The Corral determines limits, sandbox,
    approvals and audit.

    `context` is the caller of programs, or a function of the `ToolRuntime`; default: the agent's runtime context, if it
    is an `ExecutionContext`, else an anonymous one whose session is the thread. Tools get the `ToolRuntime` by
    `runtime_of(context)`. A failure becomes a message with the status `error`. Works in `agent.invoke` and in
    `agent.ainvoke`.

    A program opens a Corral that is not open; it is closed after a minute without programs. A Corral with tool sources
    must be open.

    Raises:
        ConfigError: the name of a Corral cannot be part of a tool's name; when the model is called: a tool of the
            agent has the name of one of these, or `describe_shell` has no open shell.
    """

    def __init__(
        self,
        corrals: Corrals | None = None,
        *,
        tools: Literal["all"] | Collection[str] | None = None,
        outside: Collection[str] = (),
        **options: Unpack[Options[[ToolRuntime[Any, Any]]]],
    ) -> None:
        super().__init__(corrals, tools=tools, outside=outside, **options)
        self._made: dict[tuple[int, ...], tuple[Sequence[BaseTool], Kit, Sequence[BaseTool]]] = {}
        self.tools = [
            self._structured(tool, corral)
            for label, corral in self.named.items()
            for tool in corral.model.tools(self.language, label=label, search=True)
        ]
        self._names = frozenset(tool.name for tool in self.tools)

    @override
    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Gives the model the tool that runs programs, instead of the tools that programs call."""
        return handler(self._with_programs(request))

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Does the same as `wrap_model_call`, asynchronously."""
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

    def _current(self, name: str, runtime: ToolRuntime[Any, Any]) -> tuple[Kit, ModelTool]:
        """Returns the tool of this name for the agent's current tools, and its kit."""
        _, added = self._kit(runtime.tools)
        current = next((tool for tool in added.tools if tool.name == name), None)
        if current is None:
            raise ToolException(f"there is no tool {name!r} at present")
        return added, current

    def _kit(self, tools: Sequence[AgentTool]) -> tuple[Sequence[BaseTool], Kit]:
        """Returns the agent's tools for programs, and the kit for the model."""
        others = own_tools(each for each in tools if not any(each is ours for ours in self.tools))
        own = [each for each in others if isinstance(each, BaseTool) and self.takes(each.name)]
        key = tuple(map(id, own))
        if key not in self._made:
            registry = self.corral.tools.copy()
            inside = [each for each in own if register(registry, partial(tools_of, each))]
            registry.outside = frozenset(map(_name, others)) - {each.name for each in inside}
            if len(self._made) >= _MOST_KITS:
                self._made.pop(next(iter(self._made)))
            added = self.kit(map(_name, others), tools=None if self.choice is None else registry)
            self._made[key] = inside, added, own  # kept, so that no other tool can get one of their ids
        return self._made[key][:2]

    def _structured(self, tool: ModelTool, corral: Corral) -> StructuredTool:
        """Makes the model's tool. It runs the tool of this name for the agent's current tools."""

        async def run(runtime: ToolRuntime[Any, Any], **arguments: object) -> str | list[dict[str, str]]:
            task = [runtime.config.get("configurable", {}).get(key) for key in ("thread_id", "checkpoint_ns")]
            session = ExecutionContext(session_id=str(task[0])) if task[0] else None
            caller = carrying(context_for(self.context, runtime, runtime.context, session), RUNTIME, runtime)
            caller = in_conversation(caller, tool.name, self.asked, runtime, lambda: _entries(runtime, str(task[1])))
            added, current = self._current(tool.name, runtime)
            result = await added.run(
                current,
                arguments,
                caller,
                on_event=self.listener,
                tool_call_id=runtime.tool_call_id,
                run=task,
                ask=_answer if task[0] else None,
            )
            assert not isinstance(result, Pause)  # interrupts end the task
            if not result.success:
                raise ToolException(result.model_text())
            return parts_of(result, _block)

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


def _described(call: ApprovalRequest) -> str:
    """Describes a call for the person who decides, with the reasons to ask."""
    return "\n".join([call.reason or call.description, *(each.text for each in call.doubts)])


def _entries(runtime: ToolRuntime[Any, Any], namespace: str) -> Iterator[Entry]:
    """Yields the texts of persons, and the tools whose results the model has read.

    Left out are messages with a name, by which graphs of several agents mark what another agent wrote, those that a
    middleware made, such as summaries, and all messages of an agent that a tool of another agent runs.
    """
    state: Any = runtime.state
    messages: Any = cast("dict[str, Any]", state).get("messages") if isinstance(state, dict) else state.messages
    is_nested = any(part.startswith("tools:") for part in namespace.split("|")[:-1])
    for message in messages or ():
        if isinstance(message, ToolMessage):
            yield result_of(message.name)
        elif isinstance(message, HumanMessage) and not (
            is_nested or message.name or "lc_source" in message.additional_kwargs
        ):
            blocks: Any = message.content
            texts = [blocks] if isinstance(blocks, str) else [each.get("text") for each in blocks if _is_text(each)]
            yield from (person(text) for text in texts if isinstance(text, str))


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and cast("dict[str, object]", block).get("type") == "text"


def _answer(pause: Pause) -> Decide:
    """Interrupts the task until the pause is answered. The request and its answer have the form of LangChain's
    `HumanInTheLoopMiddleware`. Answers to earlier pauses of the program come first."""
    names = dict.fromkeys(call.tool for call in pause.calls)
    request = {
        "action_requests": [
            {"name": call.tool, "args": shown["input"], "description": _described(call)}
            for call, shown in zip(pause.calls, pause.to_dict()["calls"], strict=True)
        ],
        "review_configs": [{"action_name": name, "allowed_decisions": ["approve", "reject"]} for name in names],
        **pause.to_dict(),
    }
    answer: Any = None
    for _ in range(pause.number):
        answer = interrupt(request)
    decisions: list[Any] = [{"type": "approve" if answer is True else "reject"}] * len(pause.calls)
    if isinstance(answer, dict):
        decisions = cast("dict[str, Any]", answer).get("decisions", [])
    by_call = dict(zip((call.sequence for call in pause.calls), decisions, strict=False))

    def decide(call: ApprovalRequest) -> Approved | Denied:
        match by_call.get(call.sequence):
            case {"type": "approve", **others}:
                return Approved(for_session=others.get("for_session") is True)
            case {"type": "reject", "message": str() as message}:
                return Denied(message)
            case _:
                return Denied()

    return decide


def _block(part: str | Picture) -> dict[str, str]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "base64": part.base64, "mime_type": part.media_type}


def _name(tool: AgentTool) -> str:
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, dict):
        described = cast("dict[str, Any]", tool)
        return str(described.get("name") or described.get("function", {}).get("name"))
    return getattr(tool, "__name__", type(tool).__name__)

"""Code mode for agents of pydantic-ai: `Agent(model, capabilities=[CodeMode(corral)])`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from pydantic_ai import BinaryContent, CapabilityEvent, InstructionPart, ModelRetry, RunContext, RunUsage, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.tools import ToolDefinition, ToolSelector
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema, from_json
from typing_extensions import Unpack, override

from corral import Corral, ExecutionContext, ExecutionResult, Limits
from corral.arguments import checked
from corral.errors import ApprovalDenied, ConfigError, ToolError
from corral.events import ConsoleOutput, Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
from corral.integrations.kit import (
    AgentCodeMode,
    Corrals,
    Kit,
    Options,
    carrying,
    context_for,
    enter_corral,
    leave_corral,
    open_shell,
    parts_of,
    require_distinct,
)
from corral.integrations.pydantic_ai.own_tools import (
    CODE_ARGUMENT,
    Chosen,
    OwnTools,
    answers_approvals,
    approval_of,
    call_id,
    is_traced,
)
from corral.integrations.pydantic_ai.tools import RUN_CONTEXT
from corral.model import ModelTool
from corral.rendering.images import Picture
from corral.rendering.preview import preview_json
from corral.tools import traced_elsewhere

_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""Accepts any arguments: Corral validates them itself, with its own messages for programs."""


@dataclass(kw_only=True)
class ProgramCallEvent(CapabilityEvent, namespace="corral", name="call"):
    """A program calls a tool. Events of one program share their `tool_call_id`."""

    tool: str
    sequence: int
    """Number of the call within its program, from 1."""
    input: Any = None


@dataclass(kw_only=True)
class ProgramProgressEvent(CapabilityEvent, namespace="corral", name="progress"):
    """A tool reported the progress of a call of a program."""

    tool: str
    sequence: int
    done: float
    total: float | None = None
    message: str | None = None


@dataclass(kw_only=True)
class ProgramResultEvent(CapabilityEvent, namespace="corral", name="result"):
    """A call of a program was answered."""

    tool: str
    sequence: int
    output: Any = None
    error: str | None = None


@dataclass(kw_only=True)
class ProgramOutputEvent(CapabilityEvent, namespace="corral", name="output"):
    """A program printed text."""

    level: str
    text: str


@checked
class CodeMode(AgentCodeMode[[RunContext[Any]]], AbstractCapability[Any]):
    """Gives an agent the tool that runs programs, and the instructions for it.

    Without a Corral, or with `tools`, programs call the agent's own function tools and toolsets: all of them, or those
    that `tools` selects, except those in `outside`. The others stay with the model; with a Corral and no `tools`, all
    of them do.

    `context` is the caller of programs; default: `deps`, if they are an `ExecutionContext`. Tools get the `RunContext`
    by `run_context(context)`. `retries` is the maximum number of consecutive programs that are refused before they run.
    The agent and its runs open the Corral, if it is not open, and close it afterwards.

    Raises:
        ConfigError: the name of a Corral cannot be part of a tool's name; when a run begins: a tool of the agent, or
            of another `CodeMode`, has the name of one of these, or `describe_shell` has no open shell.
    """

    def __init__(
        self,
        corrals: Corrals | None = None,
        *,
        tools: ToolSelector[Any] | None = None,
        outside: Collection[str] = (),
        retries: int = 5,
        **options: Unpack[Options[[RunContext[Any]]]],
    ) -> None:
        super().__init__(corrals, tools=tools, outside=outside, **options)
        selected: ToolSelector[Any] | None = self.choice
        self.chosen = None if selected is None else Chosen(self.corral, selected, self.outside, self.approve)
        self.retries = retries
        self._toolset = _CodeToolset(self)

    @override
    def get_toolset(self) -> AbstractToolset[Any]:
        """Returns the model's tools."""
        return self._toolset

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        """Returns the agent's own tools, without those that programs call, and the tool that runs programs."""
        if self.chosen is None:
            return None
        own = OwnTools(toolset, self.chosen, self.chosen.corral.tools.copy())
        return _WithCode(own, own, self)

    @classmethod
    @override
    def get_serialization_name(cls) -> str | None:
        """Returns None: a Corral cannot be serialized."""
        return None

    def context_of(self, run: RunContext[Any]) -> ExecutionContext:
        """Returns the caller for programs of this run, with the run itself in its `local`."""
        if self.context is not None:
            context = context_for(self.context, run)
        elif isinstance(run.deps, ExecutionContext):
            context = run.deps
        else:
            context = ExecutionContext(session_id=run.conversation_id) if run.conversation_id else ExecutionContext()
        return carrying(context, RUN_CONTEXT, run)


_HISTORY_CHARS = 10_000
"""Maximum JSON characters of an input or output in the message history, which hosts store and send."""


class _CodeToolset(AbstractToolset[Any]):
    """The tools of a capability. Each run has its own, whose prompt stays the same during the run."""

    def __init__(self, mode: CodeMode, own: OwnTools | None = None, *, of_run: bool = False) -> None:
        self._mode = mode
        self._own = own
        self._of_run = of_run
        self._kit: Kit | None = None

    @property
    @override
    def id(self) -> str | None:
        return self._mode.id

    @override
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return _CodeToolset(self._mode, self._own, of_run=True)

    @override
    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entered:
            for corral in self._mode.named.values():
                await enter_corral(corral, self._mode.language)
                entered.push_async_callback(leave_corral, corral, keep=False)
            entered.pop_all()
        return self

    @override
    async def __aexit__(self, *args: object) -> None:
        async with AsyncExitStack() as left:
            for corral in self._mode.named.values():
                left.push_async_callback(leave_corral, corral, keep=self._of_run)

    @override
    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        return InstructionPart(self.kit_for(ctx).prompt) if self._speaks else None

    @property
    def _speaks(self) -> bool:
        """False if another toolset, which knows the agent's own tools, has the instructions; this one only keeps the
        Corral open."""
        return self._mode.chosen is None or self._own is not None

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        if not self._speaks:
            return {}
        id_in_run = next((key for key, each in ctx.capabilities.items() if each is self._mode), None)
        return {tool.name: self._described(tool, id_in_run) for tool in self.kit_for(ctx).tools}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str | list[str | BinaryContent] | ToolReturn[Any]:
        own = self.kit_for(ctx)
        [called] = [each for each in own.tools if each.name == name]
        context = self._mode.context_of(ctx)
        if self._own is not None:
            context = self._own.carried_by(context)
        if name not in own.corrals:
            result, news = await called.run(tool_args, context), ""
        else:
            result = await self._run(own.corrals[name], called, tool_args, context, ctx)
            news = own.catalogs[name].news()
        changes = f"\n\nTools have changed:\n{news}" if news else ""
        if result.status == "rejected":
            raise ModelRetry(f"{result.model_text()}{changes}")
        parts = parts_of(result, _text, _image)
        value = f"{parts}{changes}" if isinstance(parts, str) else [f"{parts[0]}{changes}", *parts[1:]]
        return ToolReturn(value, metadata=_history(result, ctx)) if name in own.corrals else value

    @property
    def has_kit(self) -> bool:
        return self._kit is not None

    def kit_for(self, ctx: RunContext[Any]) -> Kit:
        """Returns the kit, made in the first step of a run: by then the Corrals are open, and know all their tools."""
        if self._kit is None:
            mode = self._mode
            hides = any(corral.hide_denied for corral in mode.named.values())
            registry = None if self._own is None else self._own.registry
            made = mode.kit(tools=registry, context=mode.context_of(ctx) if hides else None)
            if self._own is None:
                toolsets = () if ctx.agent is None else ctx.agent.toolsets
                tools = [name for toolset in toolsets if isinstance(toolset, FunctionToolset) for name in toolset.tools]
                require_distinct(made, tools)
            _require_apart(self._mode, ctx)
            self._kit = made
        return self._kit

    def _described(self, tool: ModelTool, capability_id: str | None) -> ToolsetTool[Any]:
        """Makes a model's tool of this capability; without the capability's id it could not emit events."""
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
            metadata={CODE_ARGUMENT: "code"} if "code" in tool.input_schema["properties"] else None,
            capability_id=capability_id,
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=self._mode.retries, args_validator=_ARGUMENTS)

    async def _run(
        self,
        corral: Corral,
        tool: ModelTool,
        arguments: Mapping[str, Any],
        context: ExecutionContext,
        ctx: RunContext[Any],
    ) -> ExecutionResult:
        """Runs a program; its calls count in the run's usage, and appear in the run's stream of events.

        Raises:
            ModelRetry: the arguments are wrong.
            UsageLimitExceeded: the run has used up its calls.
        """
        try:
            source: str = tool.read(arguments)["code"]
        except ToolError as error:
            raise ModelRetry(str(error)) from error
        limits = _limits(corral, ctx)
        approve = self._mode.approve
        if approve is None and corral.approve is None and answers_approvals(ctx):
            approve = approval_of(ctx, self._own)
        send, receive = anyio.create_memory_object_stream[CapabilityEvent](math.inf)  # bounded by the program's limits
        result: ExecutionResult | None = None
        failure: Exception | None = None

        def listen(event: Event) -> None:
            if isinstance(event, ToolCallFinished) and event.call.error is None and not self._counts(event.call.name):
                ctx.usage.incr(RunUsage(tool_calls=1))
            if (shown := _shown(event)) is not None:
                send.send_nowait(shown)
            if self._mode.listener is not None:
                self._mode.listener(event)

        async with receive, anyio.create_task_group() as tasks:
            tasks.start_soon(_emit, receive, ctx)
            with send:
                traced = traced_elsewhere.set(self._own.inside if self._own is not None and is_traced(ctx) else ())
                try:
                    async with open_shell(self._mode.shell):
                        result = await corral.execute(
                            source,
                            language=self._mode.language,
                            context=context,
                            limits=limits,
                            tools=None if self._own is None else self._own.registry,
                            on_event=listen,
                            approve=approve,
                            tool_call_id=ctx.tool_call_id,
                        )
                except Exception as error:  # raised below: a task group would wrap it
                    failure = error
                finally:
                    traced_elsewhere.reset(traced)
        if failure is not None:
            raise failure
        assert result is not None
        return result

    def _counts(self, name: str) -> bool:
        """True if pydantic-ai itself counts the calls of this tool."""
        return self._own is not None and name in self._own.inside


@dataclass
class _WithCode(WrapperToolset[Any]):
    """An agent's own tools when programs call some of them: the remaining ones, and the tool that runs programs."""

    own: OwnTools
    mode: CodeMode

    def __post_init__(self) -> None:
        self.code = _CodeToolset(self.mode, self.own)

    @override
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.own.wrapped = await self.own.wrapped.for_run(ctx)  # each run has its own
        return self

    @override
    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.own.wrapped = await self.own.wrapped.for_run_step(ctx)
        return self

    @override
    async def get_instructions(self, ctx: RunContext[Any]) -> Sequence[str | InstructionPart]:
        inherited = await super().get_instructions(ctx)
        if not self.code.has_kit:
            await self.own.outside(ctx)
        before = [inherited] if isinstance(inherited, str | InstructionPart) else inherited or []
        prompt = await self.code.get_instructions(ctx)
        return [*before, *([] if prompt is None else [prompt])]

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        outside = await self.own.outside(ctx)
        require_distinct(self.code.kit_for(ctx), outside)
        return {**outside, **await self.code.get_tools(ctx)}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return await (self.code if tool.toolset is self.code else self.own).call_tool(name, tool_args, ctx, tool)


def _text(text: str) -> str | BinaryContent:
    return text


def _image(picture: Picture) -> str | BinaryContent:
    return BinaryContent(picture.data, media_type=picture.media_type)


def _require_apart(mode: CodeMode, ctx: RunContext[Any]) -> None:
    """Raises ConfigError if tools of an earlier `CodeMode` have the same names."""
    capabilities: list[AbstractCapability[Any]] = []
    if ctx.root_capability is not None:
        ctx.root_capability.apply(capabilities.append)
    for other in takewhile(lambda each: each is not mode, capabilities):
        if isinstance(other, CodeMode) and other.named.keys() & mode.named.keys():
            raise ConfigError("two CodeMode in one agent: name the Corrals in one, CodeMode({'a': a, 'b': b})")


def _limits(corral: Corral, ctx: RunContext[Any]) -> Limits:
    """Returns the Corral's limits, with at most the run's remaining calls; the program itself counts as one.

    Raises:
        UsageLimitExceeded: no call is left for the program.
    """
    bounds = ctx.usage_limits
    if bounds is None or bounds.tool_calls_limit is None:
        return corral.limits
    bounds.check_before_tool_call(ctx.usage + RunUsage(tool_calls=2))
    left = bounds.tool_calls_limit - ctx.usage.tool_calls - 1
    return corral.limits.model_copy(update={"calls": min(left, corral.limits.calls)})


async def _emit(events: MemoryObjectReceiveStream[CapabilityEvent], ctx: RunContext[Any]) -> None:
    async for event in events:
        if ctx.tool_manager is not None:  # a context made by hand has no stream
            await ctx.emit(event)


def _history(result: ExecutionResult, ctx: RunContext[Any]) -> dict[str, Any]:
    """Returns a program's calls for the message history, in the form of pydantic-ai's own code mode."""
    calls: dict[str, ToolCallPart] = {}
    returns: dict[str, ToolReturnPart] = {}
    for call in result.tool_calls:
        key = call_id(ctx, call.sequence)
        calls[key] = ToolCallPart(call.name, _plain(call.input), tool_call_id=key)
        if call.duration_ms is None:
            continue
        content, outcome = _plain(call.output), "success"
        if call.error is not None:
            content = call.error.message
            outcome = "denied" if call.error.code == ApprovalDenied.code else "failed"
        returns[key] = ToolReturnPart(call.name, content, tool_call_id=key, outcome=outcome)
    return {"code_mode": True, "tool_calls": calls, "tool_returns": returns}


def _plain(value: Any) -> Any:
    """Converts a value to plain JSON data, shortened."""
    return from_json(preview_json(value, _HISTORY_CHARS))


def _shown(event: Event) -> CapabilityEvent | None:
    match event:
        case ToolCallStarted(call=call):
            return ProgramCallEvent(tool=call.name, sequence=call.sequence, input=call.input)
        case ToolCallProgress(tool=tool, sequence=sequence, done=done, total=total, message=message):
            return ProgramProgressEvent(tool=tool, sequence=sequence, done=done, total=total, message=message)
        case ToolCallFinished(call=call):
            error = None if call.error is None else call.error.message
            return ProgramResultEvent(tool=call.name, sequence=call.sequence, output=call.output, error=error)
        case ConsoleOutput(entry=entry):
            return ProgramOutputEvent(level=entry.level, text=entry.text)
        case _:
            return None

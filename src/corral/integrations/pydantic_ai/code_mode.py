"""Code mode for agents of pydantic-ai: `Agent(model, capabilities=[CodeMode(corral)])`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from pydantic import ValidationError
from pydantic_ai import (
    ApprovalRequired,
    BinaryContent,
    CallToolsNode,
    CapabilityEvent,
    DeferredToolRequests,
    InstructionPart,
    ModelRetry,
    RunContext,
    RunUsage,
    ToolApproved,
    ToolDenied,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability, AgentNode, Hooks, Instrumentation, RequestInput
from pydantic_ai.exceptions import ToolRetryError
from pydantic_ai.messages import ModelMessage, NativeToolReturnPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDefinition, ToolSelector, matches_tool_selector
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema, from_json
from typing_extensions import Unpack, override

from corral import (
    ApprovalRequest,
    Approved,
    Corral,
    Denied,
    ExecutionContext,
    ExecutionResult,
    Later,
    Limits,
    Tool,
    ToolCall,
    ToolError,
)
from corral.arguments import checked
from corral.errors import AccessDenied, ApprovalDenied, ConfigError, ToolDefinitionError
from corral.events import ConsoleOutput, Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
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
    enter_corral,
    execution_of,
    in_conversation,
    invalid,
    leave_corral,
    open_shell,
    parts_of,
    person,
    provenance,
    read_decision,
    require_distinct,
    result_of,
    run_durably,
)
from corral.integrations.pydantic_ai.tools import RUN_CONTEXT, data_of, run_context, speaking, tool_of
from corral.logs import get_logger
from corral.model import ModelTool
from corral.rendering.images import Picture
from corral.rendering.preview import preview_json
from corral.tools import ToolRegistry, traced_elsewhere
from corral.types import Approve

logger = get_logger("corral.tools")

CODE_ARGUMENT = "code_arg_name"
"""pydantic-ai's key in a tool's metadata, with the name of the argument that is a program."""
_OWN = "corral.integrations.pydantic_ai.own"
"""Key of a run's `OwnTools` in the `local` of a program's context."""


@dataclass
class Chosen:
    """Selection of an agent's tools for its programs, and the registries made from them."""

    corral: Corral
    selector: ToolSelector[Any]
    outside: Collection[str]
    approve: Approve | None
    """Function that decides on calls that need approval, instead of the Corral's."""
    lasts: Callable[[RunContext[Any]], bool]
    """True if a run's programs are durable, so that they can pause for an approval."""
    made: dict[str, tuple[ToolDefinition, Tool | None]] = field(default_factory=dict)
    """Definition and tool by name. The tool is None if the definition cannot be a tool for programs."""

    async def takes(self, ctx: RunContext[Any], definition: ToolDefinition) -> bool:
        """True if a tool is for programs instead of the model.

        A tool stays with the model if it controls the agent, runs elsewhere, replaces a tool of the model's provider,
        is loaded on demand, or takes a program as its argument.
        """
        if definition.kind == "unapproved":
            answers = self.approve is not None or self.corral.approve is not None or answers_approvals(ctx)
            if not answers and not self.lasts(ctx):
                return False  # because no one could decide while a program waits
        elif definition.kind != "function":
            return False
        if definition.tool_kind is not None or definition.unless_native or definition.defer_loading:
            return False
        if CODE_ARGUMENT in (definition.metadata or {}) or definition.name in self.outside:
            return False
        return await matches_tool_selector(self.selector, ctx, definition)

    def tool(self, definition: ToolDefinition) -> Tool | None:
        """Returns the same tool for the same definition, so that results derived from it can be cached."""
        known = self.made.get(definition.name)
        if known is not None and known[0] == definition:
            return known[1]
        try:
            made = tool_of(_own_of, definition, None, _call)
        except ToolDefinitionError as error:
            logger.warning("a tool of the agent stays with the model: %s", error)
            made = None
        self.made[definition.name] = definition, made
        return made


@dataclass
class OwnTools(WrapperToolset[Any]):
    """Toolset of a run. Programs call some of its tools."""

    chosen: Chosen
    registry: ToolRegistry
    """Registry for programs of the run: these tools and the Corral's."""
    inside: dict[str, ToolsetTool[Any]] = field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Arguments that an approval changed, by id of the call."""
    _registered: dict[str, Tool] = field(default_factory=dict)

    async def outside(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Returns the tools that stay with the model in this step. From now on, programs can call the others."""
        inside: dict[str, ToolsetTool[Any]] = {}
        outside: dict[str, ToolsetTool[Any]] = {}
        added: dict[str, Tool] = {}
        for name, each in (await self.wrapped.get_tools(ctx)).items():
            tool = self.chosen.tool(each.tool_def) if await self.chosen.takes(ctx, each.tool_def) else None
            if tool is not None and self._register(name, tool):
                inside[name], added[name] = each, tool
            else:
                outside[name] = each
        self._forget(added)
        self.inside = inside
        self.registry.outside = frozenset(outside)
        return outside

    def _register(self, name: str, tool: Tool) -> bool:
        before = self._registered.get(name)
        if before is tool:
            return True
        try:
            self.registry.exchange(() if before is None else (before,), (tool,))
        except ToolDefinitionError as error:
            logger.warning("a tool of the agent stays with the model: %s", error)
            return False
        self._registered[name] = tool
        return True

    def _forget(self, kept: Mapping[str, Tool]) -> None:
        gone = [name for name in self._registered if name not in kept]
        if gone:
            self.registry.exchange([self._registered.pop(name) for name in gone], ())

    def carried_by(self, context: ExecutionContext) -> ExecutionContext:
        """Returns a copy of the context that routes a program's calls back to this toolset."""
        return carrying(context, _OWN, self)

    @override
    async def get_tool_for_tool_def(self, tool_def: ToolDefinition, ctx: RunContext[Any]) -> ToolsetTool[Any]:
        return self.inside[tool_def.name]

    async def called(self, definition: ToolDefinition, input: dict[str, Any], call: ToolCall) -> object:
        """Calls a tool as the agent does for its model: with hooks, spans, usage and deferred calls."""
        run = run_context(call.context)
        part = ToolCallPart(definition.name, input, tool_call_id=call_id(run, call.sequence))
        part.args = self.overrides.pop(part.tool_call_id, input)
        manager = ToolManager[Any](
            toolset=self.wrapped,
            root_capability=run.root_capability,
            ctx=run,
            tools={definition.name: self.inside[definition.name]},
        )
        try:
            with speaking(definition):
                result = await manager.handle_call(
                    part, approved=definition.kind == "unapproved", wrap_validation_errors=False
                )
        except ValidationError as error:
            raise invalid(definition.name, error) from error
        except ToolRetryError as error:
            raise ToolError(str(error.tool_retry.content)) from error
        if isinstance(result, ToolDenied):
            raise ApprovalDenied(result.message)
        return data_of(result, definition)


def call_id(run: RunContext[Any], sequence: int) -> str:
    """Returns the id that a program's call has in the run."""
    return f"{run.tool_call_id}__{sequence}"


def _capabilities(run: RunContext[Any]) -> list[AbstractCapability[Any]]:
    capabilities: list[AbstractCapability[Any]] = []
    if run.root_capability is not None:
        run.root_capability.apply(capabilities.append)
    return capabilities


def is_traced(run: RunContext[Any]) -> bool:
    """True if the agent itself makes spans for tool calls."""
    return any(isinstance(each, Instrumentation) for each in _capabilities(run))


def answers_approvals(run: RunContext[Any]) -> bool:
    """True if the agent has a capability that answers deferred tool calls, such as `HandleDeferredToolCalls`."""
    return any(map(_answers, _capabilities(run)))


def _answers(capability: AbstractCapability[Any]) -> bool:
    if isinstance(capability, RequestInput):  # answers questions
        return False
    if isinstance(capability, Hooks):  # this class overrides all methods, even without functions for them
        return bool(getattr(capability, "_r", {}).get("handle_deferred_tool_calls"))
    own = type(capability).handle_deferred_tool_calls
    return own is not AbstractCapability.handle_deferred_tool_calls


def approval_of(run: RunContext[Any], own: OwnTools | None, *, lasting: bool = False) -> Approve:
    """Makes a function that asks the agent's capabilities about calls that need approval. With `lasting`, a program
    pauses if they do not answer."""

    async def approve(request: ApprovalRequest) -> Approved | Denied | Later:
        part = ToolCallPart(request.tool, request.arguments, tool_call_id=call_id(run, request.sequence))
        manager = run.tool_manager
        results = None
        if manager is not None:
            metadata = {part.tool_call_id: shown} if (shown := provenance(request)) else {}
            results = await manager.resolve_deferred_tool_calls(
                DeferredToolRequests(approvals=[part], metadata=metadata)
            )
        answer = None if results is None else results.approvals.get(part.tool_call_id)
        if isinstance(answer, ToolDenied):
            return Denied(answer.message)
        if answer is None and lasting:
            return Later()
        if answer is None or answer is False:
            return Denied("" if answer is False else "no capability of the agent answered")
        if isinstance(answer, ToolApproved) and answer.override_args is not None:
            if own is None or request.tool not in own.inside:
                return Denied("the arguments of a Corral's tool cannot be changed by an approval")
            own.overrides[part.tool_call_id] = answer.override_args
        return Approved()

    return approve


def _own_of(context: ExecutionContext) -> OwnTools:
    own: OwnTools = context.local[_OWN]
    return own


async def _call(
    toolset: AbstractToolset[Any], definition: ToolDefinition, input: dict[str, Any], call: ToolCall
) -> object:
    assert isinstance(toolset, OwnTools)
    return await toolset.called(definition, input, call)


# --- code mode ----------------------------------------------------------------------------------------------

_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""Accepts any arguments, because Corral validates them itself, with its own messages for programs."""


@dataclass(kw_only=True)
class ProgramCallEvent(CapabilityEvent, namespace="corral", name="call"):
    """A program calls a tool. Events of one program share their `tool_call_id`."""

    tool: str
    sequence: int
    """Number of the call within its program, from 1."""
    input: Any = None


@dataclass(kw_only=True)
class ProgramProgressEvent(CapabilityEvent, namespace="corral", name="progress"):
    """A tool reported the progress of a program's call."""

    tool: str
    sequence: int
    done: float
    total: float | None = None
    message: str | None = None


@dataclass(kw_only=True)
class ProgramResultEvent(CapabilityEvent, namespace="corral", name="result"):
    """A program's call was answered."""

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
    that `tools` selects, except those in `outside`. All others stay with the model. With a Corral and no `tools`, all
    of the agent's tools stay with the model.

    `context` is the caller of programs; default: `deps`, if they are an `ExecutionContext`. Tools get the `RunContext`
    by `run_context(context)`. `retries` is the maximum number of consecutive programs that are refused before they run.
    The agent and its runs open the Corral if it is not open, and then close it afterwards.

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
        self.chosen = None
        if selected is not None:
            self.chosen = Chosen(self.corral, selected, self.outside, self.approve, self._lasts)
        self.retries = retries
        self._toolset = _CodeToolset(self)

    @override
    def get_toolset(self) -> AbstractToolset[Any]:
        """Returns the model's tools."""
        return self._toolset

    @override
    async def before_node_run(self, ctx: RunContext[Any], *, node: AgentNode[Any]) -> AgentNode[Any]:
        """Makes a paused program, instead of the model, see that its calls were denied."""
        if not isinstance(node, CallToolsNode) or not node.tool_call_results:
            return node
        denials: dict[str, ToolDenied] = {}
        for call in node.model_response.tool_calls:
            result = node.tool_call_results.get(call.tool_call_id)
            if isinstance(result, ToolDenied) and await self._has_paused(ctx, call):
                denials[call.tool_call_id] = result
        if not denials:
            return node
        known = node.tool_call_metadata or {}
        metadata = {key: {**known.get(key, {}), _DENIED: each.message} for key, each in denials.items()}
        return replace(
            node,
            tool_call_results={**node.tool_call_results, **dict.fromkeys(denials, ToolApproved())},
            tool_call_metadata={**known, **metadata},
        )

    def _lasts(self, ctx: RunContext[Any]) -> bool:
        return self.corral.can_be_durable(self.language, self.context_of(ctx))

    async def _has_paused(self, ctx: RunContext[Any], call: ToolCallPart) -> bool:
        label = call.tool_name.removeprefix("execute_code").removeprefix("_")
        corral = self.named.get(label) if call.tool_name.startswith("execute_code") else None
        if corral is None:
            return False
        identity = ctx.conversation_id, call.tool_call_id, call.args_as_dict()
        execution_id = execution_of(corral, self.language, self.context_of(ctx), *identity)
        return execution_id is not None and await corral.executions.find(execution_id) is not None

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
        """Returns None, because a Corral cannot be serialized."""
        return None

    def context_of(self, run: RunContext[Any]) -> ExecutionContext:
        """Returns the caller for programs of this run, with the run itself in its `local`."""
        default = ExecutionContext(session_id=run.conversation_id) if run.conversation_id else None
        return carrying(context_for(self.context, run, run.deps, default), RUN_CONTEXT, run)


_DENIED = "denied"
"""Key in a call's metadata for the message of a denial."""
_HISTORY_CHARS = 10_000
"""Maximum JSON characters of an input or output in the message history, which hosts store and send."""


class _CodeToolset(AbstractToolset[Any]):
    """Tools of a capability. Each run has its own, whose prompt stays the same during the run."""

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
        """False if another toolset, which knows the agent's own tools, has the instructions. This one then only keeps
        the Corral open."""
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
        context = in_conversation(
            self._mode.context_of(ctx), name, self._mode.asked, ctx, lambda: _entries(ctx.messages)
        )
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
        parts = parts_of(result, _content)
        value = f"{parts}{changes}" if isinstance(parts, str) else [f"{parts[0]}{changes}", *parts[1:]]
        return ToolReturn(value, metadata=_history(result, ctx)) if name in own.corrals else value

    @property
    def has_kit(self) -> bool:
        return self._kit is not None

    def kit_for(self, ctx: RunContext[Any]) -> Kit:
        """Returns the kit. It is made in the first step of a run, when the Corrals are open and know all their
        tools."""
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
        """Makes a model's tool of this capability. Without the capability's id it could not emit events."""
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
        """Runs a program. Its calls count in the run's usage, and appear in the run's stream of events.

        Raises:
            ModelRetry: the arguments are invalid.
            UsageLimitExceeded: the run has used up its calls.
        """
        try:
            source: str = tool.read(arguments)["code"]
        except ToolError as error:
            raise ModelRetry(str(error)) from error
        limits = _limits(corral, ctx)
        execution_id = self._execution_of(corral, context, arguments, ctx)
        approve = self._mode.approve
        if approve is None and corral.approve is None and answers_approvals(ctx):
            approve = approval_of(ctx, self._own, lasting=execution_id is not None)
        send, receive = anyio.create_memory_object_stream[CapabilityEvent](math.inf)  # bounded by the program's limits
        result: ExecutionResult | Pause | None = None
        failure: Exception | None = None

        def listen(event: Event) -> None:
            if isinstance(event, ToolCallFinished) and event.call.error is None and not self._counts(event.call.name):
                ctx.usage.incr(RunUsage(tool_calls=1))
            if (shown := _shown(event)) is not None:
                send.send_nowait(shown)
            if self._mode.listener is not None:
                self._mode.listener(event)

        async def execute(is_new: bool) -> ExecutionResult:
            return await corral.execute(
                source,
                language=self._mode.language,
                context=context,
                limits=limits if is_new else None,
                tools=None if self._own is None else self._own.registry,
                on_event=listen,
                approve=approve,
                tool_call_id=ctx.tool_call_id,
                durable=execution_id is not None,
                execution_id=execution_id,
            )

        async with receive, anyio.create_task_group() as tasks:
            tasks.start_soon(_emit, receive, ctx)
            with send:
                traced = traced_elsewhere.set(self._own.inside if self._own is not None and is_traced(ctx) else ())
                try:
                    async with open_shell(self._mode.shell):
                        if execution_id is None:
                            result = await execute(is_new=True)
                        else:
                            result = await run_durably(
                                corral, execution_id, context, execute, partial(_answer, ctx, _metadata(ctx))
                            )
                except Exception as error:  # raised below, because a task group would wrap it
                    failure = error
                finally:
                    traced_elsewhere.reset(traced)
        if failure is not None:
            raise failure
        assert result is not None
        if isinstance(result, Pause):
            raise ApprovalRequired(result.to_dict())
        return result

    def _execution_of(
        self, corral: Corral, context: ExecutionContext, arguments: Mapping[str, Any], ctx: RunContext[Any]
    ) -> str | None:
        """Returns the id of the call's durable execution; None if it is not durable."""
        call = ctx.conversation_id, ctx.tool_call_id, arguments
        execution_id = execution_of(corral, self._mode.language, context, *call)
        named = _metadata(ctx).get("execution_id", execution_id)
        if named != execution_id:
            raise AccessDenied(f"the approval is for {named!r}, which is another program")
        return execution_id

    def _counts(self, name: str) -> bool:
        """True if pydantic-ai itself counts the calls of this tool."""
        return self._own is not None and name in self._own.inside


@dataclass
class _WithCode(WrapperToolset[Any]):
    """An agent's own tools if programs call some of them: the remaining ones, and the tool that runs programs."""

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


def _content(part: str | Picture) -> str | BinaryContent:
    return part if isinstance(part, str) else BinaryContent(part.data, media_type=part.media_type)


def _require_apart(mode: CodeMode, ctx: RunContext[Any]) -> None:
    """Raises ConfigError if tools of an earlier `CodeMode` have the same names."""
    for other in takewhile(lambda each: each is not mode, _capabilities(ctx)):
        if isinstance(other, CodeMode) and other.named.keys() & mode.named.keys():
            raise ConfigError("two CodeMode in one agent: name the Corrals in one, CodeMode({'a': a, 'b': b})")


def _entries(messages: Sequence[ModelMessage]) -> Iterator[Entry]:
    """Yields the texts of persons, and the tools whose results the model has read. Texts in a request with results are
    left out, because pydantic-ai puts there what tools return as the user's part. Texts that a host has tagged as
    `TextContent`, such as documents, are left out too.
    """
    for message in messages:
        results = [part.tool_name for part in message.parts if isinstance(part, ToolReturnPart | NativeToolReturnPart)]
        yield from map(result_of, results)
        for part in () if results else message.parts:
            if isinstance(part, UserPromptPart):
                texts = [part.content] if isinstance(part.content, str) else part.content
                yield from (person(text) for text in texts if isinstance(text, str))


def _limits(corral: Corral, ctx: RunContext[Any]) -> Limits:
    """Returns the Corral's limits, with at most the run's remaining calls, of which the program itself takes one.

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
        if ctx.tool_manager is not None:  # a context that was made by hand has no stream
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


def _metadata(ctx: RunContext[Any]) -> Mapping[str, Any]:
    """Returns the metadata of the call's approval; empty if the call was not approved."""
    return ctx.tool_call_metadata or {} if ctx.tool_call_approved else {}


def _answer(ctx: RunContext[Any], metadata: Mapping[str, Any], pause: Pause) -> Decide | None:
    """Returns the run's answer to a pause. An answer without its request's metadata is for the first pause."""
    if not ctx.tool_call_approved or metadata.get("pause", 1) != pause.number:
        return None
    if _DENIED in metadata:
        return lambda _: Denied(metadata[_DENIED])
    by_call: Mapping[Any, Any] = metadata.get("decisions", {})
    return lambda call: read_decision(by_call.get(str(call.sequence), True))


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

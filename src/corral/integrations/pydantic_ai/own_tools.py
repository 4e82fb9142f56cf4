"""An agent's own tools as tools for programs: selects them, and routes their calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_ai import DeferredToolRequests, RunContext, ToolApproved, ToolDenied
from pydantic_ai.capabilities import AbstractCapability, Hooks, Instrumentation, RequestInput
from pydantic_ai.exceptions import ToolRetryError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDefinition, ToolSelector, matches_tool_selector
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from typing_extensions import override

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionContext, Tool, ToolCall, ToolError
from corral.errors import ApprovalDenied, ToolDefinitionError
from corral.integrations.kit import carrying
from corral.integrations.pydantic_ai.tools import data_of, invalid, run_context, speaking, tool_of
from corral.logs import get_logger
from corral.tools import ToolRegistry
from corral.types import Approve

logger = get_logger("corral.tools")

CODE_ARGUMENT = "code_arg_name"
"""pydantic-ai's key in a tool's metadata for the name of the argument that is a program."""
_OWN = "corral.integrations.pydantic_ai.own"
"""Key of a run's `OwnTools` in the `local` of a program's context."""


@dataclass
class Chosen:
    """The choice of an agent's tools for its programs, and the registries made of them."""

    corral: Corral
    selector: ToolSelector[Any]
    outside: Collection[str]
    approve: Approve | None
    """Decides about calls that need approval, instead of the Corral's function."""
    made: dict[str, tuple[ToolDefinition, Tool | None]] = field(default_factory=dict)
    """By name, each definition and its tool; None if it cannot be a tool."""

    async def takes(self, ctx: RunContext[Any], definition: ToolDefinition) -> bool:
        """True if a tool is for programs rather than for the model.

        A tool stays with the model if it controls the agent, runs elsewhere, replaces a tool of the model's provider,
        is loaded on demand, or takes a program.
        """
        if definition.kind == "unapproved":
            if self.approve is None and self.corral.approve is None and not answers_approvals(ctx):
                return False  # no one could decide while a program waits
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
    """The toolset of a run; programs call some of its tools."""

    chosen: Chosen
    registry: ToolRegistry
    """The registry for programs of the run: these tools and the Corral's."""
    inside: dict[str, ToolsetTool[Any]] = field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Arguments that an approval changed, by the call's id."""
    _registered: dict[str, Tool] = field(default_factory=dict)

    async def outside(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Returns the tools that stay with the model in this step; programs can call the rest from now on."""
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
        """Returns a copy of the context that routes calls of a program back here."""
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
            raise invalid(definition, error) from error
        except ToolRetryError as error:
            raise ToolError(str(error.tool_retry.content)) from error
        if isinstance(result, ToolDenied):
            raise ApprovalDenied(result.message)
        return data_of(result, definition)


def call_id(run: RunContext[Any], sequence: int) -> str:
    """Returns the id, in the run, of a program's call."""
    return f"{run.tool_call_id}__{sequence}"


def _capabilities(run: RunContext[Any]) -> list[AbstractCapability[Any]]:
    capabilities: list[AbstractCapability[Any]] = []
    if run.root_capability is not None:
        run.root_capability.apply(capabilities.append)
    return capabilities


def is_traced(run: RunContext[Any]) -> bool:
    """True if the agent makes spans for tool calls."""
    return any(isinstance(each, Instrumentation) for each in _capabilities(run))


def answers_approvals(run: RunContext[Any]) -> bool:
    """True if the agent has a capability that answers deferred tool calls, such as `HandleDeferredToolCalls`."""
    return any(map(_answers, _capabilities(run)))


def _answers(capability: AbstractCapability[Any]) -> bool:
    if isinstance(capability, RequestInput):  # answers questions
        return False
    if isinstance(capability, Hooks):  # overrides all methods, even without functions for them
        return bool(getattr(capability, "_r", {}).get("handle_deferred_tool_calls"))
    own = type(capability).handle_deferred_tool_calls
    return own is not AbstractCapability.handle_deferred_tool_calls


def approval_of(run: RunContext[Any], own: OwnTools | None) -> Approve:
    """Makes a function that asks the agent's capabilities about calls that need approval."""

    async def approve(request: ApprovalRequest) -> Approved | Denied:
        part = ToolCallPart(request.tool, request.arguments, tool_call_id=call_id(run, request.sequence))
        manager = run.tool_manager
        results = None
        if manager is not None:
            results = await manager.resolve_deferred_tool_calls(DeferredToolRequests(approvals=[part]))
        answer = None if results is None else results.approvals.get(part.tool_call_id)
        if isinstance(answer, ToolDenied):
            return Denied(answer.message)
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

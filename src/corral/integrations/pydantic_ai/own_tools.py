"""An agent's own tools as tools that programs call: their choice, and the routing of their calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition, ToolSelector, matches_tool_selector
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from typing_extensions import override

from corral import Corral, ExecutionContext, Tool
from corral.errors import ToolDefinitionError
from corral.integrations.kit import carrying
from corral.integrations.pydantic_ai.tools import tool_of
from corral.logs import get_logger
from corral.tools import ToolRegistry

__all__ = ["CODE_ARGUMENT", "Chosen", "OwnTools"]

logger = get_logger("corral.tools")

CODE_ARGUMENT = "code_arg_name"
"""Key in a tool's metadata that names the argument that is a program, as pydantic-ai calls it."""
_OWN = "corral.integrations.pydantic_ai.own"
"""Key of a run's `OwnTools` in the `local` of a program's context."""


@dataclass
class Chosen:
    """The choice of an agent's tools for its programs, and the registries made of them."""

    corral: Corral
    selector: ToolSelector[Any]
    outside: Collection[str]
    with_approvals: bool
    """True if tools that require an approval are included: a person can be asked while a program waits."""
    made: dict[str, tuple[ToolDefinition, Tool | None]] = field(default_factory=dict)
    """The tool for each definition, by its name; None: there can be none."""

    async def takes(self, ctx: RunContext[Any], definition: ToolDefinition) -> bool:
        """True if a tool is for programs, and not for the model to call.

        What steers the agent itself, runs elsewhere, takes the place of a tool of the model's provider, is to be found
        first, or takes a program, stays with the model.
        """
        if definition.kind not in ({"function", "unapproved"} if self.with_approvals else {"function"}):
            return False
        if definition.tool_kind is not None or definition.unless_native or definition.defer_loading:
            return False
        if CODE_ARGUMENT in (definition.metadata or {}) or definition.name in self.outside:
            return False
        return await matches_tool_selector(self.selector, ctx, definition)

    def tool(self, definition: ToolDefinition) -> Tool | None:
        """The same tool for the same definition, so that what is made of tools can be kept."""
        known = self.made.get(definition.name)
        if known is not None and known[0] == definition:
            return known[1]
        try:
            made = tool_of(_toolset_of, definition, None)
        except ToolDefinitionError as error:
            logger.warning("a tool of the agent stays with the model: %s", error)
            made = None
        self.made[definition.name] = definition, made
        return made


@dataclass
class OwnTools(WrapperToolset[Any]):
    """The toolset of a run, of which a part is called by programs."""

    chosen: Chosen
    registry: ToolRegistry
    """The registry for programs of the run: these tools, beside the Corral's."""
    inside: dict[str, ToolsetTool[Any]] = field(default_factory=dict)
    _registered: dict[str, Tool] = field(default_factory=dict)

    async def outside(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools that stay with the model in this step; programs can call the rest from now on."""
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
        """The context, by which calls of a program find their way back here."""
        return carrying(context, _OWN, self)

    @override
    async def get_tool_for_tool_def(self, tool_def: ToolDefinition, ctx: RunContext[Any]) -> ToolsetTool[Any]:
        return self.inside[tool_def.name]


def _toolset_of(context: ExecutionContext) -> AbstractToolset[Any]:
    found: OwnTools = context.local[_OWN]
    return found

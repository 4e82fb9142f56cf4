"""Compares the scopes that a tool requires with those of the caller.

Only the host defines implied scopes: `admin` does not imply `admin:read` by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from corral.errors import AccessDenied, PolicyDenied, ScopeDenied
from corral.rendering.lists import first_few
from corral.results import ProgramCapabilities
from corral.tools import Tool, ToolRegistry
from corral.types import ExecutionError, References, ToolName, ToolReference

_MOST_NAMED = 10
"""Maximum number of tools listed in an early denial."""


class ImpliedScopes:
    """Map of scopes to the scopes that they imply, directly or indirectly.

    Raises:
        ConfigError: a value is one string instead of a collection.
    """

    def __init__(self, implied: Mapping[str, Iterable[str]]) -> None:
        self._implied = {scope: frozenset(implied_scopes) for scope, implied_scopes in implied.items()}

    def held_with(self, scopes: frozenset[str]) -> frozenset[str]:
        """Returns these scopes and all scopes they imply."""
        held: set[str] = set()
        coming = set(scopes)
        while coming:
            held |= coming
            coming = {implied for scope in coming for implied in self._implied.get(scope, ())} - held
        return frozenset(held)


def require_scopes(tool: Tool, name: str, held: frozenset[str]) -> None:
    """Raises ScopeDenied, which names the missing scopes, unless `held` has every scope that the tool requires."""
    if missing := _missing(tool, held):
        raise ScopeDenied(f"tools.{name} needs {missing}")


def _missing(tool: Tool, held: frozenset[str]) -> str | None:
    """Describes the scopes missing for a tool; None if the caller has them all."""
    if missing := tool.scopes - held:
        return f"the scope{'s' if len(missing) > 1 else ''} {', '.join(sorted(missing))}"
    if tool.any_scope and not tool.any_scope & held:
        return f"one of the scopes {', '.join(sorted(tool.any_scope))}"
    return None


def capabilities_of(references: References, tools: ToolRegistry) -> ProgramCapabilities:
    """Returns the tools and scopes that a program with these references can use. Ignores unknown names."""
    known = tools.snapshot()
    used: dict[str, Tool] = {}
    for reference in references.named:
        tool_name = next((name for name in _paths(reference) if name in known), None)
        if tool_name is not None:
            used[str(tool_name)] = known[tool_name]
        else:  # a whole namespace
            used |= {str(each): tool for each, tool in known.items() if each.namespace == reference.path}
    scopes = {scope for tool in used.values() for scope in tool.scopes | tool.any_scope}
    return ProgramCapabilities(tools=tuple(used), scopes=tuple(sorted(scopes)), any_tool=references.computed)


def early_denial(references: References, tools: ToolRegistry, held: frozenset[str]) -> ExecutionError | None:
    """Returns the denial of a program that names tools whose scopes the caller lacks; None if it names none.

    Tools with computed names are denied when called.
    """
    return _denial(references, tools.snapshot().get, held)


def hidden_denial(references: References, tools: ToolRegistry, held: frozenset[str]) -> ExecutionError | None:
    """Returns the denial of a program that names hidden tools. For the audit log only: the caller must not see it."""
    return _denial(references, lambda name: tools.hidden(str(name)), held) if tools.hides() else None


def denied_unseen(name: str, tools: ToolRegistry, held: frozenset[str]) -> AccessDenied | None:
    """Returns the denial of a call of a hidden tool. For the audit log only: the caller must not see it."""
    tool = tools.hidden(name)
    if tool is None:
        return None
    if missing := _missing(tool, held):
        return ScopeDenied(f"tools.{name} needs {missing}")
    return PolicyDenied(f"tools.{name}: the policy denies all calls of it")


def _denial(
    references: References, find: Callable[[ToolName], Tool | None], held: frozenset[str]
) -> ExecutionError | None:
    missing: dict[ToolName, str] = {}
    first: ToolReference | None = None
    for reference in references.named:
        for name in _paths(reference):
            tool = find(name)
            if tool is not None and name not in missing and (lacks := _missing(tool, held)):
                first = first or reference
                missing[name] = f"tools.{name} needs {lacks}"
            if tool is not None:
                break
    if first is None:
        return None
    return ExecutionError(
        code=ScopeDenied.code,
        name=ScopeDenied.__name__,
        message="; ".join(first_few(list(missing.values()), _MOST_NAMED)),
        line=first.line,
        column=first.column,
    )


def _paths(reference: ToolReference) -> Iterable[ToolName]:
    """Yields the tools that a path can refer to: `a.b` is tool `b` in namespace `a`, or a member of tool `a`."""
    name = ToolName.parse(reference.path)
    return (name,) if name.namespace is None else (name, ToolName(None, name.namespace))

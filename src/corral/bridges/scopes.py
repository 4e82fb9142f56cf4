"""Scopes: which ones a tool asks for, and whether a caller has them.

Nothing is implied that the host did not say: `admin` does not give `admin:read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from corral.errors import ScopeDenied
from corral.rendering.lists import first_few
from corral.results import ProgramCapabilities
from corral.tools import Tool, ToolRegistry
from corral.types import ExecutionError, Reference, References, ToolName

__all__ = ["ImpliedScopes", "capabilities_of", "denied_unseen", "early_denial", "hidden_denial", "require_scopes"]

_MOST_NAMED = 10
"""Tools that an early denial explains."""


class ImpliedScopes:
    """Which scopes a scope gives besides itself, and those what they give in turn.

    Raises:
        ConfigError: a value is one string instead of a collection.
    """

    def __init__(self, implied: Mapping[str, Iterable[str]]) -> None:
        self._implied = {scope: frozenset(given) for scope, given in implied.items()}

    def held_with(self, scopes: frozenset[str]) -> frozenset[str]:
        """All that a caller with these scopes holds."""
        held: set[str] = set()
        coming = set(scopes)
        while coming:
            held |= coming
            coming = {given for scope in coming for given in self._implied.get(scope, ())} - held
        return frozenset(held)


def require_scopes(tool: Tool, name: str, held: frozenset[str]) -> None:
    """Raises ScopeDenied, naming what is missing, unless `held` is enough."""
    if missing := _missing(tool, held):
        raise ScopeDenied(f"tools.{name} needs {missing}")


def _missing(tool: Tool, held: frozenset[str]) -> str | None:
    """What of a tool's scopes is missing, in words; None if nothing is."""
    if missing := tool.scopes - held:
        return f"the scope{'s' if len(missing) > 1 else ''} {', '.join(sorted(missing))}"
    if tool.any_scope and not tool.any_scope & held:
        return f"one of the scopes {', '.join(sorted(tool.any_scope))}"
    return None


def capabilities_of(references: References, tools: ToolRegistry) -> ProgramCapabilities:
    """What a program with these references could do with these tools. Names of no tool are left out."""
    known = tools.snapshot()
    used: dict[str, Tool] = {}
    for reference in references.named:
        named = next((name for name in _paths(reference) if name in known), None)
        if named is not None:
            used[str(named)] = known[named]
        else:  # a namespace as a whole
            used |= {str(each): tool for each, tool in known.items() if each.namespace == reference.path}
    scopes = {scope for tool in used.values() for scope in tool.scopes | tool.any_scope}
    return ProgramCapabilities(tools=tuple(used), scopes=tuple(sorted(scopes)), any_tool=references.computed)


def early_denial(references: References, tools: ToolRegistry, held: frozenset[str]) -> ExecutionError | None:
    """Why a program must not start: it names tools whose scopes the caller lacks. None if it does not.

    What it picks by computed names is denied when it is called.
    """
    return _denial(references, tools.snapshot().get, held)


def hidden_denial(references: References, tools: ToolRegistry, held: frozenset[str]) -> ExecutionError | None:
    """The denial of a program that names tools which are hidden from its caller, for the host's records alone."""
    return _denial(references, lambda name: tools.hidden(str(name)), held) if tools.hides() else None


def denied_unseen(name: str, tools: ToolRegistry, held: frozenset[str]) -> ScopeDenied | None:
    """The denial of a call of a tool that is hidden from its caller, for the host's records alone."""
    tool = tools.hidden(name)
    missing = None if tool is None else _missing(tool, held)
    return None if missing is None else ScopeDenied(f"tools.{name} needs {missing}")


def _denial(
    references: References, find: Callable[[ToolName], Tool | None], held: frozenset[str]
) -> ExecutionError | None:
    missing: dict[ToolName, str] = {}
    first: Reference | None = None
    for reference in references.named:
        for named in _paths(reference):
            tool = find(named)
            if tool is not None and named not in missing and (lacks := _missing(tool, held)):
                first = first or reference
                missing[named] = f"tools.{named} needs {lacks}"
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


def _paths(reference: Reference) -> Iterable[ToolName]:
    """The tools that a path may lead to, or through, as `add.bind` does through `add`."""
    name = ToolName.parse(reference.path)
    return (name,) if name.namespace is None else (name, ToolName(None, name.namespace))

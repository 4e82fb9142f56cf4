"""Finds loops over results of calls, in either language."""

from __future__ import annotations

from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax import python, typescript
from corral.programs.syntax.parsing import TooLongToParse, part, text_of, without_wrappers
from corral.texts import located
from corral.types import Program

_MAX_CHARS = 8_000
_MAX_NODES = 20_000
_LOOPS = frozenset({"for_statement", "for_in_statement", "for_in_clause"})
_AROUND = frozenset({"parenthesized_expression", "as_expression", "non_null_expression", "await", "await_expression"})
_BINDINGS = {"assignment": ("left", "right"), "variable_declarator": ("name", "value")}
_PARSERS = {"typescript": typescript.parse, "python": python.parse}
_MAX_SHOWN = 60


class _Loop(NamedTuple):
    """Loop over the result of a call, or over a name that is bound only to that result."""

    path: str
    shown: str
    line: int


def loops_over_calls(program: Program) -> list[_Loop]:
    """Returns the loops that iterate directly over a call by a tool's full name."""
    typed = program.typed
    if typed is None or len(typed.text) > _MAX_CHARS:
        return []
    try:
        root = _PARSERS[program.language](typed.parsed).root_node
    except TooLongToParse:
        return []
    loops: list[Node] = []
    bound: dict[str, list[Node | None]] = {}
    waiting, left = [root], _MAX_NODES
    while waiting and left > 0:
        node = waiting.pop()
        left -= 1
        waiting += node.named_children
        if node.type in _LOOPS and _goes_through_values(node):
            loops.append(node)
        if node.type in _BINDINGS:
            name, value = (part(node, field) for field in _BINDINGS[node.type])
            bound.setdefault(text_of(name), []).append(value)
        elif node.type in ("assignment_expression", "augmented_assignment", "augmented_assignment_expression"):
            bound.setdefault(text_of(part(node, "left")), []).append(None)
    matches: list[_Loop] = []
    for loop in loops:
        iterable = part(loop, "right")
        if iterable is None:
            continue
        inner = without_wrappers(iterable, _AROUND)
        values = bound.get(text_of(inner), []) if inner.type == "identifier" else [inner]
        call = without_wrappers(values[0], _AROUND) if len(values) == 1 and values[0] is not None else None
        function = part(call, "function")
        owner, _, path = text_of(function).partition(".")
        if owner in ("tools", "codemode") and path:
            index = typed.text[: loop.start_byte].count(b"\n") + 1
            shown = text_of(inner)
            line = located(typed.positions, index, 1).line
            matches.append(_Loop(path, shown if len(shown) <= _MAX_SHOWN else f"{owner}.{path}(...)", line))
    return matches


def _goes_through_values(loop: Node) -> bool:
    signs = {each.type for each in loop.children if not each.is_named}
    return signs.isdisjoint({"await", "async"}) and (loop.type != "for_in_statement" or "of" in signs)

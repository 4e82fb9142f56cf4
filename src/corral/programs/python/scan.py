"""One walk over a program's tree: how deep it is, what it imports, where it returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from corral.programs.python.positions import Places
from corral.programs.syntax.python import FUNCTIONS, kind_id

_MAX_DEPTH = 700
"""Levels of a syntax tree. CPython's compiler takes at least 1,000 levels of any construct."""

_CLOSED = frozenset(map(kind_id, FUNCTIONS))
_RETURN, _YIELD, _AWAIT = kind_id("return_statement"), kind_id("yield"), kind_id("await")
_IMPORT, _IMPORT_FROM = kind_id("import_statement"), kind_id("import_from_statement")
_STRING, _COMMENT = kind_id("string"), kind_id("comment")


@dataclass(slots=True)
class Survey:
    """Findings of the walk."""

    imports: list[Node] = field(default_factory=list[Node])
    returns: list[Node] = field(default_factory=list[Node])
    """Every `return` outside of all functions."""
    yields: bool = False
    """True if a `yield` is outside of all functions."""
    strings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Spans of the outermost strings and comments."""


def survey(root: Node, places: Places) -> Survey:
    """Looks at every node once. Raises ProgramRejected over the depth that engines take."""
    found = Survey()
    cursor = root.walk()
    depth = 0
    closed: list[int] = []
    while (node := cursor.node) is not None:
        kind = node.kind_id
        if kind in (_STRING, _COMMENT):
            found.strings.append((node.start_byte, node.end_byte))
        elif kind in (_IMPORT, _IMPORT_FROM):
            found.imports.append(node)
        elif not closed and kind == _RETURN and node.is_named:
            found.returns.append(node)
        elif not closed and kind == _YIELD and node.is_named:
            found.yields = True
        if cursor.goto_first_child():
            depth += 1
            if kind in _CLOSED:
                closed.append(depth)
            if depth > _MAX_DEPTH:
                raise places.rejected("The program is nested too deeply at {place}.", node.start_byte)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found
            if closed and closed[-1] == depth:
                closed.pop()
            depth -= 1
    return found

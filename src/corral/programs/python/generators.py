"""Turns generator expressions with `await`, which are async generators, into lists where an iterable is needed."""

from __future__ import annotations

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.python.awaits import may_await, unwrap
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.syntax.parsing import is_a, part, text_of
from corral.programs.syntax.python import finder, is_async

_GENERATORS = finder("(generator_expression) @generator")
ITERATING = frozenset(
    {
        *("sum", "min", "max", "sorted", "list", "tuple", "set", "frozenset", "dict", "enumerate", "zip"),
        *("Counter", "deque", "mean", "median", "statistics.mean", "statistics.median", "math.prod", "math.fsum"),
    }
)
"""Functions that consume a whole iterable. `any` and `all` do not: they must not evaluate the rest."""
_METHODS = frozenset({"join", "extend", "update"})
_OWN_SCOPES = frozenset({"lambda", "generator_expression"})


def list_generators(root: Node, names: Names, edits: Edits) -> None:
    """Turns iterated async generators into lists, and loops over them into `async for`."""
    if b"await" not in edits.text and b"async" not in edits.text:
        return
    for generator in _GENERATORS(root).get("generator", ()):
        if not (may_await(generator) and awaits(generator)):
            continue
        value, owner = unwrap(generator)
        if owner is None:
            continue
        start, end = generator.start_byte, generator.end_byte
        if owner.type == "call" and part(owner, "arguments") == value:
            if _goes_through(owner, names):
                edits.insert(start + 1, b"[")
                edits.wrap(start + 1, end - 1, b"", b"]")
        elif owner.type == "for_statement" and part(owner, "right") == value and not is_async(owner):
            edits.insert(owner.start_byte, b"async ")
        elif _takes_list(value, owner, names):
            edits.replace(start, start + 1, b"[")
            edits.replace(end - 1, end, b"]")


def awaits(generator: Node) -> bool:
    """True if a generator expression is async: it awaits more than the iterable of its first loop."""
    clauses = [each for each in generator.named_children if each.type == "for_in_clause"]
    waiting = [generator]
    while waiting:
        node = waiting.pop()
        if node.type == "await" or (node.type == "for_in_clause" and is_async(node)):
            return True
        outside = part(node, "right") if node == clauses[0] else None
        waiting += [each for each in node.named_children if each.type not in _OWN_SCOPES and each != outside]
    return False


def _takes_list(value: Node, owner: Node, names: Names) -> bool:
    """True if the parent iterates over the expression."""
    if owner.type == "list_splat":
        return True
    if owner.type == "for_in_clause":
        return part(owner, "right") == value and not is_async(owner)
    return is_a(owner, "argument_list") and owner.parent is not None and _goes_through(owner.parent, names)


def _goes_through(call: Node, names: Names) -> bool:
    path = dotted_path(part(call, "function"))
    if path in ITERATING:
        try:
            return "." in path or not any(name.binds and not _is_import(name.node) for name in names.of(path))
        except TooMuch:
            return False
    return text_of(part(call, "function", "attribute")) in _METHODS


def _is_import(node: Node) -> bool:
    return node.parent is not None and is_a(node.parent.parent, "import_from_statement")

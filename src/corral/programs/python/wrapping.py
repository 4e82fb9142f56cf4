"""A program that returns early becomes a function, from the first statement with a `return` to the end.

The names that it binds there stay variables of the module, so that its functions and `globals()` find them.
"""

from __future__ import annotations

from bisect import bisect_left

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.python.completion_value import RESULT
from corral.programs.python.imports import replace_line
from corral.programs.syntax.parsing import text_of
from corral.programs.syntax.python import blocks_of, statements

_FUNCTION = "_corral_program"
_INDENT = b" " * 8
"""The width of a tab, so that lines with tabs and lines with spaces keep their distance."""
_TARGETS = frozenset(
    {"pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern", "expression_list", "tuple", "list"}
)


def wrap_in_function(
    root: Node, returns: list[Node], strings: list[tuple[int, int]], edits: Edits, ending: list[str]
) -> list[str]:
    """Adds the edits that make a function of what returns. Gives what runs after it, in the place of `ending`."""
    text = edits.text
    found = statements(root)
    first = max(bisect_left(found, returns[0].start_byte + 1, key=lambda each: each.start_byte) - 1, 0)
    while first and found[first - 1].end_point.row == found[first].start_point.row:
        first -= 1
    body = found[first:]
    start = text.rfind(b"\n", 0, body[0].start_byte) + 1
    names = ", ".join(dict.fromkeys((RESULT, *_bound_names(body, edits))))
    head = f"async def {_FUNCTION}():\n" + _INDENT.decode() + f"global {names}\n"
    inside = _lines_in_strings(text, strings)
    at = start
    while at < len(text):
        line_end = text.find(b"\n", at)
        line_end = len(text) if line_end < 0 else line_end
        if at not in inside and text[at:line_end].strip():
            begins = text.rfind(b"\f", at, line_end) + 1 if b"\f" in text[at:line_end] else at
            leading = text[at:begins].strip() == b""
            edits.insert(begins if leading else at, (head.encode() if at == start else b"") + _INDENT)
        at = line_end + 1
    indented = [_INDENT.decode() + line for line in (*ending, f"return {RESULT}")]
    return [*indented, f"{RESULT} = await {_FUNCTION}()"]


def _lines_in_strings(text: bytes, strings: list[tuple[int, int]]) -> set[int]:
    """The offsets of lines that begin inside a string."""
    found: set[int] = set()
    for start, end in strings:
        at = text.find(b"\n", start, end)
        while at >= 0:
            found.add(at + 1)
            at = text.find(b"\n", at + 1, end)
    return found


def _bound_names(body: list[Node], edits: Edits) -> list[str]:
    """The variables that statements bind outside of functions. What annotates them is taken away: a global has none."""
    names: list[str] = []
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        if statement.type == "decorated_definition":
            statement = statement.child_by_field_name("definition") or statement
        if statement.type in ("function_definition", "class_definition"):
            names.append(text_of(statement.child_by_field_name("name")))
            continue
        blocks = list(blocks_of(statement))
        for block in reversed(blocks):
            pending += reversed(statements(block))
        if statement.type == "expression_statement" and statement.named_children[0].type == "assignment":
            _without_annotation(statement.named_children[0], edits)
        names += _names_in(statement)
    return names


def _names_in(statement: Node) -> list[str]:
    """The names that a statement binds, but for its blocks and what has a scope of its own."""
    names: list[str] = []
    pending: list[tuple[Node, bool]] = [(statement, False)]
    while pending:
        node, bound = pending.pop()
        kind = node.type
        if kind == "identifier":
            names += [text_of(node)] if bound else []
            continue
        if kind not in ("lambda", "block"):
            pending += reversed([(child, _is_bound(node, child, bound)) for child in node.named_children])
    return names


def _is_bound(parent: Node, child: Node, bound: bool) -> bool:
    kind = parent.type
    if kind in ("assignment", "augmented_assignment", "for_statement", "type_alias_statement"):
        return child == parent.child_by_field_name("left")
    if kind == "named_expression":
        return child == parent.child_by_field_name("name")
    if kind in ("as_pattern_target", "delete_statement", "splat_pattern"):
        return True
    if kind == "as_pattern":
        return child.type == "as_pattern_target" or (child.type == "identifier" and child == parent.named_children[-1])
    if kind in ("import_statement", "import_from_statement"):
        return child != parent.child_by_field_name("module_name")
    if kind == "aliased_import":
        return child == parent.child_by_field_name("alias")
    if kind == "dotted_name":
        if parent.parent is not None and parent.parent.type == "case_pattern":
            return parent.named_child_count == 1
        return bound and child == parent.named_children[0]
    if kind == "type":
        return bound
    return bound and kind in _TARGETS


def _without_annotation(assignment: Node, edits: Edits) -> None:
    annotation, left = assignment.child_by_field_name("type"), assignment.child_by_field_name("left")
    if annotation is None or left is None or left.type != "identifier":
        return
    if assignment.child_by_field_name("right") is None:
        replace_line(edits, assignment.start_byte, assignment.end_byte, "pass")
    else:
        edits.blank(left.end_byte, annotation.end_byte)

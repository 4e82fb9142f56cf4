"""CommonJS exports: `module.exports = main`, `exports.run = …`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import ENTRY_NAMES, FUNCTION_VALUES, statements, text_of, unwrapped, walk
from corral.programs.typescript.modules import Entry

COMMONJS_PREFIX = "const module = { exports: {} }, exports = module.exports; "
"""Declares the variables of CommonJS."""

_EXPORTS = re.compile(r"(?:module\.)?exports(?:\.([\w$]+))?")
_IS_MAIN = re.compile(
    rb"(?<![\w$.])(?:require\.main[ \t]*={2,3}[ \t]*module|module[ \t]*={2,3}[ \t]*require\.main)(?![\w$.])"
)


@dataclass(frozen=True, slots=True)
class _Assignment:
    target: str
    key: str | None
    """The property of `exports`; None for `exports` itself."""
    value: Node


def rewrite_commonjs(root: Node, edits: Edits) -> Entry | None:
    """Returns the export to run; None if the program does not assign to `exports`.

    Tests for the main module become `true`.
    """
    if b"module" not in edits.text and b"exports" not in edits.text:
        return None
    for match in _IS_MAIN.finditer(edits.text):
        node = root.descendant_for_byte_range(*match.span())
        if node is not None and node.type == "binary_expression":
            edits.replace(*match.span(), b"true".ljust(match.end() - match.start()))
    assignments = [each for node in walk(root, into_functions=False) if (each := _assignment(node))]
    if not assignments or _declares(root, assignments[0].target.partition(".")[0]):
        return None
    return _entry(assignments)


def assigns_exports(statement: Node) -> bool:
    """True if a statement is an assignment to `exports`."""
    return statement.type == "expression_statement" and _assignment(statement.named_children[0]) is not None


def _assignment(node: Node) -> _Assignment | None:
    if node.type != "assignment_expression":
        return None
    left, right = part(node, "left"), part(node, "right")
    if left is None or right is None or left.type != "member_expression":
        return None
    target = _EXPORTS.fullmatch("".join(text_of(left).split()))
    return _Assignment(target[0], target[1], right) if target else None


def _entry(assignments: list[_Assignment]) -> Entry:
    whole = next((each for each in reversed(assignments) if each.key is None), None)
    if whole is None:
        exports = {each.key: (each.target, each.value) for each in assignments if each.key is not None}
    else:
        value = unwrapped(whole.value)
        if value.type != "object":
            return _entry_at(whole.target, value)
        exports = {key: (f"{whole.target}.{key}", held) for key, held in _properties(value)}
    usual = next((name for name in ("default", *ENTRY_NAMES) if name in exports), None)
    key = next(iter(exports)) if usual is None and len(exports) == 1 else usual
    return _entry_at(*exports[key]) if key is not None else Entry("module.exports")


def _entry_at(target: str, value: Node) -> Entry:
    value = unwrapped(value)
    name = text_of(value) if value.type in ("identifier", "shorthand_property_identifier") else None
    return Entry(target, name, value if value.type in FUNCTION_VALUES else None, callable=value.type != "class")


def _properties(literal: Node) -> list[tuple[str, Node]]:
    properties: list[tuple[str, Node]] = []
    for each in literal.named_children:
        if each.type == "shorthand_property_identifier":
            properties.append((text_of(each), each))
        elif each.type in ("pair", "method_definition"):
            key = part(each, "key") or part(each, "name")
            value = part(each, "value") or each
            if key is not None and key.type == "property_identifier":
                properties.append((text_of(key), value))
    return properties


def _declares(root: Node, name: str) -> bool:
    candidates = (each for statement in statements(root) for each in (statement, *statement.named_children))
    return any(text_of(part(each, "name")) == name for each in candidates)

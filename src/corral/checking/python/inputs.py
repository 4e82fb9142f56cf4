"""Inputs of tools that a Python program gives as a dict, or holds in a variable."""

from __future__ import annotations

import re
from collections.abc import Collection

from tree_sitter import Node

from corral.checking.languages import ANY
from corral.programs.edits import Edits
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.syntax.parsing import text_of
from corral.programs.syntax.python import finder

_CALLS = finder("(call function: (attribute)) @call")
_PAIRS = frozenset({"pair", "dictionary_splat", "comment"})
_SIGN = re.compile(rb"\*\*|\(\s*\{")
_MAX_CALLS = 500


def as_keywords(root: Node, tools: Collection[str], edits: Edits) -> None:
    """Adds the edits by which `tools.x({"a": 1})` and `tools.x(**{"a": 1})` become `tools.x(a=1)`.

    `tools`: the paths of those that take keywords.
    """
    found = _CALLS(root) if _SIGN.search(edits.text) else {}
    for call in found.get("call", ())[:_MAX_CALLS]:
        function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        owner, _, path = ("", "", "") if function is None else dotted_path(function).partition(".")
        if owner not in ("tools", "codemode") or path not in tools or arguments is None:
            continue
        given = [each for each in arguments.named_children if each.type != "comment"]
        for each in given:
            literal = each.named_children[0] if each.type == "dictionary_splat" and each.named_children else each
            if literal.type == "dictionary" and (each != literal or len(given) == 1) and _is_plain(literal):
                _open(each, literal, edits)


def _open(argument: Node, literal: Node, edits: Edits) -> None:
    """Takes the braces away of a dict that is written out."""
    opening, closing = literal.children[0], literal.children[-1]
    edits.replace(argument.start_byte, opening.end_byte, b"")
    edits.replace(closing.start_byte, closing.end_byte, b"")
    for pair in literal.named_children:
        if pair.type == "dictionary_splat" and pair.named_children:
            inner = pair.named_children[0]  # whose members may be any
            edits.wrap(inner.start_byte, inner.end_byte, f"{ANY}(".encode(), b")")
        key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
        if key is not None and value is not None and key.end_point.row == value.start_point.row:
            edits.replace(key.start_byte, value.start_byte, _name(key).encode() + b"=")


def _is_plain(literal: Node) -> bool:
    """True if all items of a dict can become keywords."""
    keys = [each.child_by_field_name("key") for each in literal.named_children if each.type == "pair"]
    is_plain = all(each is not None and each.type == "string" and _name(each).isidentifier() for each in keys)
    return is_plain and all(each.type in _PAIRS for each in literal.named_children)


def _name(key: Node) -> str:
    return text_of(key).strip("\"'")


def input_bound(name: Node, names: Names) -> Node | None:
    """The dict that a variable is, if it is never another, and inputs of calls are all that it is used for."""
    try:
        uses = names.of(text_of(name))
    except TooMuch:
        return None
    bound = [each.node.parent for each in uses if each.binds]
    if len(bound) != 1 or bound[0] is None or bound[0].type != "assignment":
        return None
    literal = bound[0].child_by_field_name("right")
    is_only_passed = all(each.binds or _is_passed(each.node) for each in uses)
    is_one = len({each.owner.id for each in uses}) == 1 and is_only_passed
    return literal if is_one and literal is not None and literal.type == "dictionary" else None


def _is_passed(use: Node) -> bool:
    """True if a variable is the input of a call, as it is or spread."""
    parent = use.parent
    above = None if parent is None else parent.parent
    if parent is None or above is None:
        return False
    call = above.parent if parent.type == "dictionary_splat" else above
    function = None if call is None or call.type != "call" else call.child_by_field_name("function")
    return function is not None and dotted_path(function).startswith(("tools.", "codemode."))

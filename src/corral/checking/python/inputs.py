"""Inputs of tools that a Python program writes as a dict: a type checker is to read them as keywords."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tree_sitter import Node

from corral.checking.declared_tools import ANY
from corral.programs.edits import Edits
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.syntax.python import finder, text_of

__all__ = ["as_keywords"]

_CALLS = finder("(call function: (attribute)) @call")
_PAIRS = frozenset({"pair", "dictionary_splat", "comment"})
_CONSTANTS = frozenset({"string", "integer", "float", "true", "false", "none"})
_SIGN = re.compile(rb"\*\*|\(\s*\{|\(\s*\w+\s*,?\s*\)")
_MAX_CALLS = 500
_MAX_CHARS = 2_000


def as_keywords(root: Node, names: Names, tools: Collection[str], edits: Edits) -> set[int]:
    """Adds the edits by which `tools.x({"a": 1})` and `tools.x(**{"a": 1})` become `tools.x(a=1)`.

    A variable counts as the dict that it is bound to, if it is used for nothing else. `tools`: the paths of those that
    take keywords. Gives the ids of the arguments that became keywords.
    """
    opened: set[int] = set()
    found = _CALLS(root) if _SIGN.search(edits.text) else {}
    for call in found.get("call", ())[:_MAX_CALLS]:
        function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        owner, _, path = ("", "", "") if function is None else dotted_path(function).partition(".")
        if owner not in ("tools", "codemode") or path not in tools or arguments is None:
            continue
        given = [each for each in arguments.named_children if each.type != "comment"]
        for each in given:
            value = each.named_children[0] if each.type == "dictionary_splat" and each.named_children else each
            if each.type != "dictionary_splat" and len(given) != 1:
                continue
            if _open(each, value, edits) if value.type == "dictionary" else _spell(each, value, names, edits):
                opened.add(each.id)
    return opened


def _open(argument: Node, literal: Node, edits: Edits) -> bool:
    """Takes the braces away of a dict that is written out, if keywords can be made of all that it has."""
    if not _is_plain(literal):
        return False
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
    return True


def _spell(argument: Node, name: Node, names: Names, edits: Edits) -> bool:
    """Puts keywords in the place of a variable that is one dict, and never another."""
    if name.type != "identifier":
        return False
    try:
        uses = names.of(text_of(name))
    except TooMuch:
        return False
    bound = [each.node.parent for each in uses if each.binds]
    literal = None if len(bound) != 1 or bound[0] is None else bound[0].child_by_field_name("right")
    if literal is None or bound[0] is None or bound[0].type != "assignment" or literal.type != "dictionary":
        return False
    is_only_passed = all(each.binds or _is_passed(each.node) for each in uses)
    if len({each.owner.id for each in uses}) != 1 or not is_only_passed or not _is_plain(literal):
        return False
    keywords = ", ".join(_keywords(literal))
    if len(keywords) > _MAX_CHARS or "\n" in keywords:
        return False
    edits.replace(argument.start_byte, argument.end_byte, keywords.encode())
    return True


def _keywords(literal: Node) -> Iterator[str]:
    """The members as keywords. What is no constant may have another value where the variable is used."""
    for pair in literal.named_children:
        key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
        if key is not None and value is not None:
            yield f"{_name(key)}={text_of(value) if value.type in _CONSTANTS else f'{ANY}(0)'}"
        elif pair.type == "dictionary_splat":
            yield f"**{ANY}(0)"


def _is_passed(use: Node) -> bool:
    """Whether a variable is the input of a call, as it is or spread."""
    parent = use.parent
    above = None if parent is None else parent.parent
    if parent is None or above is None:
        return False
    call = above.parent if parent.type == "dictionary_splat" else above
    function = None if call is None or call.type != "call" else call.child_by_field_name("function")
    return function is not None and dotted_path(function).startswith(("tools.", "codemode."))


def _is_plain(literal: Node) -> bool:
    """Whether keywords can be made of all that a dict has."""
    keys = [each.child_by_field_name("key") for each in literal.named_children if each.type == "pair"]
    is_plain = all(each is not None and each.type == "string" and _name(each).isidentifier() for each in keys)
    return is_plain and all(each.type in _PAIRS for each in literal.named_children)


def _name(key: Node) -> str:
    return text_of(key).strip("\"'")

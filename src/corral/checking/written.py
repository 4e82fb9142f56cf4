"""Reads TypeScript and Python literals as JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from tree_sitter import Node

from corral.checking.inputs import Written
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import text_of, unwrapped
from corral.tools.json_schema.problems import ABSENT

_MAX_PARTS = 2_000
_NUMBER = frozenset({"number"})
_PYTHON_NUMBER = frozenset({"number", "boolean"})
"""Types of which tools written in Python accept one for the other."""
_TEXT = frozenset({"string"})
_ARRAY = frozenset({"array"})
_OBJECT = frozenset({"object"})
_SPREADS = frozenset({"spread_element", "list_splat", "dictionary_splat"})
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_KEYS = frozenset({"property_identifier", "string", "number"})

Members = dict[str, tuple[Node, Node | None]]


def read_typescript(node: Node) -> Written:
    """Reads the literal parts of a TypeScript expression."""
    if _is_asserted(node):
        inner = read_typescript(unwrapped(node))
        return inner._replace(value=ABSENT, members=_replaceable(inner.members), elements=(), asserted=True)
    node = unwrapped(node)
    match node.type:
        case "string" | "template_string":
            return Written(node, _TEXT, _text(node, "string_fragment"))
        case "number" | "unary_expression":
            return _number(node, _NUMBER)
        case "true" | "false":
            return Written(node, frozenset({"boolean"}), _CONSTANTS[node.type])
        case "null":
            return Written(node, frozenset({"null"}), None)
        case "array":
            return _array(node)
        case "object" if node.named_child_count <= _MAX_PARTS:
            return _object(node)
        case _:
            return Written(node)


def _is_asserted(node: Node) -> bool:
    while node.type in ("parenthesized_expression", "as_expression") and node.children:
        if node.type == "as_expression" and text_of(node.children[-1]) != "const":
            return True
        node = next((child for child in node.named_children if child.type != "comment"), node.children[0])
    return False


def _object(node: Node) -> Written:
    members: Members = {}
    complete = True
    for member in node.named_children:
        key, value = part(member, "key"), part(member, "value")
        if member.type == "spread_element":
            complete, members = False, _replaceable(members)
        elif member.type == "shorthand_property_identifier":
            members[text_of(member)] = member, member
        elif member.type == "pair" and key is not None and key.type in _KEYS:
            name = _text(key, "string_fragment") if key.type == "string" else text_of(key)
            if not isinstance(name, str) or name == "__proto__":
                complete = False
            elif value is None or text_of(value) == "undefined":
                members.pop(name, None)
            else:
                members[name] = key, value
        elif member.type != "comment":
            complete, members = False, _replaceable(members)
    return Written(node, _OBJECT, members=members, complete=complete)


def _replaceable(members: Mapping[str, tuple[Node, Node | None]]) -> Members:
    """Returns the members without their values, which can be overwritten."""
    return {name: (key, None) for name, (key, _) in members.items()}


def read_python(node: Node, bound: Callable[[Node], Node | None]) -> Written:
    """Reads the literal parts of a Python expression. `bound` returns the dict that a name certainly refers to."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    match node.type:
        case "string":
            is_plain = text_of(node)[:1] in "\"'"
            return Written(node, _TEXT, _text(node, "string_content") if is_plain else ABSENT)
        case "concatenated_string":
            return Written(node, _TEXT)
        case "integer" | "float" | "unary_operator":
            return _number(node, _PYTHON_NUMBER)
        case "true" | "false":
            return Written(node, _PYTHON_NUMBER, _CONSTANTS[node.type])
        case "none":
            return Written(node, frozenset({"null"}), None)
        case "list" | "tuple" | "set":
            return _array(node)
        case "list_comprehension":
            body = part(node, "body")
            return Written(node, _ARRAY, elements=() if body is None else (body,), complete=False)
        case "dictionary" if node.named_child_count <= _MAX_PARTS:
            return _dictionary(node)
        case "identifier" if (literal := bound(node)) is not None:
            return read_python(literal, bound)
        case _:
            return Written(node)


def _dictionary(node: Node) -> Written:
    members: Members = {}
    complete = True
    for member in node.named_children:
        key, value = part(member, "key"), part(member, "value")
        name = _text(key, "string_content") if key is not None and key.type == "string" else None
        if isinstance(name, str) and key is not None:
            members[name] = key, value
        elif member.type != "comment":
            complete, members = False, _replaceable(members)
    return Written(node, _OBJECT, members=members, complete=complete)


def python_arguments(call: Node, bound: Callable[[Node], Node | None]) -> Written:
    """Reads the input of a call from its keywords or its single dict."""
    arguments = part(call, "arguments")
    if arguments is None or arguments.type != "argument_list" or arguments.named_child_count > _MAX_PARTS:
        return Written(call)
    passed = [each for each in arguments.named_children if each.type != "comment"]
    if len(passed) == 1 and passed[0].type not in ("keyword_argument", *_SPREADS):
        return read_python(passed[0], bound)
    members: Members = {}
    complete = True
    for each in passed:
        name, value = part(each, "name"), part(each, "value")
        if each.type == "keyword_argument" and name is not None:
            members[text_of(name)] = name, value
        elif each.type == "dictionary_splat" and each.named_children:
            inner = read_python(each.named_children[0], bound)
            members |= inner.members
            complete = complete and inner.complete and inner.kinds == _OBJECT
        else:
            return Written(call)
    return Written(call, _OBJECT, members=members, complete=complete)


def _array(node: Node) -> Written:
    if node.named_child_count > _MAX_PARTS:
        return Written(node, _ARRAY, complete=False)
    parts = [each for each in node.named_children if each.type != "comment"]
    elements = [each for each in parts if each.type not in _SPREADS]
    return Written(node, _ARRAY, elements=elements, complete=len(elements) == len(parts))


def _number(node: Node, kinds: frozenset[str]) -> Written:
    text, sign = text_of(node).replace("_", ""), 1
    if node.type.startswith("unary"):
        operand = part(node, "argument")
        if operand is None or node.children[0].type != "-" or operand.type not in ("number", "integer", "float"):
            return Written(node)
        text, sign = text_of(operand).replace("_", ""), -1
    if text[-1:] in "jJ":
        return Written(node)
    with suppress(ValueError):
        return Written(node, kinds, sign * int(text.removesuffix("n"), 0))
    with suppress(ValueError):
        return Written(node, kinds, sign * float(text))
    return Written(node, kinds)


def _text(node: Node, part: str) -> object:
    """Returns the text of a string; ABSENT if it contains escapes or interpolations."""
    parts = node.named_children
    if any(each.type not in (part, "string_start", "string_end") or each.named_child_count for each in parts):
        return ABSENT
    return "".join(text_of(each) for each in parts if each.type == part)

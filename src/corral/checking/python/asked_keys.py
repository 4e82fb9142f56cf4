"""Conditions on keys that results cannot have: `.get("key")` and `"key" in value`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.conditions import Condition, condition_on
from corral.checking.declared_tools import ToolSet
from corral.programs.mends.origins import Origins
from corral.programs.python.names import Names, TooMuch
from corral.programs.syntax.parsing import arguments_of, part, text_of
from corral.programs.syntax.python import finder
from corral.tools.json_schema.keywords import mapping, part_of
from corral.tools.schema import TypeOutput
from corral.types import ToolName

_ASKED = finder(
    '(call function: (attribute attribute: (identifier) @get (#eq? @get "get"))) @call (comparison_operator) @in'
)
_EMPTY = frozenset({"None", "False", "''", '""', "[]", "{}"})
_MAX_ASKED = 200


class MissingKey(NamedTuple):
    """A condition on a key that a value does not have."""

    condition: Condition
    name: Node
    key: str
    owner: Node
    members: tuple[str, ...]


def missing_keys(root: Node, tools: ToolSet, names: Names) -> Iterator[MissingKey]:
    """Yields conditions on keys that closed tool results do not have, where names can be traced to a call."""
    matches, origins = _ASKED(root), Origins(names, annotated=False)
    for node in [*matches.get("call", ()), *matches.get("in", ())][:_MAX_ASKED]:
        owner, key, holds = _tested(node)
        condition = None if owner is None or key is None else condition_on(node)
        if owner is None or key is None or condition is None:
            continue
        try:
            members = _members(owner, tools, origins)
        except TooMuch:
            return
        if members and _text(key) not in members:
            yield MissingKey(condition._replace(holds=condition.holds != holds), key, _text(key), owner, members)


def tested_keys(root: Node) -> frozenset[str]:
    """Returns the keys tested by a program's conditions, on any value."""
    matches = _ASKED(root)
    nodes = [*matches.get("call", ()), *matches.get("in", ())][:_MAX_ASKED]
    keys = [key for node in nodes if (key := _tested(node)[1]) is not None and condition_on(node) is not None]
    return frozenset(map(_text, keys))


def _text(key: Node) -> str:
    return text_of(key).strip("\"'")


def _tested(node: Node) -> tuple[Node | None, Node | None, bool]:
    """Returns the tested value, the key, and the result of the test if the key is missing."""
    if node.type == "call":
        passed = arguments_of(node)
        is_plain = len(passed) == 1 or (len(passed) == 2 and text_of(passed[1]) in _EMPTY)
        key = passed[0] if is_plain and passed[0].type == "string" else None
        return part(node, "function", "object"), key, False
    sign = " ".join(each.type for each in node.children[1:-1])
    sides = node.named_children
    is_key = sign in ("in", "not in") and len(sides) == 2 and sides[0].type == "string"
    return (sides[1], sides[0], sign == "not in") if is_key else (None, None, False)


def _members(value: Node, tools: ToolSet, origins: Origins) -> tuple[str, ...]:
    """Returns the keys of a closed object; empty if it can have others or is not an object."""
    origin = origins.of(value)
    tool = None if origin is None else tools.tools.get(ToolName.parse(origin.path))
    if origin is None or tool is None or tool.stream or tool.output_schema is None:
        return ()
    known = part_of(tool.output_schema, origin.steps)
    if known is None or known.get("type", "object") != "object" or "patternProperties" in known:
        return ()
    others = known.get("additionalProperties")
    is_closed = others is False or (others is None and isinstance(tool.output, TypeOutput))
    return tuple(mapping(known.get("properties"))) if is_closed else ()

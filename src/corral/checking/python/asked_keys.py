"""Keys that a program asks for, and that results cannot have: `.get("key")` and `"key" in value` in conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tree_sitter import Node

from corral.checking.conditions import Condition, condition_on
from corral.checking.declared_tools import ToolSet
from corral.checking.inputs import unconditional
from corral.json_schema.keywords import mapping
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.syntax.python import finder, text_of
from corral.tools.schema import TypeOutput
from corral.types import ToolName

__all__ = ["AskedKey", "asked_names", "keys_asked_in_vain"]

_ASKED = finder(
    '(call function: (attribute attribute: (identifier) @get (#eq? @get "get"))) @call (comparison_operator) @in'
)
_NOTHING = frozenset({"none", "false", "string", "list", "dictionary"})
_MAX_HOPS = 8
_MAX_ASKED = 200


class AskedKey(NamedTuple):
    """A condition on a key that a value does not have."""

    condition: Condition
    name: Node
    owner: Node
    members: tuple[str, ...]


def keys_asked_in_vain(root: Node, tools: ToolSet, names: Names) -> Iterator[AskedKey]:
    """The conditions on keys that closed results of tools do not have, as far as a name leads to a call."""
    found = _ASKED(root)
    for node in [*found.get("call", ()), *found.get("in", ())][:_MAX_ASKED]:
        owner, key, holds = _asked(node)
        condition = None if owner is None or key is None else condition_on(node)
        if owner is None or key is None or condition is None:
            continue
        try:
            result = _Result.of(owner, tools, names)
        except TooMuch:
            return
        members = () if result is None else result.members
        if members and text_of(key).strip("\"'") not in members:
            yield AskedKey(condition._replace(holds=condition.holds != holds), key, owner, members)


def asked_names(root: Node) -> frozenset[str]:
    """The keys that conditions of a program ask for, whatever has them."""
    found = _ASKED(root)
    nodes = [*found.get("call", ()), *found.get("in", ())][:_MAX_ASKED]
    keys = [key for node in nodes if (key := _asked(node)[1]) is not None and condition_on(node) is not None]
    return frozenset(text_of(each).strip("\"'") for each in keys)


def _asked(node: Node) -> tuple[Node | None, Node | None, bool]:
    """The value that is asked for a key, the key, and the outcome if it has none."""
    if node.type == "call":
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = [] if arguments is None else arguments.named_children
        is_plain = len(given) == 1 or (len(given) == 2 and given[1].type in _NOTHING and _is_empty(given[1]))
        owner = None if function is None else function.child_by_field_name("object")
        return owner, given[0] if is_plain and given[0].type == "string" else None, False
    sign = " ".join(each.type for each in node.children[1:-1])
    sides = node.named_children
    is_key = sign in ("in", "not in") and len(sides) == 2 and sides[0].type == "string"
    return (sides[1], sides[0], sign == "not in") if is_key else (None, None, False)


def _is_empty(literal: Node) -> bool:
    return text_of(literal) in ("None", "False", "''", '""', "[]", "{}")


class _Result(NamedTuple):
    """The result of a tool, or a part of it, by its schema."""

    root: Mapping[str, object]
    schema: object
    is_typed: bool
    """True if the schema is that of a type, whose values have no members but its own."""

    @classmethod
    def of(cls, value: Node | None, tools: ToolSet, names: Names, hops: int = _MAX_HOPS) -> _Result | None:
        if value is None or not hops:
            return None
        match value.type:
            case "parenthesized_expression":
                return cls.of(value.named_children[0], tools, names, hops - 1)
            case "await":
                return cls._of_call(value.named_children[0], tools)
            case "subscript":
                whole = cls.of(value.child_by_field_name("value"), tools, names, hops - 1)
                key = value.child_by_field_name("subscript")
                return None if whole is None or key is None else whole.part(key)
            case "identifier":
                return cls._of_name(value, tools, names, hops - 1)
            case _:
                return None

    @classmethod
    def _of_call(cls, call: Node, tools: ToolSet) -> _Result | None:
        function = call.child_by_field_name("function") if call.type == "call" else None
        owner, _, path = ("", "", "") if function is None else dotted_path(function).partition(".")
        tool = tools.tools.get(ToolName.parse(path)) if owner in ("tools", "codemode") and path else None
        if tool is None or tool.stream or tool.output_schema is None:
            return None
        return cls(tool.output_schema, tool.output_schema, isinstance(tool.output, TypeOutput))

    @classmethod
    def _of_name(cls, name: Node, tools: ToolSet, names: Names, hops: int) -> _Result | None:
        bound = [each.node for each in names.of(text_of(name)) if each.binds]
        above = bound[0].parent if len(bound) == 1 else None
        if above is None or above.child_by_field_name("left") != bound[0]:
            return None
        if above.type == "assignment" and above.child_by_field_name("type") is None:
            return cls.of(above.child_by_field_name("right"), tools, names, hops)
        if above.type in ("for_statement", "for_in_clause"):
            whole = cls.of(above.child_by_field_name("right"), tools, names, hops)
            return None if whole is None else whole.part(None)
        return None

    def part(self, key: Node | None) -> _Result | None:
        """A member by its key; an item, if that is a number or unknown."""
        known = unconditional(self.root, self.schema) or {}
        if key is not None and key.type == "string":
            inner = mapping(known.get("properties")).get(text_of(key).strip("\"'"))
        else:
            inner = known.get("items") if key is None or key.type in ("integer", "unary_operator") else None
        return None if inner is None else self._replace(schema=inner)

    @property
    def members(self) -> tuple[str, ...]:
        """All that an object may have; none: it may have others, or may be none."""
        known = unconditional(self.root, self.schema)
        if known is None or known.get("type", "object") != "object" or "patternProperties" in known:
            return ()
        others = known.get("additionalProperties")
        is_closed = others is False or (others is None and self.is_typed)
        return tuple(mapping(known.get("properties"))) if is_closed else ()

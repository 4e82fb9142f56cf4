"""Finds values that a TypeScript program stores: the compiler still assumes the declared types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax.parsing import arguments_of, inside, is_a, part, with_wrappers
from corral.programs.syntax.typescript import text_of, unwrapped, walk

_ASSIGNMENTS = frozenset({"assignment_expression", "augmented_assignment_expression"})
_ADDING = frozenset({"assign", "defineProperty", "defineProperties", "setPrototypeOf", "set"})
_FILLING = frozenset({"push", "unshift", "splice", "fill", "set", "add"})
"""Methods that store their arguments in an array, a `Map` or a `Set`."""
_MEMBERS = frozenset({"member_expression", "subscript_expression"})
_PATTERNS = frozenset({"array_pattern", "object_pattern", "pair_pattern", "assignment_pattern", "rest_pattern"})


class Write(NamedTuple):
    """Stored value: in a variable or member, in a container (`into`), or as member `name` of an object."""

    target: Node
    value: Node | None
    """Expression that is stored; None if it is not a single one."""
    into: bool = False
    name: str | None = None


class DynamicMembers(NamedTuple):
    """Names of members that a program sets, True if it also sets computed ones, and all writes."""

    names: frozenset[str]
    computed: bool
    writes: tuple[Write, ...] = ()

    @classmethod
    def of(cls, root: Node) -> DynamicMembers:
        names: set[str] = set()
        computed = False
        writes: list[Write] = []
        for node in walk(root):
            if node.type in _MEMBERS and is_written(node):
                name = _member_name(node)
                computed = computed or name is None
                names |= {name} if name else set()
            elif node.type == "call_expression" and _adds_members(node):
                computed = True
                names.update(name for each in arguments_of(node) for name, _ in _members_in(each) if name)
            writes += writes_of(node)
        names.update(each.name for each in writes if each.name)
        return cls(frozenset(names), computed, tuple(writes))


def _member_name(node: Node) -> str | None:
    """Returns the name of the member that an expression reads; None if it is computed."""
    if node.type == "member_expression":
        return text_of(part(node, "property") or node)
    index = part(node, "index")
    return text_of(index)[1:-1] if index is not None and index.type == "string" else None


def is_written(node: Node) -> bool:
    """True if an expression is the target of an assignment or `delete`."""
    node, parent = with_wrappers(node, ("non_null_expression", "parenthesized_expression", "as_expression"))
    if is_a(parent, "unary_expression"):
        return parent.children[0].type == "delete"
    if is_a(parent, "for_in_statement", *_ASSIGNMENTS):
        return part(parent, "left") == node
    return is_a(parent, "array_pattern", "pair_pattern", "update_expression")


def _object_of(node: Node) -> Node | None:
    """Returns the owner in a member expression."""
    return part(node, "object") if node.type in _MEMBERS else None


def root_of(node: Node) -> Node | None:
    """Returns the identifier at the start of a chain of members and calls."""
    inner: Node | None = node
    while inner is not None and (inner := unwrapped(inner)).type != "identifier":
        is_await = inner.type == "await_expression"
        inner = inside(inner) if is_await else _object_of(inner) or part(inner, "function")
    return inner


def writes_of(node: Node) -> Iterator[Write]:
    if node.type in _ASSIGNMENTS:
        operator = part(node, "operator")
        is_computing = operator is not None and text_of(operator) not in ("??=", "||=", "&&=")
        target, value = part(node, "left"), part(node, "right")
        if target is not None and not is_computing:
            yield from _targets(unwrapped(target), value)
    elif node.type == "for_in_statement" and part(node, "kind") is None:
        if (target := part(node, "left")) is not None:
            yield from _targets(unwrapped(target), None)
    elif node.type == "call_expression":
        owner, passed = part(node, "function", "object"), arguments_of(node)
        if _adds_members(node) and passed:
            yield from _added(passed)
        elif owner is not None and text_of(part(node, "function", "property")) in _FILLING:
            yield from (Write(unwrapped(owner), value, into=True) for value in passed)


def _targets(target: Node, value: Node | None) -> Iterator[Write]:
    """Yields the writes to an assignment's target."""
    waiting, first = [target], True
    while waiting:
        node = waiting.pop()
        if node.type == "identifier" or node.type == "member_expression":
            yield Write(node, value if first else None)
        elif node.type == "subscript_expression" and (owner := _object_of(node)) is not None:
            name = _member_name(node)
            yield Write(unwrapped(owner), value if first else None, into=name is None, name=name)
        elif node.type in _PATTERNS:
            children = node.named_children
            waiting += children[-1:] if node.type == "pair_pattern" else children
        first = False


def _added(arguments: list[Node]) -> Iterator[Write]:
    """Yields the writes of `Object.assign(…)` and similar calls to their first argument."""
    target = unwrapped(arguments[0])
    if len(arguments) > 1 and arguments[1].type == "string":
        yield Write(target, arguments[2] if len(arguments) > 2 else None, name=text_of(arguments[1])[1:-1])
        return
    for source in arguments[1:]:
        if source.type != "object":
            yield Write(target, None, into=True)
            continue
        for name, value in _members_in(source):
            yield Write(target, value, into=name is None, name=name)


def _adds_members(call: Node) -> bool:
    owner, name = part(call, "function", "object"), part(call, "function", "property")
    return text_of(owner) in ("Object", "Reflect") and text_of(name) in _ADDING


def _members_in(literal: Node) -> Iterator[tuple[str | None, Node | None]]:
    """Yields names and values of an object literal's members. Computed ones and spreads have no name."""
    for member in literal.named_children if literal.type == "object" else ():
        key = part(member, "key")
        if member.type == "shorthand_property_identifier":
            yield text_of(member), member
        elif is_a(key, "property_identifier", "string"):
            yield text_of(key).strip("\"'"), part(member, "value")
        elif member.type != "comment":
            yield None, None

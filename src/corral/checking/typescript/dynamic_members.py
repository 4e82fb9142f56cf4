"""Places where a TypeScript program stores values: the compiler keeps believing the declared types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax.typescript import text_of, unwrapped, walk

_ASSIGNMENTS = frozenset({"assignment_expression", "augmented_assignment_expression"})
_ADDING = frozenset({"assign", "defineProperty", "defineProperties", "setPrototypeOf", "set"})
_FILLING = frozenset({"push", "unshift", "splice", "fill", "set", "add"})
"""Methods that store their arguments in an array, a `Map` or a `Set`."""
_MEMBERS = frozenset({"member_expression", "subscript_expression"})
_PATTERNS = frozenset({"array_pattern", "object_pattern", "pair_pattern", "assignment_pattern", "rest_pattern"})


class Write(NamedTuple):
    """A stored value: in a variable or member, `into` a container, or as member `name` of an object."""

    target: Node
    value: Node | None
    """None if it is not a single expression."""
    into: bool = False
    name: str | None = None


class DynamicMembers(NamedTuple):
    """The member names that a program sets, whether it also sets computed ones, and all writes."""

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
                name = member_name(node)
                computed = computed or name is None
                names |= {name} if name else set()
            elif node.type == "call_expression" and _adds_members(node):
                computed = True
                arguments = node.child_by_field_name("arguments")
                for literal in arguments.named_children if arguments else ():
                    names |= _keys(literal)
            writes += writes_of(node)
        names.update(each.name for each in writes if each.name)
        return cls(frozenset(names), computed, tuple(writes))


def member_name(node: Node) -> str | None:
    """Returns the name of the member that an expression reads; None if it is computed."""
    if node.type == "member_expression":
        return text_of(node.child_by_field_name("property") or node)
    index = node.child_by_field_name("index")
    return text_of(index)[1:-1] if index is not None and index.type == "string" else None


def is_written(node: Node) -> bool:
    """True if an expression is the target of an assignment or `delete`."""
    parent = node.parent
    while parent is not None and parent.type in ("non_null_expression", "parenthesized_expression", "as_expression"):
        node, parent = parent, parent.parent
    if parent is None:
        return False
    if parent.type in _ASSIGNMENTS:
        return parent.child_by_field_name("left") == node
    if parent.type == "unary_expression":
        return parent.children[0].type == "delete"
    if parent.type in ("array_pattern", "pair_pattern", "for_in_statement"):
        return parent.type != "for_in_statement" or parent.child_by_field_name("left") == node
    return parent.type == "update_expression"


def object_of(node: Node) -> Node | None:
    """Returns the owner in a member expression."""
    return node.child_by_field_name("object") if node.type in _MEMBERS else None


def root_of(node: Node) -> Node | None:
    """Returns the identifier at the start of a chain of members and calls."""
    while True:
        node = unwrapped(node)
        if node.type == "identifier":
            return node
        if node.type == "await_expression":
            inner: Node | None = node.named_children[0] if node.named_children else None
        else:
            inner = object_of(node) or node.child_by_field_name("function")
        if inner is None:
            return None
        node = inner


def writes_of(node: Node) -> Iterator[Write]:
    """Yields the writes of a node itself."""
    if node.type in _ASSIGNMENTS:
        operator = node.child_by_field_name("operator")
        is_computing = operator is not None and text_of(operator) not in ("??=", "||=", "&&=")
        target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
        if target is not None and not is_computing:
            yield from _targets(unwrapped(target), value)
    elif node.type == "for_in_statement" and node.child_by_field_name("kind") is None:
        if (target := node.child_by_field_name("left")) is not None:
            yield from _targets(unwrapped(target), None)
    elif node.type == "call_expression":
        called, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        passed = [] if arguments is None else [each for each in arguments.named_children if each.type != "comment"]
        if _adds_members(node) and passed:
            yield from _added(passed)
        elif called is not None and called.type == "member_expression" and member_name(called) in _FILLING:
            owner = object_of(called)
            yield from () if owner is None else (Write(unwrapped(owner), value, into=True) for value in passed)


def _targets(target: Node, value: Node | None) -> Iterator[Write]:
    """Yields the writes to an assignment's target."""
    waiting, first = [target], True
    while waiting:
        node = waiting.pop()
        if node.type == "identifier" or node.type == "member_expression":
            yield Write(node, value if first else None)
        elif node.type == "subscript_expression" and (owner := object_of(node)) is not None:
            name = member_name(node)
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
        for member in source.named_children:
            key = member.child_by_field_name("key")
            if member.type == "shorthand_property_identifier":
                yield Write(target, member, name=text_of(member))
            elif key is not None and key.type in ("property_identifier", "string"):
                yield Write(target, member.child_by_field_name("value"), name=text_of(key).strip("\"'"))
            elif member.type != "comment":
                yield Write(target, None, into=True)


def _adds_members(call: Node) -> bool:
    called = call.child_by_field_name("function")
    if called is None or called.type != "member_expression":
        return False
    owner = text_of(called.child_by_field_name("object") or called)
    return owner in ("Object", "Reflect") and member_name(called) in _ADDING


def _keys(literal: Node) -> set[str]:
    keys: set[str] = set()
    for member in literal.named_children if literal.type == "object" else ():
        key = member.child_by_field_name("key")
        if member.type == "shorthand_property_identifier":
            keys.add(text_of(member))
        elif key is not None:
            keys.add(text_of(key).strip("\"'"))
    return keys

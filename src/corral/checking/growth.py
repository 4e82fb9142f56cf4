"""What a TypeScript program adds to objects after it has made them: the compiler does not follow that."""

from __future__ import annotations

from typing import NamedTuple

from tree_sitter import Node

from corral.programs.grammar import text_of, unwrapped, walk

__all__ = ["Growth", "is_written", "member_name", "object_of", "root_of"]

_ASSIGNMENTS = frozenset({"assignment_expression", "augmented_assignment_expression"})
_GROWING = frozenset({"assign", "defineProperty", "defineProperties", "setPrototypeOf", "set"})
_MEMBERS = frozenset({"member_expression", "subscript_expression"})


class Growth(NamedTuple):
    """The names of members that are set somewhere, and whether others may be too."""

    names: frozenset[str]
    computed: bool
    open: tuple[Node, ...] = ()
    """What members are added to whose names are not written out."""

    @classmethod
    def of(cls, root: Node) -> Growth:
        names: set[str] = set()
        computed = False
        opened: list[Node] = []
        for node in walk(root):
            if node.type in _MEMBERS and is_written(node):
                name = member_name(node)
                computed = computed or name is None
                if name is None and (owner := object_of(node)) is not None:
                    opened.append(owner)
                names |= {name} if name else set()
            elif node.type == "call_expression" and _grows(node):
                computed = True
                arguments = node.child_by_field_name("arguments")
                given = arguments.named_children if arguments else []
                if any(each.type != "object" for each in given[1:]):
                    opened.append(given[0])
                for literal in given:
                    names |= _keys(literal)
        return cls(frozenset(names), computed, tuple(opened))


def member_name(node: Node) -> str | None:
    """The name of the member that an expression takes; None if it is computed."""
    if node.type == "member_expression":
        return text_of(node.child_by_field_name("property") or node)
    index = node.child_by_field_name("index")
    return text_of(index)[1:-1] if index is not None and index.type == "string" else None


def is_written(node: Node) -> bool:
    """Whether a value is put where an expression points to, or taken away from there."""
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
    """What a member expression takes its member of."""
    return node.child_by_field_name("object") if node.type in _MEMBERS else None


def root_of(node: Node) -> Node | None:
    """The identifier at which a chain of members and calls begins."""
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


def _grows(call: Node) -> bool:
    called = call.child_by_field_name("function")
    if called is None or called.type != "member_expression":
        return False
    owner = text_of(called.child_by_field_name("object") or called)
    return owner in ("Object", "Reflect") and member_name(called) in _GROWING


def _keys(literal: Node) -> set[str]:
    keys: set[str] = set()
    for member in literal.named_children if literal.type == "object" else ():
        key = member.child_by_field_name("key")
        if member.type == "shorthand_property_identifier":
            keys.add(text_of(member))
        elif key is not None:
            keys.add(text_of(key).strip("\"'"))
    return keys

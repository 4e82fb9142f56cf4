"""Declared types that no longer hold because a program stores other values in their place.

The compiler accepts `order.items = order.items.map((item) => ({ ...item, total }))`, since the new items have every
declared member, and later reports that they have no `total`. Values are not tracked, since they can be moved. So errors
about their type, or about the assigned member, do not count.
"""

from __future__ import annotations

from tree_sitter import Node

from corral.checking.base import Check
from corral.checking.declared_types import DeclaredTypes, Reach
from corral.checking.servers.workspace import Location
from corral.checking.typescript.dynamic_members import DynamicMembers, Write, root_of
from corral.checking.typescript.expressions import anchor, called_with
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import FUNCTION_VALUES, FUNCTIONS, finder, text_of, unwrapped

_MAX_WRITES = 60
"""With more writes, no error about declared types counts."""
_OWN_VALUES = FUNCTION_VALUES | {"object", "array", "new_expression", "class"}
_NOTHING = frozenset({"null", "undefined", "[]", "{}"})
_SPREAD = finder("(spread_element (_) @source)")


def rewritten(check: Check, dynamic: DynamicMembers, types: DeclaredTypes) -> Reach:
    """Returns the declared types whose values a program replaces."""
    reach = Reach(types)
    if len(dynamic.writes) > _MAX_WRITES:
        reach.add_everything()
    else:
        for write in dynamic.writes:
            _add(reach, write, check, types)
    return reach


def _add(reach: Reach, write: Write, check: Check, types: DeclaredTypes) -> None:
    if text_of(write.value) in _NOTHING:
        return
    root = root_of(write.target)
    initial = None if root is None else _initial(root, check)
    is_own = initial is not None and initial.type in _OWN_VALUES
    declared = _declared(write.target, check)
    if not declared and initial is not None and not is_own and write.target == root:
        declared = _declared(initial, check)
    name = write.name
    if name is None and not declared and not write.into and write.target.type == "member_expression":
        is_own = is_own or any(each.own for each in check.definitions(anchor(write.target)))
        name = text_of(write.target.child_by_field_name("property") or write.target)
    if name is not None and name in types.members:
        if not is_own:
            reach.add_members(name)
    elif declared:
        if write.name is None and not _fits(write.value, declared, check):
            for each in declared:
                reach.add(types.at(*check.tools.span(each)))
    elif write.into and root is not None:
        _add_contents(reach, write, root, initial, check, types)


def _add_contents(
    reach: Reach, write: Write, root: Node, initial: Node | None, check: Check, types: DeclaredTypes
) -> None:
    """Adds the declared types that a container may hold although it is not declared itself."""
    if _is_parameter(root, check):
        reach.add_everything()
    elif initial is None or initial.type not in ("object", "array") or _is_annotated(root, check):
        value = write.value and unwrapped(write.value)
        if value is not None and value.type == "identifier":
            value = _initial(value, check) or value
        for source in [] if value is None else _SPREAD(value).get("source", []):
            for each in _declared(source, check):
                reach.add(types.at(*check.tools.span(each)))


def _declared(target: Node, check: Check) -> list[Location]:
    """Returns the declarations of a target: its member and its type."""
    name = anchor(unwrapped(target))
    return [each for each in (*check.definitions(name), *check.types(name)) if each.declared]


def _fits(value: Node | None, declared: list[Location], check: Check) -> bool:
    """True if a value has exactly the declared type."""
    if value is not None and value.type == "spread_element" and value.named_children:
        value = value.named_children[0]
    name = None if value is None else anchor(value)
    value_types = check.declared_types(name)
    return bool(value_types) and all(each in declared for each in value_types)


def _initial(name: Node, check: Check) -> Node | None:
    """Returns the initial value of a variable."""
    declarator = _binding(name, check)
    if declarator is None or declarator.type != "variable_declarator":
        return None
    value = part(declarator, "value")
    return None if value is None else unwrapped(value)


def _is_annotated(name: Node, check: Check) -> bool:
    declarator = _binding(name, check)
    return declarator is not None and part(declarator, "type") is not None


def _is_parameter(name: Node, check: Check) -> bool:
    """True if a name is a parameter of a named function, whose arguments are unknown."""
    bound = _binding(name, check)
    while bound is not None and bound.type not in FUNCTIONS:
        if bound.type in ("variable_declarator", "statement_block"):
            return False
        bound = bound.parent
    return bound is not None and called_with(name) is None


def _binding(name: Node, check: Check) -> Node | None:
    """Returns the node that binds a variable."""
    own = [each for each in check.definitions(name) if each.own]
    node = check.node_at(own[0]) if own else None
    return None if node is None else node.parent

"""Says what a program's own function is called with: the tools, unless its parameter plainly means something else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from corral.programs.syntax.typescript import bound_names, text_of, walk

_NAMES = frozenset({"tools", "codemode"})
_OF_TOOLS = re.compile(r"tools|codemode", re.IGNORECASE)
_PLAIN = re.compile(
    r"[\s:|&()\[\]<>,]*(?:(?:string|number|boolean|bigint|symbol|null|undefined|void|never|true|false|Date|URL|RegExp"
    r"|Array|ReadonlyArray|Set|Map|Promise|readonly)\b[\s|&()\[\]<>,]*)+"
)
"""A type of which no set of tools is."""
_OPEN = re.compile(r"[\s:]*(?:any|unknown|object|Object|Function)\s*")
_DATA = ("data", "member")
_MEMBERS = frozenset(
    {
        *("member_expression", "subscript_expression"),
        *("non_null_expression", "parenthesized_expression", "as_expression", "satisfies_expression"),
    }
)


def arguments_of(function: Node | None) -> str | None:
    """The arguments to call a function with, as code; None: the tools."""
    parameter = _first(function)
    if function is None or parameter is None:
        return None
    pattern, default = parameter.child_by_field_name("pattern") or parameter, parameter.child_by_field_name("value")
    names = set(bound_names(pattern))
    typed = parameter.child_by_field_name("type")
    annotation = text_of(typed) if typed is not None else ""
    if _NAMES & names or _OF_TOOLS.search(annotation) or pattern.type not in ("identifier", "object_pattern"):
        return None
    if default is not None:
        return None if _OF_TOOLS.search(text_of(default)) else ""
    uses = list(_uses(function, names))
    if pattern.type == "object_pattern":
        defaults = [each.type == "object_assignment_pattern" for each in pattern.named_children]
        means_data = (all(defaults) and bool(defaults)) or (bool(uses) and all(each in _DATA for each in uses))
        return "{}" if means_data else None
    if _PLAIN.fullmatch(annotation):
        return ""
    given = {"member call"} | ({"given away"} if not annotation or _OPEN.fullmatch(annotation) else set[str]())
    return None if given & set(uses) else ""


def _first(function: Node | None) -> Node | None:
    if function is None:
        return None
    if (single := function.child_by_field_name("parameter")) is not None:
        return single
    parameters = function.child_by_field_name("parameters")
    found = parameters.named_children if parameters is not None else []
    known = ("required_parameter", "optional_parameter")
    return next((each for each in found if each.type in known and each.children[0].type != "this"), None)


def _uses(function: Node, names: set[str]) -> Iterator[str]:
    """A function's uses of its argument."""
    body = function.child_by_field_name("body")
    for node in walk(body) if body is not None else ():
        if node.type == "shorthand_property_identifier" and text_of(node) in names:
            yield "data"
        if node.type != "identifier" or text_of(node) not in names or node.parent is None:
            continue
        used, owner = node, node.parent
        while owner.type in _MEMBERS and owner.named_children[0] == used and owner.parent is not None:
            used, owner = owner, owner.parent
        called = owner.type == "call_expression" and owner.child_by_field_name("function") == used
        if used != node:
            yield "member call" if called else "member"
        elif owner.type in ("template_substitution", "pair", "binary_expression"):
            yield "data"
        else:
            yield "given away"

"""Queries about expressions in a TypeScript program's tree, and their context."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

from tree_sitter import Node

from corral.checking.typescript.dynamic_members import root_of
from corral.programs.edits import Edits
from corral.programs.syntax.parsing import ancestors, arguments_of, ascent, enclosing, inside, is_a, part, with_wrappers
from corral.programs.syntax.typescript import FUNCTIONS, finder, first_parameter, text_of, unwrapped, walk

_COMPARISONS = frozenset({"+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "===", "!=", "!=="})
_EQUALITIES = frozenset({"==", "===", "!=", "!=="})
_BRANCHING = frozenset({"if_statement", "ternary_expression"})
_SHOWING = frozenset({"console", "JSON", "Math"})
_CONVERTING = frozenset({"String", "Number", "Boolean", "parseInt", "parseFloat", "BigInt"})
_CONTAINERS = frozenset(
    {"pair", "object", "array", "spread_element", "parenthesized_expression", "as_expression", "satisfies_expression"}
)
_OUTCOMES = frozenset({"error", "errors", "isError", "ok", "success"})
"""Members that report the success or failure of a result."""
_BINDERS = frozenset({"variable_declarator", "required_parameter", "optional_parameter"})
_ASSIGNED = finder(
    "(assignment_expression left: (identifier) @name) (augmented_assignment_expression left: (identifier) @name)"
)
_ASSIGNMENTS = frozenset({"assignment_expression", "augmented_assignment_expression"})


_ANCHORS = frozenset(
    {
        *("identifier", "property_identifier", "this"),
        *("shorthand_property_identifier", "shorthand_property_identifier_pattern"),
    }
)
_AROUND_ANCHOR = frozenset(
    {
        *("object_pattern", "object_assignment_pattern"),
        *("parenthesized_expression", "non_null_expression", "await_expression"),
    }
)
_TOWARDS_ANCHOR = {
    "pair_pattern": "value",
    "member_expression": "property",
    "subscript_expression": "object",
    "call_expression": "function",
    "binary_expression": "left",
    "augmented_assignment_expression": "left",
    "assignment_expression": "right",
    "ternary_expression": "consequence",
}
_BOUND_TO = {
    "pair_pattern": "key",
    "variable_declarator": "value",
    "for_in_statement": "right",
    **dict.fromkeys(_ASSIGNMENTS, "right"),
}
_TOWARDS_VARIABLE = {
    "variable_declarator": "name",
    "call_expression": "function",
    **dict.fromkeys(_ASSIGNMENTS, "left"),
}
_SAME = frozenset({"parenthesized_expression", "non_null_expression"})


def anchor(expression: Node | None) -> Node | None:
    """Returns the name by which to ask the server about an expression; None for literals and type assertions."""
    while expression is not None and expression.type not in _ANCHORS:
        field = _TOWARDS_ANCHOR.get(expression.type)
        is_around = expression.type in _AROUND_ANCHOR
        expression = inside(expression) if is_around else part(expression, field) if field else None
    return expression


def receiver(name: Node) -> Node | None:
    """Returns the owner of a member name, in an expression or a pattern."""
    if is_a(name.parent, "member_expression", "subscript_expression"):
        return part(name.parent, "object")
    _, pattern = with_wrappers(name, ("object_assignment_pattern", "pair_pattern"))
    if not is_a(pattern, "object_pattern"):
        return None
    _, bound = with_wrappers(pattern, ("array_pattern", "assignment_pattern"))
    field = None if bound is None else _BOUND_TO.get(bound.type)
    return part(bound, field) if field is not None else bound and pattern


def called_on(value: Node) -> Node | None:
    """Returns the callee of an awaited call."""
    value = unwrapped(value)
    return part(unwrapped(value.named_children[0]), "function") if value.type == "await_expression" else None


def called_with(bound: Node) -> Node | None:
    """Returns the call that takes a callback, given a name bound by the callback's parameters."""
    function = enclosing(bound, FUNCTIONS)
    return function.parent.parent if function is not None and is_a(function.parent, "arguments") else None


def defines_async(name: Node) -> bool:
    """True if a name is declared as an async function that is not a generator."""
    function = part(name.parent, "value") if is_a(name.parent, "variable_declarator") else name.parent
    is_function = is_a(function, "function_declaration", "arrow_function", "function_expression")
    return is_function and any(child.type == "async" for child in function.children)


def value_at(node: Node) -> Node:
    """Returns the value of a literal's member for a diagnostic at its key; any other node unchanged."""
    return part(node.parent, "value") or node if part(node.parent, "key") == node else node


def operands(node: Node) -> Iterator[Node]:
    """Yields the values that a diagnostic about an operation may refer to, and calls and names directly in them."""
    yield node
    parent = node.parent
    yield from filter(None, (part(node, name) for name in ("left", "right", "argument", "object")))
    if node.type in ("property_identifier", "call_expression", "spread_element", "unary_expression"):
        yield from (each for each in node.named_children if each.type in ("identifier", "call_expression"))
    if is_a(parent, "spread_element", "member_expression", "subscript_expression"):
        yield part(parent, "object") or parent.named_children[0]
    if is_a(parent, "binary_expression", "switch_statement", "variable_declarator"):
        yield from parent.named_children
    if is_a(parent, "switch_case") and (switch := enclosing(parent, ("switch_statement",))) is not None:
        yield from switch.named_children[:1]


def affected(node: Node) -> Node | None:
    """Returns the program's own variable that a diagnostic is about."""
    for above in takewhile(lambda each: each.type not in FUNCTIONS, (node, *ancestors(node))):
        if (field := _TOWARDS_VARIABLE.get(above.type)) is not None:
            return root_of(part(above, field) or above)
    return root_of(node)


def binder(name: Node) -> Node | None:
    """Returns the pattern or name to annotate where a name is bound; None if no annotation is possible."""
    node, parent = next(
        ((each, above) for each, above in ascent(name) if not above.type.endswith("_pattern")), (name, None)
    )
    fields = ("name", "pattern") if is_a(parent, *_BINDERS) else ("parameter",)
    return node if node in [part(parent, field) for field in fields] else None


def annotate(edits: Edits, pattern: Node, type_: str) -> None:
    """Annotates a binding, replacing its own annotation."""
    parent = pattern.parent
    if parent is None:
        return
    if parent.type == "arrow_function":
        edits.wrap(pattern.start_byte, pattern.end_byte, b"(", f": {type_})".encode())
        return
    annotation = part(parent, "type")
    if annotation is not None and b"\n" not in (annotation.text or b""):
        edits.replace(annotation.start_byte, annotation.end_byte, f": {type_}".encode())
    elif annotation is None:
        is_definite = edits.text[pattern.end_byte : pattern.end_byte + 1] in (b"?", b"!")
        edits.insert(pattern.end_byte + is_definite, f": {type_}".encode())


def assigned_in(root: Node) -> dict[str, list[tuple[int, int]]]:
    """Returns the spans of functions that assign to variables, by variable name."""
    functions: dict[str, list[tuple[int, int]]] = {}
    for name in _ASSIGNED(root).get("name", ()):
        if (function := enclosing(name, FUNCTIONS)) is not None:
            functions.setdefault(text_of(name), []).append((function.start_byte, function.end_byte))
    return functions


def untyped_parameter(function: Node) -> Node | None:
    """Returns the pattern of a function's first parameter, unless it is annotated."""
    parameter = first_parameter(function)
    pattern = part(parameter, "pattern") or parameter
    is_plain = is_a(pattern, "identifier", "object_pattern") and part(parameter, "type") is None
    return pattern if is_plain else None


def path_after(name: Node) -> str:
    """Returns the member chain after a name: `shop.find` after `api` in `api.shop.find()`."""
    chain = takewhile(
        lambda pair: pair[1].type == "member_expression" and part(pair[1], "object") == pair[0], ascent(name)
    )
    return ".".join(text_of(part(above, "property")) for _, above in chain)


def assigned_names(root: Node) -> Iterator[tuple[str, Literal["assignment", "loop"]]]:
    """Yields names that are assigned to, with the kind of statement."""
    for node in walk(root):
        if node.type in ("assignment_expression", "for_in_statement"):
            target = part(node, "left")
            if target is not None and target.type == "identifier":
                yield text_of(target), "assignment" if node.type == "assignment_expression" else "loop"


def hedged_name(node: Node) -> str | None:
    """Returns the name of a member that the program does not rely on, as in `page.items ?? []`."""
    if node.type == "call_expression":
        if not text_of(part(node, "function")).endswith((".hasOwn", ".hasOwnProperty")):
            return None
        return next((text_of(each)[1:-1] for each in arguments_of(node)[-1:] if each.type == "string"), None)
    parent = node.parent
    if node.type != "member_expression" or parent is None:
        return None
    name = text_of(part(node, "property"))
    is_outcome = name in _OUTCOMES and (is_a(parent, "if_statement") or is_a(parent.parent, "if_statement"))
    is_hedged = is_outcome or _may_be_missing(node, parent) or _is_guarded(node) or _is_alternative(node)
    return name if is_hedged else None


def hedged_variable(node: Node) -> str | None:
    """Returns the name of a variable that the program does not rely on."""
    parent = node.parent
    if node.type != "identifier" or parent is None:
        return None
    return text_of(node) if _may_be_missing(node, parent) or _is_tested(node, parent) else None


def _may_be_missing(node: Node, parent: Node) -> bool:
    is_optional = any(child.type == "optional_chain" for child in parent.children)
    return is_optional or _has_alternative(node, parent) or is_typeof(parent)


def _has_alternative(node: Node, parent: Node) -> bool:
    """True if the parent has a fallback for a missing value, or tests for it."""
    if parent.type != "binary_expression":
        return False
    operator = parent.children[1].type
    if operator in ("??", "||"):
        others = (each for each in parent.named_children if each != node)
        return parent.named_children[0] == node or node.type == "identifier" or any(map(_takes_member, others))
    return operator in _EQUALITIES and any(text_of(each) in ("undefined", "null") for each in parent.named_children)


def _is_alternative(node: Node) -> bool:
    """True if an expression is in a fallback."""
    for below, above in ascent(node):
        if above.type in FUNCTIONS or above.type.endswith("statement"):
            break
        if above.type == "binary_expression" and above.children[1].type in ("??", "||"):
            return above.named_children[0] != below
    return False


def is_presence_test(name: Node) -> bool:
    """True if a member is only tested for presence, given its name."""
    member = name.parent
    return member is not None and member.parent is not None and _is_tested(member, member.parent)


def is_compared(name: Node) -> bool:
    """True if a member is compared with something, given its name."""
    above = None if name.parent is None else name.parent.parent
    return is_a(above, "binary_expression") and above.children[1].type != "&&"


def _is_tested(node: Node, parent: Node) -> bool:
    """True if a value is only tested for presence."""
    if parent.type == "parenthesized_expression" and parent.parent is not None:
        node, parent = parent, parent.parent
    if parent.type in ("if_statement", "while_statement", "ternary_expression"):
        return part(parent, "condition") == node
    if parent.type == "binary_expression" and parent.children[1].type in _EQUALITIES:
        return any(text_of(each) in ("true", "false") for each in parent.named_children)
    if parent.type == "binary_expression":
        return parent.children[1].type == "&&" and parent.named_children[0] == node
    return parent.type == "unary_expression" and parent.children[0].type == "!"


def _is_guarded(member: Node) -> bool:
    """True if a member is read where the same member of the same value has been tested."""
    for below, above in takewhile(lambda pair: pair[1].type not in FUNCTIONS, ascent(member)):
        is_both = above.type == "binary_expression" and above.children[1].type == "&&"
        condition = part(above, "left" if is_both else "condition")
        inside = (condition, *walk(condition)) if condition is not None and below != condition else ()
        if any(text_of(each) == text_of(member) for each in inside):
            return True
    return False


def _takes_member(node: Node) -> bool:
    node = unwrapped(node)
    if node.type == "binary_expression" and node.children[1].type in ("??", "||"):
        return any(map(_takes_member, node.named_children))
    return node.type == "member_expression"


def is_typeof(node: Node) -> bool:
    """True if an expression is a `typeof` test, which is also allowed for unbound names."""
    return node.type == "unary_expression" and node.children[0].type == "typeof" and bool(node.named_children)


def is_called(expression: Node) -> bool:
    """True if an expression is a callee, but not an optional one."""
    call = expression.parent
    is_optional = call is not None and any(child.type == "optional_chain" for child in call.children)
    return part(call, "function") == expression and not is_optional


def iterated(node: Node) -> Node | None:
    """Returns the iterable around a node, in a loop, a spread or an array pattern."""
    value, parent = with_wrappers(
        node, {"member_expression", "subscript_expression", "call_expression", "await_expression", *_SAME}
    )
    if is_a(parent, "for_in_statement"):
        return value if part(parent, "right") == value else None
    if is_a(parent, "variable_declarator") and value.type == "array_pattern":
        return part(parent, "value")
    return value if is_a(parent, "spread_element", "variable_declarator", "yield_expression") else None


def loop_over(bound: Node) -> Node | None:
    """Returns the iterable of the loop that binds a constant: `rows` in `for (const row of rows)`."""
    loop = bound.parent
    words = [text_of(part(loop, field)) for field in ("kind", "operator")]
    return part(loop, "right") if part(loop, "left") == bound and words == ["const", "of"] else None


def bound_by(name: Node) -> str | None:
    """Returns the variable that a pattern binds a member to."""
    if name.type == "shorthand_property_identifier_pattern":
        return text_of(name)
    value = part(name.parent, "value") if is_a(name.parent, "pair_pattern") else None
    return text_of(value) if is_a(value, "identifier") else None


def has_default(name: Node) -> bool:
    """True if a pattern has a default for a missing member."""
    for above in ancestors(name):
        if above.type == "object_assignment_pattern" or is_a(part(above, "value"), "assignment_pattern"):
            return True
        if above.type not in ("pair_pattern", "assignment_pattern"):
            break
    return False


def is_conditional(node: Node) -> bool:
    """True if the node is only reached under a condition."""
    return any(
        above.type == "switch_case" or (above.type in _BRANCHING and above.named_children[0] != below)
        for below, above in ascent(node)
    )


def is_on_failure(node: Node) -> bool:
    """True if the node is only reached after a failure."""
    for below, above in ascent(node):
        if above.type == "catch_clause":
            return True
        if above.type == "arguments" and below.type in FUNCTIONS:
            name = text_of(part(above.parent, "function")).rpartition(".")[2]
            if name == "catch" or (name == "then" and above.named_children[0] != below):
                return True
    return False


def is_tried(node: Node) -> bool:
    """True if an error at this node would be caught."""
    for below, above in ascent(node):
        if above.type == "try_statement" and part(above, "body") == below:
            return part(above, "handler") is not None
    return False


def is_caught(call: Node) -> bool:
    """True if the program handles the failure of a call, as a caught error or as one of several outcomes."""
    around = (text_of(part(above, "function", "property")) for above in ancestors(call))
    return is_tried(call) or not {"catch", "allSettled"}.isdisjoint(around)


def is_awaited(node: Node) -> bool:
    return is_a(with_wrappers(node, _SAME)[1], "await_expression")


def is_shown(node: Node) -> bool:
    """True if a value is used where a promise makes no sense, although the compiler accepts one."""
    node, parent = with_wrappers(node, _SAME)
    if parent is None:
        return False
    match parent.type:
        case "template_substitution":
            return True
        case "binary_expression":
            return parent.children[1].type in _COMPARISONS
        case "unary_expression":
            return parent.children[0].type in ("!", "-", "+")
        case "if_statement" | "while_statement" | "ternary_expression":
            return part(parent, "condition") == node
        case "arguments":
            return _shows(parent.parent) or _takes_apart(parent.parent)
        case "spread_element":
            return is_a(parent.parent, "object")
        case "pair" | "array" | "object":
            return _is_printed(parent)
        case _:
            return False


def _shows(call: Node | None) -> bool:
    owner = part(call, "function", "object")
    return text_of(part(call, "function")) in _CONVERTING if owner is None else text_of(owner) in _SHOWING


def _takes_apart(call: Node | None) -> bool:
    """True if a call reads the members of its argument."""
    made, owner = text_of(part(call, "constructor")), text_of(part(call, "function", "object"))
    return made in ("Date", "URL", "Map", "Set") or owner in ("Object", "Array")


def _is_printed(node: Node) -> bool:
    """True if a literal is printed. In a program's result, promises are awaited."""
    parent = node.parent
    while parent is not None and node.type in _CONTAINERS:
        if parent.type == "arguments":
            return _shows(parent.parent)
        node, parent = parent, parent.parent
    return False

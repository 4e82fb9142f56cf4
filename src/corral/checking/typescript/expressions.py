"""Queries about expressions in a TypeScript program's tree, and their context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tree_sitter import Node

from corral.checking.typescript.dynamic_members import root_of
from corral.programs.edits import Edits
from corral.programs.syntax.typescript import FUNCTIONS, finder, text_of, unwrapped, walk

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


def anchor(expression: Node) -> Node | None:
    """Returns the name by which to ask the server about an expression; None for literals and type assertions."""
    while True:
        match expression.type:
            case "identifier" | "property_identifier" | "this" | "shorthand_property_identifier":
                return expression
            case "shorthand_property_identifier_pattern":
                return expression
            case "object_pattern" | "pair_pattern" | "object_assignment_pattern":
                inner = expression.named_children[0] if expression.named_children else None
                if expression.type == "pair_pattern":
                    inner = expression.child_by_field_name("value")
            case "member_expression":
                inner = expression.child_by_field_name("property")
            case "subscript_expression":
                inner = expression.child_by_field_name("object")
            case "call_expression":
                inner = expression.child_by_field_name("function")
            case "parenthesized_expression" | "non_null_expression" | "await_expression":
                inner = expression.named_children[0] if expression.named_children else None
            case "binary_expression" | "augmented_assignment_expression":
                inner = expression.child_by_field_name("left")
            case "assignment_expression":
                inner = expression.child_by_field_name("right")
            case "ternary_expression":
                inner = expression.child_by_field_name("consequence")
            case _:
                return None
        if inner is None:
            return None
        expression = inner


def receiver(name: Node) -> Node | None:
    """Returns the owner of a member name, in an expression or a pattern."""
    parent = name.parent
    if parent is None:
        return None
    if parent.type in ("member_expression", "subscript_expression"):
        return parent.child_by_field_name("object")
    while parent is not None and parent.type in ("object_assignment_pattern", "pair_pattern"):
        parent = parent.parent
    if parent is None or parent.type != "object_pattern":
        return None
    bound = parent.parent
    while bound is not None and bound.type in ("array_pattern", "assignment_pattern"):
        bound = bound.parent
    if bound is None:
        return None
    if bound.type == "pair_pattern":
        return bound.child_by_field_name("key")
    if bound.type == "variable_declarator":
        return bound.child_by_field_name("value")
    if bound.type in _ASSIGNMENTS | {"for_in_statement"}:
        return bound.child_by_field_name("right")
    return parent


def called_on(value: Node) -> Node | None:
    """Returns the callee of an awaited call."""
    value = unwrapped(value)
    call = unwrapped(value.named_children[0]) if value.type == "await_expression" and value.named_children else None
    return None if call is None or call.type != "call_expression" else call.child_by_field_name("function")


def called_with(bound: Node) -> Node | None:
    """Returns the call that takes a callback, given a name bound by the callback's parameters."""
    node: Node | None = bound
    while node is not None and node.type not in FUNCTIONS:
        node = node.parent
    arguments = None if node is None else node.parent
    return None if arguments is None or arguments.type != "arguments" else arguments.parent


def defines_async(name: Node) -> bool:
    """True if a name is declared as an async function that is not a generator."""
    function = name.parent
    if function is not None and function.type == "variable_declarator":
        function = function.child_by_field_name("value")
    if function is None or function.type not in ("function_declaration", "arrow_function", "function_expression"):
        return False
    return any(child.type == "async" for child in function.children)


def value_at(node: Node) -> Node:
    """Returns the value of a literal's member for a diagnostic at its key; any other node unchanged."""
    parent = node.parent
    if parent is not None and parent.type == "pair" and parent.child_by_field_name("key") == node:
        return parent.child_by_field_name("value") or node
    return node


def operands(node: Node) -> Iterator[Node]:
    """Yields the values that a diagnostic about an operation may refer to, and calls and names directly below."""
    yield node
    parent = node.parent
    for name in ("left", "right", "argument", "object"):
        if (operand := node.child_by_field_name(name)) is not None:
            yield operand
    if (
        node.type in ("property_identifier", "call_expression", "spread_element", "unary_expression")
        and parent is not None
    ):
        yield from (each for each in node.named_children if each.type in ("identifier", "call_expression"))
    if parent is not None and parent.type in ("spread_element", "member_expression", "subscript_expression"):
        yield parent.child_by_field_name("object") or parent.named_children[0]
    if parent is not None and parent.type in ("binary_expression", "switch_statement", "variable_declarator"):
        yield from parent.named_children
    if parent is not None and parent.type == "switch_case" and parent.parent is not None:
        switch = parent.parent.parent
        yield from () if switch is None else switch.named_children[:1]


def affected(node: Node) -> Node | None:
    """Returns the program's own variable behind a diagnostic."""
    target: Node = node
    above: Node | None = node
    while above is not None and above.type not in FUNCTIONS:
        if above.type in _ASSIGNMENTS:
            target = above.child_by_field_name("left") or above
            break
        if above.type == "variable_declarator":
            target = above.child_by_field_name("name") or above
            break
        if above.type == "call_expression":
            target = above.child_by_field_name("function") or above
            break
        above = above.parent
    return root_of(target)


def binder(name: Node) -> Node | None:
    """Returns the pattern or name to annotate where a name is bound; None if no annotation is possible."""
    node, parent = name, name.parent
    while parent is not None and parent.type.endswith("_pattern"):
        node, parent = parent, parent.parent
    if parent is None:
        return None
    if parent.type in _BINDERS and node in (parent.child_by_field_name("name"), parent.child_by_field_name("pattern")):
        return node
    return node if parent.type == "arrow_function" and parent.child_by_field_name("parameter") == node else None


def annotate(edits: Edits, pattern: Node, type_: str) -> None:
    """Annotates a binding, replacing its own annotation."""
    parent = pattern.parent
    if parent is None:
        return
    if parent.type == "arrow_function":
        edits.wrap(pattern.start_byte, pattern.end_byte, b"(", f": {type_})".encode())
        return
    annotation = parent.child_by_field_name("type")
    if annotation is not None and b"\n" not in (annotation.text or b""):
        edits.replace(annotation.start_byte, annotation.end_byte, f": {type_}".encode())
    elif annotation is None:
        is_definite = edits.text[pattern.end_byte : pattern.end_byte + 1] in (b"?", b"!")
        edits.insert(pattern.end_byte + is_definite, f": {type_}".encode())


def assigned_in(root: Node) -> dict[str, list[tuple[int, int]]]:
    """Returns the spans of functions that assign to variables, by variable name."""
    functions: dict[str, list[tuple[int, int]]] = {}
    for name in _ASSIGNED(root).get("name", ()):
        above: Node | None = name.parent
        while above is not None and above.type not in FUNCTIONS:
            above = above.parent
        if above is not None:
            functions.setdefault(text_of(name), []).append((above.start_byte, above.end_byte))
    return functions


def first_parameter(function: Node) -> Node | None:
    """Returns a function's first parameter, unless it is annotated."""
    single = function.child_by_field_name("parameter")
    if single is not None:
        return single
    parameters = function.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters is not None else ():
        pattern = parameter.child_by_field_name("pattern")
        if pattern is not None and pattern.type in ("identifier", "object_pattern"):
            return None if parameter.child_by_field_name("type") else pattern
    return None


def path_after(name: Node) -> str:
    """Returns the member chain after a name: `shop.find` after `api` in `api.shop.find()`."""
    names: list[str] = []
    node, parent = name, name.parent
    while parent is not None and parent.type == "member_expression" and parent.child_by_field_name("object") == node:
        names.append(text_of(parent.child_by_field_name("property") or parent))
        node, parent = parent, parent.parent
    return ".".join(names)


def assigned_names(root: Node) -> Iterator[tuple[str, Literal["assignment", "loop"]]]:
    """Yields names that are assigned to, and the kind of statement."""
    for node in walk(root):
        if node.type in ("assignment_expression", "for_in_statement"):
            target = node.child_by_field_name("left")
            if target is not None and target.type == "identifier":
                yield text_of(target), "assignment" if node.type == "assignment_expression" else "loop"


def hedged_name(node: Node) -> str | None:
    """Returns the name of a member that the program does not rely on, as in `page.items ?? []`."""
    if node.type == "call_expression":
        return _presence_tested(node)
    if node.type != "member_expression":
        return None
    name = text_of(node.child_by_field_name("property") or node)
    parent = node.parent
    if parent is None:
        return None
    if _has_alternative(node, parent) or is_typeof(parent):
        return name
    if _is_guarded(node) or _is_alternative(node):
        return name
    if any(child.type == "optional_chain" for child in parent.children):
        return name
    if parent.type == "if_statement" or (parent.parent is not None and parent.parent.type == "if_statement"):
        return name if name in _OUTCOMES else None
    return None


def hedged_variable(node: Node) -> str | None:
    """Returns the name of a variable that the program does not rely on."""
    parent = node.parent
    if node.type != "identifier" or parent is None:
        return None
    is_optional = any(child.type == "optional_chain" for child in parent.children)
    is_hedged = is_optional or _has_alternative(node, parent) or is_typeof(parent) or is_tested(node, parent)
    return text_of(node) if is_hedged else None


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
    below, above = node, node.parent
    while above is not None and above.type not in FUNCTIONS and not above.type.endswith("statement"):
        if above.type == "binary_expression" and above.children[1].type in ("??", "||"):
            return above.named_children[0] != below
        below, above = above, above.parent
    return False


def is_presence_test(name: Node) -> bool:
    """True if a member is only tested for presence, given its name."""
    member = name.parent
    return member is not None and member.parent is not None and is_tested(member, member.parent)


def is_compared(name: Node) -> bool:
    """True if a member is compared with something, given its name."""
    above = None if name.parent is None else name.parent.parent
    return above is not None and above.type == "binary_expression" and above.children[1].type != "&&"


def is_tested(node: Node, parent: Node) -> bool:
    """True if a value is only tested for presence."""
    if parent.type == "parenthesized_expression" and parent.parent is not None:
        node, parent = parent, parent.parent
    if parent.type in ("if_statement", "while_statement", "ternary_expression"):
        return parent.child_by_field_name("condition") == node
    if parent.type == "binary_expression" and parent.children[1].type in _EQUALITIES:
        return any(text_of(each) in ("true", "false") for each in parent.named_children)
    if parent.type == "binary_expression":
        return parent.children[1].type == "&&" and parent.named_children[0] == node
    return parent.type == "unary_expression" and parent.children[0].type == "!"


def _presence_tested(call: Node) -> str | None:
    """Returns the name in `Object.hasOwn(value, "name")` or `value.hasOwnProperty("name")`."""
    called, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if called is None or arguments is None or not text_of(called).endswith((".hasOwn", ".hasOwnProperty")):
        return None
    last = arguments.named_children[-1] if arguments.named_children else None
    return text_of(last)[1:-1] if last is not None and last.type == "string" else None


def _is_guarded(member: Node) -> bool:
    """True if a member is read where the same member of the same value has been tested."""
    below, above = member, member.parent
    while above is not None and above.type not in FUNCTIONS:
        condition = above.child_by_field_name("condition")
        if above.type == "binary_expression" and above.children[1].type == "&&":
            condition = above.child_by_field_name("left")
        if (
            condition is not None
            and below != condition
            and any(text_of(e) == text_of(member) for e in _within(condition))
        ):
            return True
        below, above = above, above.parent
    return False


def _within(node: Node) -> Iterator[Node]:
    yield node
    for each in node.named_children:
        yield from _within(each)


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
    if call is None or call.type != "call_expression" or call.child_by_field_name("function") != expression:
        return False
    return all(child.type != "optional_chain" for child in call.children)


def iterated(node: Node) -> Node | None:
    """Returns the iterable around a node, in a loop, a spread or an array pattern."""
    value, parent = node, node.parent
    while parent is not None and parent.type in (
        "member_expression",
        "subscript_expression",
        "call_expression",
        "await_expression",
        "parenthesized_expression",
        "non_null_expression",
    ):
        value, parent = parent, parent.parent
    if parent is None:
        return None
    if parent.type == "for_in_statement":
        return value if parent.child_by_field_name("right") == value else None
    if parent.type == "variable_declarator" and value.type == "array_pattern":
        return parent.child_by_field_name("value")
    return value if parent.type in ("spread_element", "variable_declarator", "yield_expression") else None


def loop_over(bound: Node) -> Node | None:
    """Returns the iterable of the loop that binds a constant: `rows` in `for (const row of rows)`."""
    loop = bound.parent
    if loop is None or loop.type != "for_in_statement" or loop.child_by_field_name("left") != bound:
        return None
    words = [text_of(loop.child_by_field_name(field)) for field in ("kind", "operator")]
    return loop.child_by_field_name("right") if words == ["const", "of"] else None


def bound_by(name: Node) -> str | None:
    """Returns the variable that a pattern binds a member to."""
    if name.type == "shorthand_property_identifier_pattern":
        return text_of(name)
    parent = name.parent
    value = None if parent is None or parent.type != "pair_pattern" else parent.child_by_field_name("value")
    return text_of(value) if value is not None and value.type == "identifier" else None


def has_default(name: Node) -> bool:
    """True if a pattern has a default for a missing member."""
    parent = name.parent
    while parent is not None and parent.type in ("pair_pattern", "assignment_pattern", "object_assignment_pattern"):
        if parent.type == "object_assignment_pattern":
            return True
        value = parent.child_by_field_name("value")
        if value is not None and value.type == "assignment_pattern":
            return True
        parent = parent.parent
    return False


def is_conditional(node: Node) -> bool:
    """True if the node is only reached under a condition."""
    return any(
        above.type == "switch_case" or (above.type in _BRANCHING and above.named_children[0] != below)
        for below, above in _ascent(node)
    )


def is_on_failure(node: Node) -> bool:
    """True if the node is only reached after a failure."""
    for below, above in _ascent(node):
        if above.type == "catch_clause":
            return True
        if above.type == "arguments" and below.type in FUNCTIONS and above.parent is not None:
            name = text_of(above.parent.child_by_field_name("function") or above).rpartition(".")[2]
            if name == "catch" or (name == "then" and above.named_children[0] != below):
                return True
    return False


def is_tried(node: Node) -> bool:
    """True if an error there would be caught."""
    for below, above in _ascent(node):
        if above.type == "try_statement" and above.child_by_field_name("body") == below:
            return above.child_by_field_name("handler") is not None
    return False


def is_caught(call: Node) -> bool:
    """True if the program handles the failure of a call, as a caught error or as one of several outcomes."""
    if is_tried(call):
        return True
    for _, above in _ascent(call):
        called = above.child_by_field_name("function") if above.type == "call_expression" else None
        name = None if called is None else called.child_by_field_name("property")
        if name is not None and text_of(name) in ("catch", "allSettled"):
            return True
    return False


def _ascent(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yields pairs of child and parent, from a node outwards."""
    above = node.parent
    while above is not None:
        yield node, above
        node, above = above, above.parent


def is_awaited(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type in ("parenthesized_expression", "non_null_expression"):
        parent = parent.parent
    return parent is not None and parent.type == "await_expression"


def is_shown(node: Node) -> bool:
    """True if a value is used where a promise makes no sense, although the compiler accepts one."""
    parent = node.parent
    while parent is not None and parent.type in ("parenthesized_expression", "non_null_expression"):
        node, parent = parent, parent.parent
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
            return parent.child_by_field_name("condition") == node
        case "arguments":
            return _shows(parent.parent) or _takes_apart(parent.parent)
        case "spread_element":
            return parent.parent is not None and parent.parent.type == "object"
        case "pair" | "array" | "object":
            return _is_printed(parent)
        case _:
            return False


def _shows(call: Node | None) -> bool:
    called = None if call is None else call.child_by_field_name("function")
    if called is None:
        return False
    if called.type == "member_expression":
        return text_of(called.child_by_field_name("object") or called) in _SHOWING
    return called.type == "identifier" and text_of(called) in _CONVERTING


def _takes_apart(call: Node | None) -> bool:
    """True if a call reads the members of its argument."""
    if call is None:
        return False
    made = call.child_by_field_name("constructor")
    return text_of(made) in ("Date", "URL", "Map", "Set") if made is not None else _owner(call) in ("Object", "Array")


def _owner(call: Node) -> str:
    called = call.child_by_field_name("function")
    owner = None if called is None else called.child_by_field_name("object")
    return "" if owner is None else text_of(owner)


def _is_printed(node: Node) -> bool:
    """True if a literal is printed. In a program's result, promises are awaited."""
    parent = node.parent
    while parent is not None and node.type in _CONTAINERS:
        if parent.type == "arguments":
            return _shows(parent.parent)
        node, parent = parent, parent.parent
    return False

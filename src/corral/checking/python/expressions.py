"""Queries about expressions in a Python program's tree, and their context."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from corral.programs.python.awaits import FUTURES, ITERATING, awaits, unwrap
from corral.programs.syntax.parsing import ancestors, arguments_of, ascent, enclosing, is_a, part, text_of

_PROBING = re.compile(rb"\b(?:KeyError|LookupError|AttributeError|TypeError)\b")
_ANY_ERROR = re.compile(rb"except(?: (?:Exception|BaseException)\b.*)?$")
_KEY_TYPE = re.compile(r"with key of type `(?:Literal\[(?P<key>.*?)\]|slice\[.*?)` on object of type `")
TAKING_VALUES = frozenset(
    {"len", "sorted", "sum", "min", "max", "dict", "zip", "enumerate", "list", "set", "json.dumps"}
)
_ITERATING = ITERATING | {"any", "all", "next", "iter"}
_LITERALS = frozenset(
    {
        *("pair", "dictionary", "list", "tuple", "parenthesized_expression", "expression_list"),
        *("list_comprehension", "dictionary_comprehension"),
    }
)


def anchor(expression: Node | None) -> Node | None:
    """Returns the name by which to ask the server about an expression."""
    return expression if expression is not None and expression.type == "identifier" else part(expression, "attribute")


def operands(node: Node) -> list[Node]:
    """Returns the values that a diagnostic about an operation may refer to."""
    fields = map(node.child_by_field_name, ("value", "object", "left", "right", "argument"))
    waiting = [node, *(operand for operand in fields if operand is not None)]
    if node.parent is not None and node.parent.type in ("attribute", "subscript", "keyword_argument"):
        waiting += [node.parent, *node.parent.named_children]
    below = [child for each in waiting for child in each.named_children if child.type in ("call", "identifier")]
    return [*waiting, *below]


def call_around(node: Node) -> Node | None:
    """Returns the innermost call that is the node or has it as an argument."""
    below, above = node, node.parent
    if node.type == "call":
        return node
    while above is not None and above.type not in ("lambda", "function_definition"):
        if above.type == "call":
            return above if below.type == "argument_list" or part(above, "function") == below else None
        below, above = above, above.parent
    return None


def async_generator(node: Node) -> Node | None:
    """Returns the generator expression with `await` in a loop or in a call that iterates over its arguments."""
    call = call_around(node)
    candidates = arguments_of(call) if text_of(part(call, "function")) in _ITERATING else []
    generators = (each for each in (node, *candidates) if each.type == "generator_expression" and awaits(each))
    return next(generators, None)


def gathered_list(node: Node) -> Node | None:
    """Returns the function of a `gather` call whose only argument is a list of awaitables."""
    call = call_around(node)
    function = part(call, "function")
    if text_of(function) not in FUTURES or "gather" not in text_of(function):
        return None
    kinds = [each.type for each in arguments_of(call)]
    return function if kinds in (["list"], ["list_comprehension"], ["generator_expression"]) else None


def iterable_of(bound: Node) -> Node | None:
    """Returns the iterable of the loop, or of `sorted` and similar functions, that binds a name to its items."""
    loop, value = bound.parent, bound
    if is_a(loop, "pattern_list", "tuple_pattern") and loop.named_children[1:] == [bound]:
        loop, value = loop.parent, loop  # `for number, each in enumerate(...)`
    if is_a(loop, "lambda_parameters"):
        return _mapped(loop.parent) if loop.named_children == [bound] else None
    if not is_a(loop, "for_statement", "for_in_clause") or part(loop, "left") != value:
        return None
    right = part(loop, "right")
    if value == bound:
        return right
    return next(iter(arguments_of(right)), None) if text_of(part(right, "function")) == "enumerate" else None


def _mapped(function: Node | None) -> Node | None:
    """Returns the iterable whose items are passed to a lambda."""
    call = enclosing(function, ("call",))
    passed, name = arguments_of(call), text_of(part(call, "function"))
    above = None if function is None else function.parent
    if is_a(above, "keyword_argument") and above in passed:
        return passed[0] if text_of(part(above, "name")) == "key" and name in ("sorted", "min", "max") else None
    return passed[1] if name in ("map", "filter") and passed[:1] == [function] and len(passed) == 2 else None


def own_classes(root: Node) -> frozenset[str]:
    """Returns the names that top-level statements define or assign."""
    names: set[str] = set()
    for statement in root.named_children:
        name = part(statement, "name")
        inner = statement.named_children[0] if statement.named_children else None
        if name is not None:
            names.add(text_of(name))
        elif inner is not None and inner.type == "assignment":
            names.add(text_of(part(inner, "left") or inner))
    return frozenset(names)


def is_result(owner: Node) -> bool:
    """True if the literal around a value is the program's result."""
    if owner.type == "assignment":
        return is_a(owner.parent, "expression_statement") and _is_last(owner.parent)
    if owner.type not in _LITERALS:
        return False
    node = next(each for each in ancestors(owner) if each.type not in _LITERALS)
    statement = node if node.type == "expression_statement" else node.parent
    is_return = is_a(statement, "return_statement") and is_a(statement.parent, "module")
    return is_return or (statement is not None and _is_last(statement))


def _is_last(statement: Node) -> bool:
    """True for the last statement of the module."""
    module = statement.parent
    return (
        is_a(module, "module") and statement == [each for each in module.named_children if each.type != "comment"][-1]
    )


def takes_apart(value: Node, owner: Node) -> bool:
    """True if a value's items are read, which fails for tasks and futures."""
    if owner.type in ("subscript", "for_statement", "for_in_clause"):
        field = "value" if owner.type == "subscript" else "right"
        return part(owner, field) == value and owner.children[0].type != "async"
    call = owner.parent if owner.type == "argument_list" else None
    return call is not None and text_of(part(call, "function")) in TAKING_VALUES


def is_tried(node: Node) -> bool:
    """True if an error at this node would be caught."""
    return next(_tries_around(node), None) is not None


def is_caught(call: Node) -> bool:
    """True if the program handles the failure of a call, as a caught error or as one of several outcomes."""
    return is_tried(call) or any(
        (above.type == "with_statement" and "suppress(" in text_of(above).partition(":")[0])
        or any(text_of(part(each, "name")) == "return_exceptions" for each in arguments_of(above))
        for above in ancestors(call)
    )


def is_probed(node: Node) -> bool:
    """True if the program handles a missing member there."""
    for each in _tries_around(node):
        clauses = (child for child in each.named_children if child.type == "except_clause")
        body = part(each, "body")
        is_small = body is not None and len(body.named_children) == 1
        heads = [(clause.text or b"").partition(b":")[0].strip() for clause in clauses]
        if any(_PROBING.search(head) or (is_small and _ANY_ERROR.match(head)) for head in heads):
            return True
    around = (each.text or b"" for each in ancestors(node) if each.type == "with_statement")
    return any(_PROBING.search(each.partition(b":")[0]) for each in around)


def _tries_around(node: Node) -> Iterator[Node]:
    return (above for below, above in ascent(node) if above.type == "try_statement" and part(above, "body") == below)


def path_from(name: Node) -> list[str]:
    """Returns a name and the attributes read from it."""
    path = [text_of(name)]
    for below, above in ascent(name):
        if part(above, "object") != below:
            break
        path.append(text_of(part(above, "attribute")))
    return path[:4]


def subscript_in(node: Node, message: str) -> tuple[Node | None, Node | None]:
    """Returns the subscript that a diagnostic about a key refers to, and its key."""
    key_type = _KEY_TYPE.search(message)
    inside = [node, unwrap(node)[1], *node.named_children]
    taken = [each for each in inside if each is not None and each.type == "subscript"]
    keys = [(each, each.children_by_field_name("subscript")) for each in taken]
    single = [(each, key[0]) for each, key in keys if len(key) == 1]
    if key_type is None:
        single = [pair for pair in single if pair[1].type == "string"]
    elif key_type["key"] is None:
        single = [pair for pair in single if pair[1].type == "slice"]
    else:
        plain = key_type["key"].strip("\"'")
        single = [pair for pair in single if text_of(pair[1]).strip("\"'") == plain]
    return single[0] if single else (None, None)


def aggregated(node: Node) -> tuple[Node, str] | None:
    """Returns the operand of the `sum(...)` or `text.join(...)` around a node, and the function; `[]` marks a list."""
    call = node
    while call.type != "call":
        if call.parent is None or call.parent.end_byte > node.end_byte:
            return None
        call = call.parent
    method = part(call, "function", "attribute")
    name, items = text_of(method or part(call, "function")), arguments_of(call)
    if name != ("sum" if method is None else "join") or len(items) != 1:
        return None
    if items[0].type in ("identifier", "await", "subscript"):
        return items[0], f"{name}[]"
    body = part(items[0], "body") if items[0].type in ("generator_expression", "list_comprehension") else None
    return None if body is None else (body, name)

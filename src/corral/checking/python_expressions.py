"""What the rules for Python ask of a program's tree: what an expression stands for, and what is around it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from corral.programs.python.grammar import text_of

__all__ = [
    "anchor",
    "call_around",
    "holds_other_texts",
    "is_annotation",
    "is_probed",
    "is_result",
    "is_tried",
    "literal_in",
    "openly_written",
    "operands",
    "own_classes",
    "path_to",
    "written_keys",
]

_PROBING = re.compile(rb"\b(?:KeyError|LookupError|AttributeError|TypeError)\b")
_ANY_ERROR = re.compile(rb"except(?: (?:Exception|BaseException)\b.*)?$")
_LITERALS = frozenset(
    {
        *("pair", "dictionary", "list", "tuple", "parenthesized_expression", "expression_list"),
        *("list_comprehension", "dictionary_comprehension"),
    }
)


def anchor(expression: Node) -> Node | None:
    """The name in an expression by which a server is asked about it."""
    if expression.type == "attribute":
        return expression.child_by_field_name("attribute")
    return expression if expression.type == "identifier" else None


def operands(node: Node) -> list[Node]:
    """The values that a remark on an operation may be about."""
    fields = map(node.child_by_field_name, ("value", "object", "left", "right", "argument"))
    waiting = [node, *(operand for operand in fields if operand is not None)]
    if node.parent is not None and node.parent.type in ("attribute", "subscript", "keyword_argument"):
        waiting += [node.parent, *node.parent.named_children]
    below = [child for each in waiting for child in each.named_children if child.type in ("call", "identifier")]
    return [*waiting, *below]


def call_around(node: Node) -> Node | None:
    """The innermost call that something is, or is an argument of."""
    below, above = node, node.parent
    if node.type == "call":
        return node
    while above is not None and above.type not in ("lambda", "function_definition"):
        if above.type == "call":
            return above if below.type == "argument_list" or above.child_by_field_name("function") == below else None
        below, above = above, above.parent
    return None


def literal_in(node: Node) -> Node | None:
    """The dictionary that is written out where a remark about one of its members, or all of it, stands."""
    if node.type == "dictionary":
        return node
    above = node.parent
    while above is not None and above.type in ("string", "pair", "dictionary"):
        if above.type == "dictionary":
            return above
        above = above.parent
    return None


def path_to(literal: Node) -> tuple[Node, list[str | None]] | None:
    """The call in whose arguments a literal is written out, and the way to it."""
    way: list[str | None] = []
    node, above = literal, literal.parent
    while above is not None:
        if above.type == "pair":
            if above.child_by_field_name("value") != node:
                return None
            way.append(text_of(above.child_by_field_name("key") or above).strip("\"'"))
            above = above.parent
        elif above.type == "list":
            way.append(None)
        elif above.type == "list_comprehension":
            if above.child_by_field_name("body") != node:
                return None
            way.append(None)
        elif above.type == "keyword_argument":
            way.append(text_of(above.child_by_field_name("name") or above))
        elif above.type == "argument_list":
            return None if above.parent is None else (above.parent, way[::-1])
        elif above.type != "parenthesized_expression":
            return None
        if above is None:
            return None
        node, above = above, above.parent
    return None


def holds_other_texts(given: Node, wanted: str) -> bool:
    """Whether a list has a text written out in it that is none of those which a list of literals may hold."""
    allowed = re.findall(r"list\[Literal\[(.*?)\]\]", wanted)
    texts = [text_of(each).strip("\"'") for each in given.named_children if each.type == "string"]
    return bool(allowed) and any(f'"{each}"' not in allowed[0] for each in texts)


def written_keys(root: Node) -> set[str]:
    """The keys that a program sets somewhere."""
    keys: set[str] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if node.type == "subscript" and node.parent is not None and _is_target(node):
            keys |= {text_of(each).strip("\"'") for each in node.children_by_field_name("subscript")}
        elif node.type == "call":
            function = node.child_by_field_name("function")
            if function is not None and text_of(function).endswith((".update", ".setdefault", ".pop")):
                arguments = node.child_by_field_name("arguments")
                keys |= _named_in(arguments) if arguments is not None else set()
    return keys


def openly_written(root: Node) -> Iterator[Node]:
    """What keys are added to that are not written out."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if node.type == "subscript" and node.parent is not None and _is_target(node):
            keys = node.children_by_field_name("subscript")
            value = node.child_by_field_name("value")
            if value is not None and any(each.type not in ("string", "integer", "slice") for each in keys):
                yield value
        elif node.type == "call":
            function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if function is not None and function.type == "attribute" and text_of(function).endswith(".update"):
                owner = function.child_by_field_name("object")
                given = [] if arguments is None else arguments.named_children
                if owner is not None and any(each.type not in ("dictionary", "keyword_argument") for each in given):
                    yield owner
        elif node.type == "augmented_assignment":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None and "|" in text_of(node.child_by_field_name("operator") or node):
                yield left


def _is_target(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type in ("pattern_list", "tuple_pattern", "expression_list"):
        node, parent = parent, parent.parent
    if parent is None:
        return False
    if parent.type in ("assignment", "augmented_assignment", "for_statement"):
        return parent.child_by_field_name("left") == node
    return parent.type == "delete_statement"


def _named_in(arguments: Node) -> set[str]:
    """The texts and keywords among arguments, and the keys of dicts there."""
    names: set[str] = set()
    for each in arguments.named_children:
        if each.type == "string":
            names.add(text_of(each).strip("\"'"))
        elif each.type == "keyword_argument":
            names.add(text_of(each.child_by_field_name("name") or each))
        elif each.type == "dictionary":
            pairs = (pair.child_by_field_name("key") for pair in each.named_children)
            names |= {text_of(key).strip("\"'") for key in pairs if key is not None}
    return names


def own_classes(root: Node) -> frozenset[str]:
    """The names that statements of the module bind to classes, or to anything."""
    names: set[str] = set()
    for statement in root.named_children:
        name = statement.child_by_field_name("name")
        inner = statement.named_children[0] if statement.named_children else None
        if name is not None:
            names.add(text_of(name))
        elif inner is not None and inner.type == "assignment":
            names.add(text_of(inner.child_by_field_name("left") or inner))
    return frozenset(names)


def is_result(owner: Node) -> bool:
    """Whether a literal, in which a value stands, is what the program ends with."""
    node = owner
    if node.type == "assignment" and node.parent is not None:
        return node.parent.type == "expression_statement" and node.parent == _last_statement(node.parent)
    if node.type not in _LITERALS:
        return False
    while node.type in _LITERALS and node.parent is not None:
        node = node.parent
    statement = node if node.type == "expression_statement" else node.parent
    if statement is None or statement.parent is None or statement.parent.type != "module":
        return False
    return statement.type == "return_statement" or statement == _last_statement(statement)


def _last_statement(statement: Node) -> Node | None:
    """The last statement of the module, if this is one of its own."""
    module = statement.parent
    if module is None or module.type != "module":
        return None
    return [each for each in module.named_children if each.type != "comment"][-1]


def is_annotation(node: Node) -> bool:
    above = node.parent
    while above is not None and above.type not in ("block", "module"):
        if above.type == "type":
            return True
        above = above.parent
    return False


def is_tried(node: Node) -> bool:
    """Whether an error there would be caught."""
    return next(_tries_around(node), None) is not None


def is_probed(node: Node) -> bool:
    """Whether the program expects that what it takes there may be missing."""
    for each in _tries_around(node):
        clauses = (child for child in each.named_children if child.type == "except_clause")
        body = each.child_by_field_name("body")
        is_small = body is not None and len(body.named_children) == 1
        heads = [(clause.text or b"").partition(b":")[0].strip() for clause in clauses]
        if any(_PROBING.search(head) or (is_small and _ANY_ERROR.match(head)) for head in heads):
            return True
    above = node.parent
    while above is not None:
        if above.type == "with_statement" and _PROBING.search((above.text or b"").partition(b":")[0]):
            return True
        above = above.parent
    return False


def _tries_around(node: Node) -> Iterator[Node]:
    below, above = node, node.parent
    while above is not None:
        if above.type == "try_statement" and above.child_by_field_name("body") == below:
            yield above
        below, above = above, above.parent

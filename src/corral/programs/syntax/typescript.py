"""The TypeScript grammar, and queries on its trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import tree_sitter_typescript
from tree_sitter import Language, Node, Tree

from corral.programs.syntax.parsing import finder_in, is_a, kind_id_in, parse_by, part, text_of, without_wrappers

_LANGUAGE = Language(tree_sitter_typescript.language_typescript())
_LANGUAGE_WITH_JSX = Language(tree_sitter_typescript.language_tsx())
finder = partial(finder_in, _LANGUAGE)
kind_id = partial(kind_id_in, _LANGUAGE)
_JSX = frozenset({"jsx_element", "jsx_self_closing_element"})
_VARIANCE = re.compile(rb"(?<=[<,])(\s*)(in|out|in(\s+)out)(?=\s+[\w$]+\s*(?:[,>=]|extends\s))")
_ACCESSOR = re.compile(rb"(?<![\w$.])accessor(?=[ \t]+(?!(?:in|instanceof|as|satisfies|of)[^\w$])[\w$#\"'\[])")
"""`accessor` before a name, where it is always a field modifier."""
_VISIBLE = re.compile(rb"\S")

MAX_DEPTH = 700
"""Maximum depth of a syntax tree. V8 accepts at least 1,000 levels of any construct."""

ENTRY_NAMES = ("main", "run", "execute", "handler", "handle", "solve", "program", "start", "entry", "task")
"""Names that models give a program's main function, most likely first."""

FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "generator_function"})
"""Expressions that are functions."""

DECLARED_FUNCTIONS = frozenset({"function_declaration", "generator_function_declaration"})
FUNCTIONS = FUNCTION_VALUES | DECLARED_FUNCTIONS | {"method_definition", "class_static_block"}
"""Nodes with their own body for `return` and `await`."""

CLASSES = frozenset({"class_declaration", "abstract_class_declaration"})
NAMESPACES = frozenset({"internal_module", "module"})
VARIABLES = frozenset({"lexical_declaration", "variable_declaration"})
_DECLARED = CLASSES | DECLARED_FUNCTIONS | NAMESPACES | {"enum_declaration"}
_WRAPPERS = frozenset({"parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression"})
_BINDINGS = frozenset({"identifier", "shorthand_property_identifier_pattern"})
_BOUND_FIELD = {"object_assignment_pattern": "left", "assignment_pattern": "left", "pair_pattern": "value"}
_NOT_STATEMENTS = frozenset({"comment", "html_comment", "hash_bang_line"})


def parse(text: bytes) -> Tree:
    """Returns the syntax tree of a text, with error nodes where it is not TypeScript. Raises TooLongToParse.

    Two constructs that the grammar lacks are hidden from it: `in` and `out` of type parameters are blanked, and
    `accessor` becomes `readonly`, which has the same length and is allowed in the same places.
    """
    shown = _ACCESSOR.sub(b"readonly", text) if b"accessor" in text else text
    if b"in" in text or b"out" in text:
        shown = _VARIANCE.sub(lambda modifier: _VISIBLE.sub(b" ", modifier[0]), shown)
    return parse_by(_LANGUAGE, shown)


def first_jsx(text: bytes) -> Node | None:
    """Returns the first JSX element in a text that is valid TypeScript with JSX."""
    root = parse_by(_LANGUAGE_WITH_JSX, text).root_node
    return None if root.has_error else next((each for each in walk(root) if each.type in _JSX), None)


def child_of_type(node: Node, *types: str) -> Node | None:
    """Returns the first direct child of one of these types."""
    return next((child for child in node.children if child.type in types), None)


def statements(node: Node) -> list[Node]:
    """Returns the statements directly in a program or block."""
    return [child for child in node.named_children if child.type not in _NOT_STATEMENTS]


def declaration_of(statement: Node) -> Node:
    """Returns the declaration in an export statement, or the statement itself."""
    exported = part(statement, "declaration") if statement.type == "export_statement" else None
    return exported or statement


def unwrapped(expression: Node) -> Node:
    """Returns the expression without the parentheses and type assertions around it."""
    return without_wrappers(expression, _WRAPPERS)


def destructures(function: Node | None) -> bool:
    """True if a function destructures its first argument, and so needs a plain object."""
    return is_a(part(first_parameter(function), "pattern"), "object_pattern")


def first_parameter(function: Node | None) -> Node | None:
    """Returns a function's first parameter besides `this`."""
    single, parameters = part(function, "parameter"), part(function, "parameters")
    listed = parameters.named_children if parameters is not None else []
    known = (each for each in listed if each.type in ("required_parameter", "optional_parameter"))
    return single or next((each for each in known if each.children[0].type != "this"), None)


def bound_names(pattern: Node) -> list[str]:
    """Returns the variables that a pattern declares, in order."""
    names: list[str] = []
    pending = [pattern]
    while pending:
        node = pending.pop()
        if node.type in _BINDINGS:
            names.append(text_of(node))
        elif (field := _BOUND_FIELD.get(node.type)) is not None:
            bound = part(node, field)
            pending += [bound] if bound is not None else []
        else:
            pending += reversed(node.named_children)
    return names


def declared_names(declaration: Node) -> list[str]:
    if declaration.type == "expression_statement":
        declaration = declaration.children[0]
    if declaration.type in VARIABLES:
        patterns = [part(each, "name") for each in declaration.named_children]
        return [name for pattern in patterns if pattern is not None for name in bound_names(pattern)]
    if declaration.type == "import_alias":
        return [text_of(declaration.named_children[0])]
    name = part(declaration, "name") if declaration.type in _DECLARED else None
    return ["".join(text_of(name).split()).partition(".")[0]] if name is not None else []


def imported_names(clause: Node) -> list[str]:
    """Returns the variables that an import declares, without types."""
    names: list[str] = []
    for each in walk(clause):
        if each.type == "import_specifier":
            if each.children[0].type != "type":
                name = part(each, "alias") or part(each, "name")
                names += [text_of(name)] if name is not None else []
        elif each.type == "identifier" and each.parent is not None and each.parent.type != "import_specifier":
            names.append(text_of(each))
    return names


def walk(root: Node, *, into_functions: bool = True) -> Iterator[Node]:
    """Yields every node under `root` in source order, without recursion."""
    cursor = root.walk()
    descend = True
    while True:
        if not (descend and cursor.goto_first_child()):
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return
        node = cursor.node
        if node is None:
            return
        yield node
        descend = into_functions or node.type not in FUNCTIONS

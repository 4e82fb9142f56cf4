"""Makes the top-level variables of a notebook's cell globals, which later cells and closures share.

Strict code cannot assign to a name that does not exist, so the cell's script declares them with `var`, which can be
repeated.
"""

from __future__ import annotations

from typing import NamedTuple

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import (
    CLASSES,
    DECLARED_FUNCTIONS,
    NAMESPACES,
    VARIABLES,
    child_of_type,
    declaration_of,
    declared_names,
    imported_names,
    statements,
    text_of,
)
from corral.programs.typescript.names import Names


class Shared(NamedTuple):
    """Additions to a cell's code."""

    names: tuple[str, ...]
    script: str
    """Code before the function that is the cell."""
    first: str
    """Code before its first statement."""


def share_variables(root: Node, edits: Edits, names: Names) -> Shared:
    """Adds the edits that turn declarations into assignments to globals."""
    bound: dict[str, None] = {}
    functions: dict[str, Node] = {}
    for statement in statements(root):
        declaration = declaration_of(statement)
        own = declared_names(declaration)
        if declaration.type in VARIABLES:
            _assign(declaration, edits)
        elif declaration.type in CLASSES:
            edits.wrap(statement.start_byte, statement.end_byte, f";{own[0]} = ".encode(), b";")
        elif declaration.type in DECLARED_FUNCTIONS:
            if (before := functions.pop(own[0], None)) is not None:
                edits.blank(before.start_byte, before.end_byte, first=b";")
            functions[own[0]] = declaration
        elif declaration.type == "import_statement":
            clause = child_of_type(declaration, "import_clause")
            is_of_types = clause is None or child_of_type(declaration, "type") is not None
            own = [] if clause is None or is_of_types else imported_names(clause)
            _copy(statement, own, edits)
        elif own and (declaration.type == "enum_declaration" or _is_namespace(declaration)):
            _copy(statement, own, edits)  # merged by the code that makes them
        else:
            own = []
        bound.update(dict.fromkeys(own))
    first = ""
    for name, declaration in functions.items():
        word = part(declaration, "name") or declaration
        edits.replace(word.start_byte, word.end_byte, f"{name}{names.local}".encode())
        first += f'{name} = Object.defineProperty({name}{names.local}, "name", {{ value: "{name}" }}); '
    script = f"var {', '.join(bound)}; " if bound else ""
    return Shared(tuple(bound), script, first)


def _assign(declaration: Node, edits: Edits) -> None:
    """`const x = 1, y` becomes `(x = 1, y = void 0)`."""
    word = declaration.children[0]
    declarators = [each for each in declaration.named_children if each.type == "variable_declarator"]
    if not declarators:
        return
    edits.replace(word.start_byte, word.end_byte, b";".ljust(word.end_byte - word.start_byte))
    for each in declarators:
        if part(each, "value") is None:
            edits.wrap(each.start_byte, each.end_byte, b"", b" = void 0")
    edits.wrap(declarators[0].start_byte, declarators[-1].end_byte, b"(", b")")


def _copy(statement: Node, own: list[str], edits: Edits) -> None:
    """Copies variables that stay local to globals. Some that are imported are types, which do not exist."""
    code = "".join(f' if (typeof {name} !== "undefined") globalThis.{name} = {name};' for name in own)
    if code:
        edits.wrap(statement.start_byte, statement.end_byte, b"", f";{code}".encode())


def _is_namespace(declaration: Node) -> bool:
    inner = declaration.children[0] if declaration.type == "expression_statement" else declaration
    return inner.type in NAMESPACES and text_of(part(inner, "name"))[:1] not in ('"', "'")

"""Lets a name be declared again, as several fences of one answer do: the last declaration wins.

Constants become variables, and of several functions with one name only the last is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.syntax.typescript import (
    bound_names,
    child_of_type,
    declaration_of,
    imported_names,
    statements,
    text_of,
)

_FUNCTIONS = frozenset({"function_declaration", "generator_function_declaration"})
_CLASSES = frozenset({"class_declaration", "abstract_class_declaration"})


def redeclare(root: Node, blocks: tuple[int, ...], edits: Edits) -> frozenset[int]:
    """Adds the edits that allow a name to be declared again at the top level.

    Functions may share a name anywhere, other declarations only across `blocks`, the lines where blocks begin.
    Returns the offsets of the imports that must become variables.
    """
    declared: defaultdict[str, list[Node]] = defaultdict(list)
    for statement in statements(root):
        declaration = declaration_of(statement)
        for name in _declared_names(declaration):
            declared[name].append(declaration)
    imports: set[int] = set()
    for found in declared.values():
        if len(found) == 1:
            continue
        if all(each.type in _FUNCTIONS for each in found):
            for each in found[:-1]:
                edits.blank(each.start_byte, each.end_byte, first=b";")
        elif len({bisect_right(blocks, each.start_point.row) for each in found}) > 1:
            for each in found:
                _as_variable(each, edits)
                if each.type == "import_statement":
                    imports.add(each.start_byte)
    return frozenset(imports)


def _as_variable(declaration: Node, edits: Edits) -> None:
    if declaration.type == "lexical_declaration":
        word = declaration.children[0]
        edits.replace(word.start_byte, word.end_byte, b"var".ljust(word.end_byte - word.start_byte))
    elif declaration.type in _FUNCTIONS | _CLASSES:
        name = text_of(declaration.child_by_field_name("name") or declaration)
        edits.wrap(declaration.start_byte, declaration.end_byte, f"var {name} = ".encode(), b";")


def _declared_names(declaration: Node) -> list[str]:
    if declaration.type in _FUNCTIONS | _CLASSES:
        name = declaration.child_by_field_name("name")
        return [text_of(name)] if name is not None else []
    if declaration.type in ("lexical_declaration", "variable_declaration"):
        patterns = [each.child_by_field_name("name") for each in declaration.named_children]
        return [name for pattern in patterns if pattern is not None for name in bound_names(pattern)]
    if declaration.type == "import_statement":
        clause = child_of_type(declaration, "import_clause")
        return imported_names(clause) if clause is not None and child_of_type(declaration, "type") is None else []
    return []

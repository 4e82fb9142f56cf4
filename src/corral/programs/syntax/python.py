"""The Python grammar, and queries on its trees."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import tree_sitter_python
from tree_sitter import Language, Node, Tree

from corral.programs.syntax.parsing import finder_in, kind_id_in, parse_by, without_wrappers

_LANGUAGE = Language(tree_sitter_python.language())
finder = partial(finder_in, _LANGUAGE)
kind_id = partial(kind_id_in, _LANGUAGE)

FUNCTIONS = frozenset({"function_definition", "lambda", "class_definition"})
"""Nodes with their own scope for `return` and names."""

STRINGS = frozenset({"string", "concatenated_string"})

_CLAUSES = frozenset(
    {"elif_clause", "else_clause", "except_clause", "except_group_clause", "finally_clause", "case_clause"}
)


def parse(text: bytes) -> Tree:
    """Returns the syntax tree of a text, with error nodes where it is not Python. Raises TooLongToParse."""
    return parse_by(_LANGUAGE, text)


def statements(block: Node) -> list[Node]:
    """Returns the statements directly in a module or block."""
    return [child for child in block.named_children if child.type != "comment"]


def unwrapped(expression: Node) -> Node:
    """Returns the expression without the parentheses around it."""
    return without_wrappers(expression, ("parenthesized_expression",))


def is_async(node: Node) -> bool:
    """True if a definition, loop or `with` begins with `async`."""
    return bool(node.children) and node.children[0].type == "async"


def blocks_of(statement: Node) -> Iterator[Node]:
    """Yields the blocks of a compound statement and its clauses that run in place."""
    if statement.type in FUNCTIONS or statement.type == "decorated_definition":
        return
    pending = [statement]
    while pending:
        for child in pending.pop().children:
            if child.type == "block":
                yield child
                if statement.type == "match_statement":
                    pending.append(child)
            elif child.type in _CLAUSES:
                pending.append(child)

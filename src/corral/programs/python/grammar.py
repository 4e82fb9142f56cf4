"""The Python grammar, and what the other modules ask of its trees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Point, Query, QueryCursor, Tree

from corral.errors import ProgramRejected

__all__ = [
    "FUNCTIONS",
    "STRINGS",
    "Parsing",
    "blocks_of",
    "finder",
    "is_async",
    "kind_id",
    "statements",
    "text_of",
    "unwrapped",
]

_LANGUAGE = Language(tree_sitter_python.language())

FUNCTIONS = frozenset({"function_definition", "lambda", "class_definition"})
"""Everything with a scope of its own for `return` and for names."""

STRINGS = frozenset({"string", "concatenated_string"})

_CLAUSES = frozenset(
    {"elif_clause", "else_clause", "except_clause", "except_group_clause", "finally_clause", "case_clause"}
)
_CHUNK_BYTES = 8192
_PARSE_SECONDS = 1.5
"""Processor time for all parsing of one source; 256 kB of Python take 0.5 s, what is no Python may take minutes."""


class Parsing:
    """Parses texts while there is processor time left for it."""

    def __init__(self) -> None:
        self._seconds_left = _PARSE_SECONDS

    def parse(self, text: bytes) -> Tree:
        """The syntax tree of a text. Raises ProgramRejected when the time is over."""
        started = time.thread_time()
        deadline = started + self._seconds_left

        def read(offset: int, _: Point) -> bytes:
            return text[offset : offset + _CHUNK_BYTES]

        def is_over(_offset: int, _has_error: bool) -> bool:
            return time.thread_time() > deadline

        try:
            return Parser(_LANGUAGE).parse(read, progress_callback=is_over)
        except ValueError:  # how a stopped parse ends
            raise ProgramRejected("The source takes too long to parse. Write a smaller program.") from None
        finally:
            self._seconds_left -= time.thread_time() - started


def finder(pattern: str) -> Callable[[Node], dict[str, list[Node]]]:
    """What gives the nodes of a tree that a query matches, by its names for them. It walks faster than Python does."""
    query = Query(_LANGUAGE, pattern)
    return lambda root: QueryCursor(query).captures(root)


def kind_id(kind: str) -> int:
    """The number of a named kind of node."""
    number = _LANGUAGE.id_for_node_kind(kind, True)
    if not number:
        raise LookupError(f"the grammar has no {kind}")
    return number


def text_of(node: Node | None) -> str:
    """What a node spans."""
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def statements(block: Node) -> list[Node]:
    """The statements directly in a module or block."""
    return [child for child in block.named_children if child.type != "comment"]


def unwrapped(expression: Node) -> Node:
    """The expression without the parentheses around it."""
    while expression.type == "parenthesized_expression":
        inner = next((child for child in expression.named_children if child.type != "comment"), None)
        if inner is None:
            break
        expression = inner
    return expression


def is_async(node: Node) -> bool:
    """Whether a definition, loop or `with` begins with `async`."""
    return bool(node.children) and node.children[0].type == "async"


def blocks_of(statement: Node) -> Iterator[Node]:
    """The blocks of a compound statement that run where it stands, those of its clauses too."""
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

"""Parsing within a time budget, because some texts of a few kilobytes take minutes; and queries on trees."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeGuard

from tree_sitter import Language, Node, Parser, Point, Query, QueryCursor, Tree

from corral.errors import ProgramRejected

INLINE_CHARS = 8_000
"""Characters above which a source is read in a worker, so that the event loop does not wait."""
INLINE_SECONDS = 0.02
"""Seconds of parsing above which a source is read in a worker. Usual programs take a millisecond."""
INLINE_NODES = 4_000
"""Density above which a source is read in a worker. A model's program has at most one node per two characters."""
PARSE_SECONDS = 1.5
"""Processor seconds for one source. 256 kB of Python take 0.5 s; other text can take minutes."""
_CHUNK_BYTES = 8192
_SHORT_BYTES = 1000
"""Maximum size of texts that are parsed without a budget. The worst takes 3 ms."""


class TooLongToParse(ProgramRejected):
    """Parsing exceeded its budget."""


class _Budget:
    def __init__(self, seconds: float, nodes: float = math.inf) -> None:
        self.left = seconds
        self.nodes = nodes


_current: ContextVar[_Budget | None] = ContextVar("parsing budget", default=None)


@contextmanager
def parsing_within(seconds: float, nodes: float = math.inf) -> Generator[None]:
    """Limits the processor time in seconds of all parsing in this thread or task during the block.

    A tree with more than `nodes` nodes is rejected too, since its readers visit every node. In nested blocks the outer
    limits apply.
    """
    if _current.get() is not None:
        yield
        return
    token = _current.set(_Budget(seconds, nodes))
    try:
        yield
    finally:
        _current.reset(token)


def parse_by(language: Language, text: bytes) -> Tree:
    """Returns the syntax tree of a text.

    Raises:
        TooLongToParse: the budget is used up, or the tree has too many nodes.
    """
    if len(text) <= _SHORT_BYTES:
        return Parser(language).parse(text)
    budget = _current.get() or _Budget(PARSE_SECONDS)
    started = time.thread_time()
    deadline = started + budget.left

    def read(offset: int, _: Point) -> bytes:
        return text[offset : offset + _CHUNK_BYTES]

    def is_over(_offset: int, _has_error: bool) -> bool:
        return time.thread_time() > deadline

    try:
        tree = Parser(language).parse(read, progress_callback=is_over)
    except ValueError:  # the parse was cancelled
        tree = None
    finally:
        budget.left -= time.thread_time() - started
    if tree is None or tree.root_node.descendant_count > budget.nodes:
        raise TooLongToParse("The source takes too long to parse. Write a smaller program.")
    return tree


def finder_in(language: Language, pattern: str) -> Callable[[Node], dict[str, list[Node]]]:
    """Returns a function that finds the nodes matched by a query, by capture name. It is faster than a walk in Python.

    The query is compiled on first use: that takes milliseconds, and not every process reads programs.
    """
    query = cache(lambda: Query(language, pattern))
    return lambda root: QueryCursor(query()).captures(root)


def kind_id_in(language: Language, kind: str) -> int:
    """Returns the number of a named kind of node."""
    number = language.id_for_node_kind(kind, True)
    if not number:
        raise LookupError(f"the grammar has no {kind}")
    return number


def text_of(node: Node | None) -> str:
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def part(node: Node | None, field: str, *more: str) -> Node | None:
    """Returns the node at the end of a path of fields; None if one of them is missing."""
    node = node.child_by_field_name(field) if node is not None else None
    for each in more:
        node = node.child_by_field_name(each) if node is not None else None
    return node


def arguments_of(call: Node | None) -> list[Node]:
    """Returns the arguments of a call, without comments; empty for other nodes."""
    arguments = part(call, "arguments")
    if arguments is None or arguments.type == "generator_expression":
        return [] if arguments is None else [arguments]
    return [each for each in arguments.named_children if each.type != "comment"]


def is_a(node: Node | None, *types: str) -> TypeGuard[Node]:
    """True if there is a node, and it has one of these types."""
    return node is not None and node.type in types


def inside(node: Node | None) -> Node | None:
    """Returns the first named child of a node."""
    return node.named_child(0) if node is not None and node.named_child_count else None


def ascent(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yields pairs of child and parent, from a node outwards."""
    while (above := node.parent) is not None:
        yield node, above
        node = above


def ancestors(node: Node) -> Iterator[Node]:
    """Yields the nodes around a node, innermost first."""
    return (above for _, above in ascent(node))


def enclosing(node: Node | None, kinds: Container[str]) -> Node | None:
    """Returns the innermost node of these types around a node."""
    return None if node is None else next((each for each in ancestors(node) if each.type in kinds), None)


def with_wrappers(expression: Node, wrappers: Container[str]) -> tuple[Node, Node | None]:
    """Returns an expression including the nodes of these types around it, and its parent."""
    owner = expression.parent
    while owner is not None and owner.type in wrappers:
        expression, owner = owner, owner.parent
    return expression, owner


def without_wrappers(expression: Node, wrappers: Container[str]) -> Node:
    """Returns the expression inside nodes of these types, such as parentheses."""
    while expression.type in wrappers:
        inner = next((child for child in expression.named_children if child.type != "comment"), None)
        if inner is None:
            break
        expression = inner
    return expression

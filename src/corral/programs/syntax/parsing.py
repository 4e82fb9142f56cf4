"""Parsing within a budget, as some texts of a few kilobytes take a parser minutes; and its trees."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from tree_sitter import Language, Node, Parser, Point, Query, QueryCursor, Tree

from corral.errors import ProgramRejected

PARSE_SECONDS = 1.5
"""For one source; 256 kB of Python take 0.5 s. What is no program may take minutes."""
_CHUNK_BYTES = 8192
_SHORT_BYTES = 1000
"""The worst text of this size takes 3 ms."""


class TooLongToParse(ProgramRejected):
    """The budget is used up."""


class _Budget:
    def __init__(self, seconds: float, nodes: float = math.inf) -> None:
        self.left = seconds
        self.nodes = nodes


_current: ContextVar[_Budget | None] = ContextVar("parsing budget", default=None)


@contextmanager
def parsing_within(seconds: float, nodes: float = math.inf) -> Generator[None]:
    """Within the block, all parsing of this thread or task together may take so many seconds of processor time.

    A tree with more than so many nodes takes too long as well, since what reads it looks at each. Of two such blocks
    the outer one holds.
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
    """The syntax tree of a text.

    Raises:
        TooLongToParse: it takes longer than is left of the budget, or has too many nodes.
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
    except ValueError:  # how a parse ends that was stopped
        tree = None
    finally:
        budget.left -= time.thread_time() - started
    if tree is None or tree.root_node.descendant_count > budget.nodes:
        raise TooLongToParse("The source takes too long to parse. Write a smaller program.")
    return tree


def finder_in(language: Language, pattern: str) -> Callable[[Node], dict[str, list[Node]]]:
    """Returns a function that gives the nodes matched by a query, by capture name. It walks faster than Python.

    The query is compiled when it is first used: that takes milliseconds, and not every process reads programs.
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
    """Returns the text of a node."""
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def without_wrappers(expression: Node, wrappers: Container[str]) -> Node:
    """Returns the expression inside nodes of these types, such as parentheses."""
    while expression.type in wrappers:
        inner = next((child for child in expression.named_children if child.type != "comment"), None)
        if inner is None:
            break
        expression = inner
    return expression

"""Finds the functions that have to become async if one of them does."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax.parsing import enclosing

_MAX_FUNCTIONS = 50


class Asynchronous(NamedTuple):
    """Functions that become async together, and the calls to await then."""

    functions: list[Node]
    calls: list[Node]


def asynchronous(
    function: Node, calls_of: Callable[[Node], list[Node] | None], kinds: Container[str]
) -> Asynchronous | None:
    """Returns a function and its callers, up to those that are async; None if one of them cannot be.

    `calls_of` returns the calls of a function that have to be awaited; None if it is used otherwise. `kinds` are the
    types of functions.
    """
    functions, calls = list[Node](), list[Node]()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each in functions:
            continue
        called = calls_of(each)
        if called is None or len(functions) == _MAX_FUNCTIONS:
            return None
        functions.append(each)
        calls += called
        callers = (enclosing(call, kinds) for call in called)
        waiting += [caller for caller in callers if caller is not None and caller.children[0].type != "async"]
    return Asynchronous(functions, calls)

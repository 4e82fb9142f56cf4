"""Finds the functions that have to become async."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax.parsing import enclosing

_MAX_FUNCTIONS = 50


class Asynchronous(NamedTuple):
    """Functions that become async, the calls of them to await, and the expressions that can be awaited then."""

    functions: list[Node]
    calls: list[Node]
    expressions: list[Node]


def asynchronous(
    expressions: Iterable[Node], calls_of: Callable[[Node], list[Node] | None], kinds: Container[str]
) -> Asynchronous:
    """Returns the functions around expressions that are to be awaited, and their callers, if all can become async.

    `calls_of` returns the calls of a function that have to be awaited; None if it is used otherwise. `kinds` are the
    types of functions.
    """
    found = Asynchronous([], [], [])
    refused: set[int] = set()
    made: set[int] = set()
    for expression in expressions:
        function = enclosing(expression, kinds)
        if function is None or function.id in refused:
            continue
        if function.id not in made:
            if (more := _with_callers(function, made, calls_of, kinds)) is None:
                refused.add(function.id)
                continue
            functions, calls = more
            found.functions.extend(functions)
            found.calls.extend(calls)
            made.update(each.id for each in functions)
        found.expressions.append(expression)
    return found


def _with_callers(
    function: Node, made: Container[int], calls_of: Callable[[Node], list[Node] | None], kinds: Container[str]
) -> tuple[list[Node], list[Node]] | None:
    """Returns a function and its callers, up to those that are async, and all their calls; None if one cannot be."""
    functions, calls = dict[int, Node](), list[Node]()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each.id in functions or each.id in made:
            continue
        called = calls_of(each)
        if called is None or len(functions) == _MAX_FUNCTIONS:
            return None
        functions[each.id] = each
        calls += called
        callers = (enclosing(call, kinds) for call in called)
        waiting += [caller for caller in callers if caller is not None and caller.children[0].type != "async"]
    return [*functions.values()], calls

"""Finds the functions that have to become async."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax.parsing import enclosing

_MAX_FUNCTIONS = 50


class Asynchronous(NamedTuple):
    """Functions that become async, their calls, which have to be awaited, and expressions that can then be awaited."""

    functions: list[Node]
    calls: list[Node]
    expressions: list[Node]


def asynchronous(
    expressions: Iterable[Node], calls_of: Callable[[Node], list[Node] | None], kinds: Container[str]
) -> Asynchronous:
    """Finds the functions around expressions, and their callers, that can become async.

    `calls_of` returns the calls of a function that would have to be awaited, or None if the function is not only
    called. `kinds` are the node types of functions.
    """
    result = Asynchronous([], [], [])
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
            result.functions.extend(functions)
            result.calls.extend(calls)
            made.update(each.id for each in functions)
        result.expressions.append(expression)
    return result


def _with_callers(
    function: Node, made: Container[int], calls_of: Callable[[Node], list[Node] | None], kinds: Container[str]
) -> tuple[list[Node], list[Node]] | None:
    """Returns a function with its callers, up to async ones, and all their calls; None if one cannot become async."""
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

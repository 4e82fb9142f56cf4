"""Parts of the repairs that both languages share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.mends.names import ToolNames
from corral.programs.syntax.parsing import arguments_of, enclosing, text_of

_MAX_FUNCTIONS = 50


class Mender(ABC):
    """Adds the edits of all certain repairs of one program, and a message for each to `mends`."""

    def __init__(self, tools: ToolNames, edits: Edits) -> None:
        self.mends: list[str] = []
        self._tools = tools
        self._edits = edits

    @abstractmethod
    def _await(self, call: Node, shown: str) -> None:
        """Awaits the call of a tool, whose name is shown to the model, if its value is used."""

    def _tell(self, message: str) -> None:
        self.mends.append(message)

    def _interpret(self, node: Node, written: str, new: str) -> None:
        self._edits.replace(node.start_byte, node.end_byte, new.encode())
        self._tell(f"`{written}` was interpreted as `{new}`.")

    def _bridge(self, call: Node, callee: Node) -> None:
        """Repairs `call_tool("name", {...})`."""
        passed = arguments_of(call)
        if not 1 <= len(passed) <= 2 or passed[0].type != "string" or text_of(passed[0])[:1] not in "\"'":
            return
        path = self._tools.resolve(text_of(passed[0])[1:-1].removeprefix("tools."))
        end = passed[1].start_byte if len(passed) == 2 else passed[0].end_byte
        if path is None or b"\n" in self._edits.text[callee.start_byte : end]:
            return
        self._edits.replace(callee.start_byte, end, f"tools.{path}(".encode())
        self._tell(f"`{text_of(callee)}({text_of(passed[0])}, …)` was interpreted as `tools.{path}(…)`.")
        self._await(call, f"tools.{path}")


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

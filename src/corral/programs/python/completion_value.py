"""Finds a program's value: its last expression or assignment, the result of its function, or its `result` variable.

The value is stored in the global `_corral_result`, which engines read after the run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from corral.programs.edits import Edits, Places
from corral.programs.python.functions import Function, Functions, arguments_for
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.syntax.parsing import arguments_of, inside, is_a, part, text_of
from corral.programs.syntax.python import STRINGS, blocks_of, statements, unwrapped
from corral.types import Diagnostic

RESULT = "_corral_result"

_RESULT_NAMES = ("result", "output", "answer")
"""Module variables that count as the value of a program that ends without one, most likely first."""

_NO_EFFECT = frozenset(
    {
        *("function_definition", "class_definition", "decorated_definition", "type_alias_statement"),
        *("import_statement", "import_from_statement", "future_import_statement"),
        *("pass_statement", "global_statement", "nonlocal_statement"),
    }
)
_LOOPS = frozenset({"for_statement", "while_statement"})
_SILENT = frozenset({"append", "extend", "insert", "add", "update", "clear", "sort", "reverse", "remove", "discard"})
"""Methods that change their object and return None."""
_LEAVING = frozenset({"exit", "quit", "sys.exit"})
_MAIN = re.compile(rb"\b__name__\b")


@dataclass(slots=True)
class Ending:
    """End of a program, and where its value comes from."""

    code: list[str] = field(default_factory=list[str])
    """Lines that run after the last statement."""
    returns: set[int] = field(default_factory=set[int])
    """Offsets of each `return` that became an assignment."""
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    entered: list[Node] = field(default_factory=list[Node])
    """Functions and lambdas that are called with the tools."""


def give_result(
    root: Node, edits: Edits, names: Names, functions: Functions, places: Places, returns: list[Node]
) -> Ending:
    """Adds the edits that keep the program's value. `returns` are the top-level `return` statements."""
    program = _Program(root, edits, names, functions, places)
    return program.end(returns)


def awaited_result() -> list[str]:
    """Returns lines that await a program's value, which may be a task or a future.

    Their `await` also makes the program run in an event loop, which tasks need.
    """
    return [f"if hasattr({RESULT}, '__await__'):", f"    {RESULT} = await {RESULT}"]


class _Program:
    def __init__(self, root: Node, edits: Edits, names: Names, functions: Functions, places: Places) -> None:
        self._edits = edits
        self._names = names
        self._functions = functions
        self._places = places
        self._statements = statements(root)
        self._ending = Ending()
        self._complete = True
        """True if every path through the last statement produces a value."""

    def end(self, returns: list[Node]) -> Ending:
        last = self._last_effective(self._statements)
        function = None if returns else self._function(last)
        if function is not None:
            self._ending.code.append(f"{RESULT} = {self._call(function)}")
            return self._ending
        has_value = last is not None and self._keep_completion(last)
        if has_value and self._complete and not self._fills(last):
            return self._ending
        name = self._result_name()
        if name is not None:
            self._ending.code += ["try:", f"    {RESULT} = {name} if {RESULT} is None else {RESULT}"]
            self._ending.code += ["except NameError:", "    pass"]
        elif not has_value and not returns:
            self._ending.diagnostics.append(self._no_result(last))
        return self._ending

    def _fills(self, last: Node | None) -> bool:
        """True for a call to the program's own function without `return`, which may fill the result variable."""
        called = unwrapped(last.named_children[0]) if is_a(last, "expression_statement") else None
        called = inside(called) if is_a(called, "await") else called
        function = self._functions.named(text_of(part(called, "function")))
        return function is not None and b"return" not in (function.node.text or b"return")

    def _last_effective(self, candidates: list[Node]) -> Node | None:
        """Returns the last statement with an effect."""
        for statement in reversed(candidates):
            if statement.type not in _NO_EFFECT and not (len(self._statements) > 1 and _is_docstring(statement)):
                return statement
        return None

    # --- a program that is a function

    def _function(self, last: Node | None) -> Function | None:
        if last is not None and not self._has_no_value(last):
            return None
        if last is None or last.type == "expression_statement":
            function = self._functions.unused(among=self._after(last))
        else:
            function = self._functions.unused(among=[])
        return function if function is not None and arguments_for(function.node) is not None else None

    def _after(self, last: Node | None) -> list[Node] | None:
        """Returns the statements that may define the program's function: the last effective one and those after it."""
        if last is None:
            return None
        if _is_print(last):
            return []
        return [each for each in self._statements if each.start_byte >= last.start_byte]

    def _has_no_value(self, statement: Node) -> bool:
        if statement.type in _LOOPS or _is_print(statement):
            return True
        return statement.type == "expression_statement" and statement.named_children[0].type == "assignment"

    def _call(self, function: Function) -> str:
        arguments = arguments_for(function.node) or ""
        if arguments:
            self._ending.entered.append(function.node)
        return f"{'await ' if function.is_async else ''}{function.name}({arguments})"

    # --- a program that ends with its value

    def _keep_completion(self, last: Node) -> bool:
        """Keeps the value of the last expression of each branch. Returns True if there is one."""
        has_value = False
        pending = [last]
        while pending:
            node = pending.pop()
            kept = False
            match node.type:
                case "expression_statement":
                    kept = self._keep_expression(node)
                case "return_statement":
                    kept = self._keep_returned(node)
                case "raise_statement":
                    self._keep_exit(node)
                    kept = True
                case "if_statement" | "match_statement" | "try_statement" | "with_statement":
                    pending += self._branches(node)
                    continue
                case "block":
                    inner = self._last_effective(statements(node))
                    if inner is not None:
                        pending.append(inner)
                        continue
                case _:
                    pass
            has_value |= kept
            self._complete &= kept
        return has_value

    def _branches(self, statement: Node) -> list[Node]:
        """Returns the blocks in which a compound statement can end."""
        blocks = list(blocks_of(statement))
        if statement.type == "match_statement":
            blocks = [block for block in blocks if is_a(block.parent, "case_clause")]
            self._complete = False
        elif statement.type == "try_statement":
            clauses = {child.type: child for child in statement.children}
            without = {"finally_clause"} | ({"try_statement"} if "else_clause" in clauses else set[str]())
            blocks = [block for block in blocks if block.parent is not None and block.parent.type not in without]
        elif statement.type == "if_statement" and not any(child.type == "else_clause" for child in statement.children):
            condition = part(statement, "condition")
            self._complete &= condition is not None and bool(_MAIN.search(condition.text or b""))
        return blocks

    def _keep_returned(self, statement: Node) -> bool:
        word = statement.children[0]
        self._ending.returns.add(statement.start_byte)
        value = statement.named_children
        new = f"{RESULT} =" if value else "pass"
        self._edits.replace(word.start_byte, word.end_byte, new.encode())
        return bool(value)

    def _keep_expression(self, statement: Node) -> bool:
        expression = statement.children[0]
        value = unwrapped(expression)
        match value.type if statement.child_count == 1 else "expression_list":
            case "assignment":
                return self._keep_assigned(expression)
            case "augmented_assignment":
                return self._keep_after(expression, _kept_target(part(expression, "left")))
            case "yield" | "ellipsis":
                return False
            case "lambda":
                return self._keep_called(statement, value, f"({{}})({arguments_for(value)})")
            case "identifier":
                function = self._functions.named(text_of(value))
                if function is not None and arguments_for(function.node) is not None:
                    before = "await " if function.is_async else ""
                    return self._keep_called(statement, function.node, f"{before}{{}}({arguments_for(function.node)})")
            case "call":
                if _is_print(statement):
                    return False
                left = self._keep_exit_call(value)
                if left is not None:
                    return left
            case _:
                pass
        self._edits.wrap(statement.start_byte, statement.end_byte, f"{RESULT} = ".encode(), b"")
        return not (value.type == "call" and _is_silent(value))

    def _keep_called(self, statement: Node, function: Node, call: str) -> bool:
        """Calls a function that is the last expression, and keeps its result."""
        arguments = arguments_for(function)
        before, after = call.split("{}") if arguments is not None else ("", "")
        if arguments:
            self._ending.entered.append(function)
        self._edits.wrap(statement.start_byte, statement.end_byte, f"{RESULT} = {before}".encode(), after.encode())
        return True

    def _keep_exit_call(self, call: Node) -> bool | None:
        """Keeps the value of a call in `exit(…)`. Returns True if there is one; None for other calls."""
        callee, passed = part(call, "function"), arguments_of(call)
        if callee is None or dotted_path(callee) not in _LEAVING:
            return None
        if len(passed) == 1 and passed[0].type in ("call", "await"):
            self._edits.replace(callee.start_byte, callee.end_byte, f"{RESULT} = ".encode())
            return True
        return False

    def _keep_exit(self, statement: Node) -> None:
        """Keeps the value of the call in `raise SystemExit(…)`."""
        raised = inside(statement)
        callee = part(raised, "function")
        is_value = [each.type for each in arguments_of(raised)] == ["call"]
        if callee is not None and text_of(callee) == "SystemExit" and is_value:
            self._edits.replace(statement.start_byte, callee.end_byte, f"{RESULT} = ".encode())

    def _keep_assigned(self, assignment: Node) -> bool:
        left, right = part(assignment, "left"), part(assignment, "right")
        if left is None or right is None or text_of(left) == "_":
            return False
        if part(assignment, "type") is not None or left.type not in ("identifier", "attribute"):
            kept = _kept_target(left)
            if kept is not None:
                return self._keep_after(assignment, kept)
        self._edits.wrap(assignment.start_byte, assignment.end_byte, f"{RESULT} = ".encode(), b"")
        return True

    def _keep_after(self, statement: Node, target: str | None) -> bool:
        if target is None:
            return False
        self._edits.wrap(statement.start_byte, statement.end_byte, b"", f"; {RESULT} = {target}".encode())
        return True

    # --- a program without a value

    def _result_name(self) -> str | None:
        try:
            return next((name for name in _RESULT_NAMES if self._names.bindings(name)), None)
        except TooMuch:
            return None

    def _no_result(self, last: Node | None) -> Diagnostic:
        end = "End with the value itself, or with `result = <value>`."
        if last is None:
            message = f"The program has no result: it has no statement that runs. {end}"
            return Diagnostic(severity="info", code="no_result", message=message)
        if _is_print(last):
            what = "it ends with a call of print, which has no value"
        else:
            what = "it ends with a loop" if last.type in _LOOPS else "it ends with a statement without a value"
        return self._places.remark("info", "no_result", f"The program has no result: {what}. {end}", last.start_byte)


def _kept_target(target: Node | None) -> str | None:
    """Returns the variable to keep after an assignment: the target, or the owner of an assigned item."""
    while is_a(target, "subscript"):
        target = part(target, "value")
    text = text_of(target)
    if target is None or "\n" in text or "#" in text:
        return None
    if target.type in ("identifier", "attribute", "list_pattern", "tuple_pattern"):
        return text if target.type != "attribute" or dotted_path(target) else None
    return f"({text})" if target.type == "pattern_list" else None


def _is_docstring(statement: Node) -> bool:
    """True for a triple-quoted statement, a comment unless it is the whole program."""
    is_string = statement.type == "expression_statement" and statement.named_children[0].type in STRINGS
    return is_string and text_of(statement).startswith(('"""', "'''"))


def _is_print(statement: Node) -> bool:
    called = (
        part(unwrapped(statement.named_children[0]), "function") if statement.type == "expression_statement" else None
    )
    return text_of(called) in ("print", "pprint", "pprint.pprint")


def _is_silent(call: Node) -> bool:
    return text_of(part(call, "function", "attribute")) in _SILENT

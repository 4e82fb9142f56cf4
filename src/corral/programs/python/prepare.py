"""Makes a model's Python runnable: recovers, repairs and parses it, and keeps its value for the engine.

The result is a module with top-level `await`, whose value is in the global `_corral_result` at the end.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.edits import Edits, NotAwaited, Places
from corral.programs.python.awaits import (
    await_coroutines,
    await_futures,
    check_calls,
    list_generators,
    run_where_it_stands,
    starts_tasks,
)
from corral.programs.python.functions import TOOLS, Function, Functions, arguments_for, first_parameter, tools_parameter
from corral.programs.python.imports import Imports, add_imports, free_classes, replace_line, rewrite_imports
from corral.programs.python.lines import Reader, is_indented
from corral.programs.python.names import Name, Names, TooMuch, dotted_path, is_binding
from corral.programs.python.repairs import LINE_END, Repaired, repaired
from corral.programs.recover import Dialect, Recovered, recover, well_formed
from corral.programs.syntax.parsing import PARSE_SECONDS, arguments_of, inside, is_a, parsing_within, part, text_of
from corral.programs.syntax.python import FUNCTIONS, STRINGS, blocks_of, kind_id, parse, statements, unwrapped
from corral.programs.syntax.typescript import parse as parse_typescript
from corral.texts import TypedText
from corral.types import MAX_TOOL_PATH, Diagnostic, Program, References, ToolReference

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


_AWAITED_RESULT = (f"if hasattr({RESULT}, '__await__'):", f"    {RESULT} = await {RESULT}")
"""Lines that await a program's value, which may be a task or a future.

Their `await` also makes the program run in an event loop, which tasks need.
"""


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
        """Adds the edits that keep the program's value. `returns` are the top-level `return` statements."""
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
        return not (value.type == "call" and text_of(part(value, "function", "attribute")) in _SILENT)

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


_FUNCTION = "_corral_program"
_INDENT = b" " * 8
"""Width of a tab, so that lines with tabs and lines with spaces stay at the same distance."""


def _wrap_in_function(
    root: Node, returns: list[Node], strings: list[tuple[int, int]], edits: Edits, ending: list[str]
) -> list[str]:
    """Adds the edits that move top-level code with `return` into a function. Returns the lines to run after it."""
    text = edits.text
    top_level = statements(root)
    first = max(bisect_left(top_level, returns[0].start_byte + 1, key=lambda each: each.start_byte) - 1, 0)
    while first and top_level[first - 1].end_point.row == top_level[first].start_point.row:
        first -= 1
    body = top_level[first:]
    start = text.rfind(b"\n", 0, body[0].start_byte) + 1
    names = ", ".join(dict.fromkeys((RESULT, *_bound_names(body, edits))))
    head = f"async def {_FUNCTION}():\n" + _INDENT.decode() + f"global {names}\n"
    inside = _lines_in_strings(text, strings)
    at = start
    while at < len(text):
        line_end = text.find(b"\n", at)
        line_end = len(text) if line_end < 0 else line_end
        if at not in inside and text[at:line_end].strip():
            begins = text.rfind(b"\f", at, line_end) + 1 if b"\f" in text[at:line_end] else at
            leading = text[at:begins].strip() == b""
            edits.insert(begins if leading else at, (head.encode() if at == start else b"") + _INDENT)
        at = line_end + 1
    indented = [_INDENT.decode() + line for line in (*ending, f"return {RESULT}")]
    return [*indented, f"{RESULT} = await {_FUNCTION}()"]


def _lines_in_strings(text: bytes, strings: list[tuple[int, int]]) -> set[int]:
    """Returns the offsets of lines that begin inside a string."""
    offsets: set[int] = set()
    for start, end in strings:
        at = text.find(b"\n", start, end)
        while at >= 0:
            offsets.add(at + 1)
            at = text.find(b"\n", at + 1, end)
    return offsets


def _bound_names(body: list[Node], edits: Edits) -> list[str]:
    """Returns the variables that statements bind outside functions. Removes annotations, which globals cannot have."""
    names: list[str] = []
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        if statement.type == "decorated_definition":
            statement = part(statement, "definition") or statement
        if statement.type in ("function_definition", "class_definition"):
            names.append(text_of(part(statement, "name")))
            continue
        blocks = list(blocks_of(statement))
        for block in reversed(blocks):
            pending += reversed(statements(block))
        if statement.type == "expression_statement" and statement.named_children[0].type == "assignment":
            _without_annotation(statement.named_children[0], edits)
        names += _names_in(statement)
    return names


def _names_in(statement: Node) -> list[str]:
    """Returns the names that a statement binds, without those in its blocks and nested scopes."""
    names: list[str] = []
    pending = [statement]
    while pending:
        node = pending.pop()
        if node.type == "identifier":
            names += [text_of(node)] if is_binding(node) else []
        elif node.type not in ("lambda", "block"):
            own = part(node, "left") if node.type == "for_in_clause" else None
            pending += reversed([each for each in node.named_children if each != own])
    return names


def _without_annotation(assignment: Node, edits: Edits) -> None:
    annotation, left = part(assignment, "type"), part(assignment, "left")
    if annotation is None or left is None or left.type != "identifier":
        return
    if part(assignment, "right") is None:
        replace_line(edits, assignment.start_byte, assignment.end_byte, "pass")
    else:
        edits.blank(left.end_byte, annotation.end_byte)


UNKNOWN = References((), computed=True)
"""References of a program that does not parse: any tool."""

_MAX_REFERENCES = 1000

_DUNDERS = "name|init|repr|str|eq|ne|lt|le|gt|ge|hash|len|iter|next|enter|exit|aenter|aexit|aiter|anext|call|contains"
_OTHERS = "main|add|sub|mul|truediv|floordiv|mod|pow|neg|bool|post_init|future|all|version|author|doc|slots|missing"
_HIDDEN = re.compile(
    rf"\b(?:globals|locals|vars|eval|exec|compile|_getframe|sys\s*\.\s*modules|f_globals|f_locals|f_back|gc|inspect"
    rf"|(?:tb|cr|gi|ag)_frame|walk_(?:stack|tb)|set(?:trace|profile)|modules|attrgetter|methodcaller|get_type_hints"
    rf"|getattr(?!\s*\(\s*[\w.]+\s*,\s*([\"'])\w+\1\s*[,)])|timeit|runpy|breakpoint|pdb|doctest"
    rf"|importlib|ctypes|pickle|marshal|types\s*\.\s*FunctionType|__(?!(?:{_DUNDERS}|{_OTHERS})__\b)\w+__)\b"
    r"|(?<![\"'])\b__main__\b"
)
"""Names through which a program can reach the tools without naming them."""


class _ToolUses(NamedTuple):
    """Uses of tools in a program."""

    references: References
    calls: list[tuple[Node, str]]
    """Calls that certainly refer to a tool, with its path."""


def _tool_uses(
    root: Node, text: bytes, names: Names, imports: Imports, entered: list[Node], places: Places
) -> _ToolUses:
    """Returns the tools that a program refers to. `entered` are its functions that are called with the tools."""
    search = _Search(root, text, names, imports)
    try:
        search.run(entered)
    except TooMuch:
        search.computed = True
    named_at = sorted(search.named.items(), key=lambda each: each[1])
    named = [(path, places.at(offset)) for path, offset in named_at]
    references = tuple(ToolReference(path, place.line, place.column) for path, place in named)
    return _ToolUses(References(references, search.computed), sorted(search.calls, key=lambda each: each[0].start_byte))


class _Search:
    def __init__(self, root: Node, text: bytes, names: Names, imports: Imports) -> None:
        self.computed = False
        self.named: dict[str, int] = {}
        self.calls: list[tuple[Node, str]] = []
        self._root = root
        self._text = text
        self._names = names
        self._imports = imports
        self._aliases: dict[str, str] = {}

    def run(self, entered: list[Node]) -> None:
        shown = self._text.decode(errors="replace")
        self.computed = _HIDDEN.search(shown if shown.isascii() else unicodedata.normalize("NFKC", shown)) is not None
        for imported in self._imports.tools:
            self._name(imported.path, imported.node)
            self._aliases[imported.name] = imported.path
        for word in TOOLS:
            self.computed |= self._names.is_spelled_otherwise(word)
            self._look(word, self._root)
        for word in self._imports.holders:
            self.computed |= word == "*"
            self._look(word, self._root)
        for function in entered:
            parameter = first_parameter(function)
            if parameter is not None:
                self._look(parameter, function)
        imported_names = {each.name for each in self._imports.tools}
        for name, path in self._aliases.items():
            uses = [each for each in self._names.in_module(name) if not self._is_replaced(each)]
            if sum(each.binds for each in uses) + (name in imported_names) == 1:
                for use in uses:
                    self._call(use.node, path)

    def _look(self, word: str, scope: Node) -> None:
        """Follows a name that holds the tools in a scope."""
        occurrences = [name for name in self._names.of(word) if name.scope == scope and not self._is_replaced(name)]
        bindings = sum(name.binds for name in occurrences)
        if bindings > (scope != self._root) or self._names.is_declared_elsewhere(word):
            self.computed = True
            return
        for name in occurrences:
            if not name.binds:
                self._refer(name)

    def _refer(self, use: Name) -> None:
        """Follows the members read from the tools."""
        keys: list[str] = []
        node = use.node
        while len(keys) < 2 and (owner := node.parent) is not None and owner.type == "attribute":
            self._names.step()
            if node != part(owner, "object"):
                break
            keys.append(unicodedata.normalize("NFKC", text_of(part(owner, "attribute"))))
            node = owner
        if not keys or keys[0].startswith("__"):
            self.computed = True
            return
        path = ".".join(keys)
        self._name(path, part(node, "attribute") or node)
        self._call(node, path)
        left = part(node.parent, "left") if is_a(node.parent, "assignment") else None
        if is_a(left, "identifier") and node == part(node.parent, "right") and use.owner == self._root:
            self._aliases[text_of(left)] = path

    def _call(self, callee: Node, path: str) -> None:
        if callee.parent is not None and callee == part(callee.parent, "function"):
            self.calls.append((callee.parent, path))

    def _name(self, path: str, place: Node) -> None:
        if len(path) > MAX_TOOL_PATH:
            self.computed = True
        elif path not in self.named and len(self.named) == _MAX_REFERENCES:
            raise TooMuch
        else:
            self.named[path] = min(place.start_byte, self.named.get(path, place.start_byte))

    def _is_replaced(self, name: Name) -> bool:
        replaced, start = self._imports.replaced, name.node.start_byte
        before = bisect_right(replaced, start, key=itemgetter(0))
        return before > 0 and start < replaced[before - 1][1]


_LABELS = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3", "pycon", "python-repl", "pyi"})
_MAX_PARSED_BYTES = 500_000
"""Maximum number of bytes parsed in search of a program. Texts beyond it count as invalid."""
_TYPESCRIPT = re.compile(
    rb"^[ \t]*(?:export[ \t]+)?(?:const|let|var|function|async[ \t]+function|interface|enum)[ \t]+[\w${\[]"
    rb"|^[ \t]*type[ \t]+\w+[ \t]*=[ \t]*[{|\"'\w]|=>|\bconsole\.\w+\(|\bnew[ \t]+[A-Z]\w*\(|[;{}][ \t]*$|^[ \t]*//",
    re.MULTILINE,
)
_MAX_PARSED_AGAIN = 30_000
"""A longer source is not parsed again as another language."""
_MAX_DEPTH = 700
"""Maximum depth of a syntax tree. CPython's compiler accepts at least 1,000 levels of any construct."""

_GLOBAL = re.compile(rb"^[ \t]*global[ \t]+([\w, \t]+)", re.MULTILINE)
_CLOSED = frozenset(map(kind_id, FUNCTIONS))
_RETURN, _YIELD, _AWAIT = kind_id("return_statement"), kind_id("yield"), kind_id("await")
_IMPORT, _IMPORT_FROM = kind_id("import_statement"), kind_id("import_from_statement")
_STRING, _COMMENT = kind_id("string"), kind_id("comment")


def prepare_python(source: str, bound: frozenset[str] | None = None) -> Program:
    """Returns the program in a model's answer, prepared to run. `bound`: for a cell, variables of earlier cells.

    Raises ProgramRejected, with the position in the source, if there is no valid program.
    """
    recovered = _recovered(source)
    repair = recovered.repair
    if recovered.root is not None:
        return _prepared(source, recovered.root, recovered, bound)
    if recovered.too_deep is not None:
        raise recovered.places.rejected("The program is nested too deeply at {place}.", recovered.too_deep)
    _refuse_typescript(repair.text, recovered.places)
    return Program(
        language="python",
        source=source,
        code=repair.text.decode(),
        positions=repair.positions,
        diagnostics=(*recovered.diagnostics, *repair.diagnostics),
        references=UNKNOWN,
    )


def _refuse_typescript(text: bytes, places: Places) -> None:
    sign = _TYPESCRIPT.search(text) if len(text) <= _MAX_PARSED_AGAIN else None
    if sign is not None and not parse_typescript(text).root_node.has_error:
        message = "This is TypeScript; programs here are in Python: `x = await tools.name(key=value)`, and the last"
        start = len(text) - len(text.lstrip())
        raise places.rejected(f"{message} expression is the result.", start)


def bound_names(root: Node, text: bytes) -> tuple[str, ...]:
    """Returns the variables that a module binds."""
    declared = (each for match in _GLOBAL.finditer(text) for each in match[1].decode().split(","))
    return tuple(dict.fromkeys((*_bound_names(statements(root), Edits(text)), *map(str.strip, declared))))


class TypedPython(NamedTuple):
    """A program, prepared for a type checker."""

    root: Node
    edits: Edits
    """Edits that every check needs."""
    free: tuple[str, ...]
    """See `TypedText`."""
    parameters: list[Node]
    """Parameters of the program's own functions that receive the tools."""
    names: Names
    places: Places
    start: int = -1
    """See `TypedText`."""
    unknown: tuple[str, ...] = ()
    """See `TypedText`."""


def typed_python(typed: TypedText) -> TypedPython:
    """Parses a program for a type checker. Raises TooLongToParse."""
    text = typed.text
    root = parse(text).root_node
    entered = [root.named_descendant_for_byte_range(*span) for span in typed.entered]
    parameters = [each for function in entered if function is not None and (each := tools_parameter(function))]
    edits = Edits(text, LINE_END, typed.edits)
    places = Places(text, typed.positions, LINE_END)
    names = Names(root, text)
    return TypedPython(root, edits, typed.free, parameters, names, places, typed.start, typed.unknown)


@dataclass(frozen=True, slots=True)
class _Recovered:
    """A program recovered from an answer, with its tree if it parses."""

    repair: Repaired
    root: Node | None
    too_deep: int | None
    """Offset at which it is nested too deeply, if it is."""
    places: Places
    diagnostics: list[Diagnostic]


@parsing_within(PARSE_SECONDS)
def _recovered(source: str) -> _Recovered:
    text, diagnostics = _readable(source)
    trees = _Trees()
    dialect = Dialect(labels=_LABELS, label="python", parses=trees.recovers, separator="", margin="\f", foreign="?")
    repair = _placed(recover(text, dialect), trees, has_mark=source.startswith("\ufeff"))
    root = trees.of(repair.text)
    too_deep = trees.reader.read(repair.text).too_deep if root is None else None
    return _Recovered(repair, root, too_deep, Places(repair.text, repair.positions, LINE_END), diagnostics)


def _prepared(source: str, root: Node, recovered: _Recovered, bound: frozenset[str] | None) -> Program:
    repair, places, text = recovered.repair, recovered.places, recovered.repair.text
    survey = _survey(root, places)
    edits, names = Edits(text, LINE_END), Names(root, text)
    functions = Functions(root, names, only_usual=bound is not None)
    run_where_it_stands(root, edits)
    await_coroutines(root, functions, names, edits)
    await_futures(root, edits)
    list_generators(root, names, edits)
    forgotten = add_imports(root, text, edits, places, bound or frozenset())
    imports = rewrite_imports(survey.imports, edits, root, names, forgotten.names, places)
    made = edits.made
    ending = _Program(root, edits, names, functions, places).end(survey.returns)
    uses = _tool_uses(root, text, names, imports, ending.entered, places)
    code = [*ending.code, *(_AWAITED_RESULT if starts_tasks(text) else ())]
    if not survey.yields and any(each.start_byte not in ending.returns for each in survey.returns):
        code = _wrap_in_function(root, survey.returns, survey.strings, edits, code)
    suffix = "".join(f"\n{line}" for line in code)
    edited, positions = edits.apply(suffix=suffix.encode())
    program = Program(
        language="python",
        source=source,
        code=edited.decode(),
        positions=(positions, *repair.positions),
        diagnostics=(*recovered.diagnostics, *repair.diagnostics, *forgotten.remarks, *ending.diagnostics),
        imports=(*forgotten.modules, *imports.modules),
        references=uses.references,
        typed=TypedText(
            text=text,
            parsed=text,
            edits=made,
            entered=tuple((each.start_byte, each.end_byte) for each in ending.entered),
            positions=repair.positions,
            nodes=root.descendant_count,
            free=free_classes(root, text, {*forgotten.names, *(bound or ())}, [each.path for each in imports.tools]),
        ),
        binds=() if bound is None else (*bound_names(root, text), *forgotten.names),
    )
    try:
        check_calls(uses.calls, names, places)
    except NotAwaited as error:
        error.program = program
        raise
    return program


def _readable(source: str) -> tuple[str, list[Diagnostic]]:
    """Returns the source as valid Unicode with LF line ends."""
    text, diagnostics = well_formed(source)
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return text.replace("\r\n", "\n").replace("\r", "\n"), diagnostics


def _placed(recovered: Recovered, trees: _Trees, *, has_mark: bool) -> Repaired:
    """Repairs the recovered text, without the space that replaces a byte order mark."""
    text = recovered.text.encode()
    if not (has_mark and text[:1] == b" "):
        return repaired(text, recovered.blocks, trees.parses, trees.reader)
    edits = Edits(text, LINE_END)
    edits.replace(0, 1, b"")
    unmarked, positions = edits.apply()
    repair = repaired(unmarked, recovered.blocks, trees.parses, trees.reader)
    return Repaired(repair.text, (*repair.positions, positions), repair.diagnostics)


class _Trees:
    """Parses texts, each once, up to a total size."""

    def __init__(self) -> None:
        self.reader = Reader()
        self._trees: dict[bytes, Node | None] = {}
        self._sound: dict[bytes, bool] = {}
        self._known: dict[str, bool] = {}
        self._bytes = 0

    def of(self, text: bytes) -> Node | None:
        """Returns the tree of a text; None if it does not parse."""
        if text not in self._trees:
            self._bytes += len(text)
            lines = self.reader.read(text)
            broken = lines.broken or lines.too_deep is not None
            root = None if broken else parse(text).root_node
            self._trees[text] = None if root is None or root.has_error or _holds_backtick(root, text) else root
        return self._trees[text]

    def parses(self, text: bytes) -> bool:
        """True if a text parses and its indentation is valid."""
        if text not in self._sound:
            root = self.of(text) if self._bytes <= _MAX_PARSED_BYTES else None
            self._sound[text] = root is not None and is_indented(self.reader.read(text).logical)
        return self._sound[text]

    def recovers(self, text: str) -> bool:
        """True if a text parses, unchanged or repaired."""
        if text not in self._known:
            self._known[text] = self.parses(repaired(text.encode(), (), self.parses, self.reader).text)
        return self._known[text]


def _holds_backtick(root: Node, text: bytes) -> bool:
    """True if a backtick is used as a quote, which the grammar accepts as in Python 2."""
    at = text.find(b"`")
    while at >= 0:
        node = root.descendant_for_byte_range(at, at + 1)
        if (
            node is not None
            and node.type in ("string_start", "string_end", "string")
            and node.end_byte - node.start_byte == 1
        ):
            return True
        at = text.find(b"`", at + 1)
    return False


@dataclass(slots=True)
class _Survey:
    """Findings of one walk over a tree."""

    imports: list[Node] = field(default_factory=list[Node])
    returns: list[Node] = field(default_factory=list[Node])
    """Every top-level `return`."""
    yields: bool = False
    """True if there is a top-level `yield`."""
    strings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Spans of the outermost strings and comments."""


def _survey(root: Node, places: Places) -> _Survey:
    """Visits every node once. Raises ProgramRejected beyond the depth that engines accept."""
    survey = _Survey()
    cursor = root.walk()
    depth = 0
    closed: list[int] = []
    while (node := cursor.node) is not None:
        kind = node.kind_id
        if kind in (_STRING, _COMMENT):
            survey.strings.append((node.start_byte, node.end_byte))
        elif kind in (_IMPORT, _IMPORT_FROM):
            survey.imports.append(node)
        elif not closed and kind == _RETURN and node.is_named:
            survey.returns.append(node)
        elif not closed and kind == _YIELD and node.is_named:
            survey.yields = True
        if cursor.goto_first_child():
            depth += 1
            if kind in _CLOSED:
                closed.append(depth)
            if depth > _MAX_DEPTH:
                raise places.rejected("The program is nested too deeply at {place}.", node.start_byte)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return survey
            if closed and closed[-1] == depth:
                closed.pop()
            depth -= 1
    return survey

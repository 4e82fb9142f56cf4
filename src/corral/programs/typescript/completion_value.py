"""Finds a program's value: its export, the function that it declares, or its last expression.

The completion value of the last statement is returned, including branches of `if` and `try`, as in a JavaScript
console. If that is a function, it is called, because a model that ends with a function means its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from corral.programs.edits import Edits, Places
from corral.programs.syntax.parsing import is_a, part
from corral.programs.syntax.typescript import (
    DECLARED_FUNCTIONS,
    ENTRY_NAMES,
    FUNCTION_VALUES,
    VARIABLES,
    bound_names,
    declaration_of,
    declared_names,
    destructures,
    first_parameter,
    statements,
    text_of,
    unwrapped,
    walk,
)
from corral.programs.typescript.commonjs import assigns_exports
from corral.programs.typescript.modules import Entry
from corral.programs.typescript.names import Names
from corral.types import Diagnostic

_LOOPS = frozenset({"for_statement", "for_in_statement", "while_statement", "do_statement"})
_NO_EFFECT = DECLARED_FUNCTIONS | {
    "class_declaration",
    "abstract_class_declaration",
    "interface_declaration",
    "type_alias_declaration",
    "ambient_declaration",
    "function_signature",
    "enum_declaration",
    "internal_module",
    "module",
    "import_statement",
    "import_alias",
    "empty_statement",
}
_OBJECT_OF_NAMES = re.compile(rb"\{\s*[\w$]+(?:\s*,\s*[\w$]+)+\s*,?\s*\}")
_NAMES = frozenset({"tools", "codemode"})
_OF_TOOLS = re.compile(r"tools|codemode", re.IGNORECASE)
_PLAIN = re.compile(
    r"[\s:|&()\[\]<>,]*(?:(?:string|number|boolean|bigint|symbol|null|undefined|void|never|true|false|Date|URL|RegExp"
    r"|Array|ReadonlyArray|Set|Map|Promise|readonly)\b[\s|&()\[\]<>,]*)+"
)
"""Annotations that cannot describe the tools."""
_OPEN = re.compile(r"[\s:]*(?:any|unknown|object|Object|Function)\s*")
_DATA = ("data", "member")
_MEMBERS = frozenset(
    {
        *("member_expression", "subscript_expression"),
        *("non_null_expression", "parenthesized_expression", "as_expression", "satisfies_expression"),
    }
)


@dataclass(slots=True)
class Ending:
    """The end of a wrapped program."""

    code: str = ""
    """Code that runs after the last statement."""
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    entered: list[Node | str | None] = field(default_factory=list["Node | str | None"])
    """Callees that receive the tools: functions, names of functions, or None if that is known only at run time."""


def give_result(
    root: Node, edits: Edits, names: Names, entry: Entry | None, returns: bool, *, is_cell: bool = False
) -> Ending:
    """Adds the edits that make the program return its value. `returns` is true if it has a top-level
    `return`.

    A cell's functions are for later ones; only one with a usual name is called.
    """
    program = _Program(root, edits, names, entry, is_cell=is_cell)
    ending = program.end(returns)
    ending.entered = program.entered
    return ending


def named(root: Node, entered: Sequence[Node | str | None]) -> list[Node]:
    """Returns the functions that are called with the tools; names are resolved to top-level declarations."""
    functions = dict(_named_functions([declaration_of(each) for each in statements(root)]))
    nodes = (functions.get(each) if isinstance(each, str) else each for each in entered)
    return [each for each in nodes if each is not None]


class _Program:
    def __init__(self, root: Node, edits: Edits, names: Names, entry: Entry | None, *, is_cell: bool) -> None:
        self._entry = entry
        self._is_cell = is_cell
        self._root = root
        self._edits = edits
        self._names = names
        kept = [each for each in statements(root) if entry is None or not assigns_exports(each)]
        self._statements = [declaration_of(each) for each in kept]
        self._functions = dict(_named_functions(self._statements))
        self.entered: list[Node | str | None] = []

    def end(self, returns: bool) -> Ending:
        entry = self._entry
        if entry is not None and not (entry.name and self._is_called(entry.name)):
            return Ending(self._call(entry))
        last = _last_effective(self._statements)
        function = self._unused_function(last)
        if function is not None and not returns and (last is None or _has_no_value(last)):
            return Ending(self._call(Entry(function, function)))
        if last is not None and self._return_completion(last):
            return Ending(diagnostics=[] if returns else _console_remark(last, self._edits.text))
        if returns or self._root.has_error:
            return Ending()
        is_helper = self._is_cell and last is not None and bool(_named_functions([last]))
        if is_a(last, *VARIABLES) and len(declared := declared_names(last)) == 1 and not is_helper:
            return Ending(f"return {declared[0]};")
        return Ending(diagnostics=[_no_result(last, self._edits.text)])

    def _call(self, entry: Entry) -> str:
        if not entry.callable:
            return f"return {entry.value};"
        function = entry.function or self._functions.get(entry.name or "")
        if (arguments := _arguments_of(function)) is not None:
            return f"return await {entry.value}({arguments});"
        self.entered.append(entry.function or entry.name)
        return f"return await {self._names.entry}({entry.value}, {_flag(destructures(function))});"

    def _unused_function(self, last: Node | None) -> str | None:
        """Returns the function that a program of declarations should run: one with a usual name, or the last one."""
        for name in ENTRY_NAMES:
            if name in self._functions and not self._is_used(name):
                return name
        if self._is_cell:
            return None
        if last is None:
            candidates = [name for each in self._statements for name, _ in _named_functions([each])]
        else:
            candidates = [name for name, _ in _named_functions([last])]
        return candidates[-1] if candidates and not self._is_used(candidates[-1]) else None

    def _is_used(self, name: str) -> bool:
        """True if top-level code mentions a function, apart from its declaration and export."""
        named = (each for each in walk(self._root, into_functions=False) if each.type == "identifier")
        uses = (each for each in named if text_of(each) == name and not is_a(each.parent, "export_specifier"))
        return any(
            not (is_a(each.parent, "variable_declarator") and part(each.parent, "name") == each) for each in uses
        )

    def _is_called(self, name: str) -> bool:
        """True if top-level code calls a function."""
        called = (part(each, "function") for each in walk(self._root, into_functions=False))
        return any(is_a(each, "identifier") and text_of(each) == name for each in called)

    def _return_completion(self, last: Node) -> bool:
        """Puts `return` before the last expression of each branch. Returns True if there is one, or a `return`."""
        if last.type == "statement_block" and _OBJECT_OF_NAMES.fullmatch(last.text or b""):
            self._edits.wrap(last.start_byte, last.end_byte, b"return (", b")")
            return True
        has_value = False
        pending = [last]
        while pending:
            node = pending.pop()
            match node.type:
                case "expression_statement":
                    has_value |= self._return_expression(node)
                case "if_statement":
                    pending += _fields(node, "consequence", "alternative")
                case "else_clause":
                    pending += statements(node)
                case "try_statement":
                    pending += _fields(node, "body", "handler")
                case "catch_clause" | "labeled_statement":
                    pending += _fields(node, "body")
                case "statement_block":
                    inner = _last_effective(statements(node))
                    pending += [inner] if inner is not None else []
                case "return_statement" | "throw_statement":
                    has_value = True
                case _:
                    pass
        return has_value

    def _return_expression(self, statement: Node) -> bool:
        expression = next((each for each in statement.named_children if each.type != "comment"), None)
        if expression is None or _is_directive(expression) or _declares_resource(expression):
            return False
        if expression.type == "unary_expression" and expression.children[0].type == "void":
            word, called = expression.children[0], part(expression, "argument")
            if called is not None and unwrapped(called).type == "call_expression":  # the value of `void main()`
                self._edits.blank(word.start_byte, word.end_byte)
        if expression.type == "internal_module":
            return False
        value = unwrapped(expression)
        if value.type == "assignment_expression" and (assigned := part(value, "right")) is not None:
            value = unwrapped(assigned) if unwrapped(assigned).type in FUNCTION_VALUES else value
        if value.type in FUNCTION_VALUES or value.type == "identifier":
            function = value if value.type in FUNCTION_VALUES else self._functions.get(text_of(value))
            if (arguments := _arguments_of(function)) is not None:
                before, after = "return await (", f")({arguments})"
            else:
                self.entered.append(value if value.type in FUNCTION_VALUES else text_of(value))
                before, after = f"return await {self._names.entry}(", f", {_flag(destructures(function))})"
        else:
            before, after = "return await (", ")"
        self._edits.wrap(expression.start_byte, expression.end_byte, before.encode(), after.encode())
        return True


def _named_functions(declarations: Sequence[Node]) -> list[tuple[str, Node]]:
    """Returns the functions that statements declare, or bind to a variable."""
    functions: list[tuple[str, Node]] = []
    for statement in declarations:
        if statement.type in DECLARED_FUNCTIONS:
            functions.append((text_of(part(statement, "name")), statement))
        for declarator in statement.named_children if statement.type in VARIABLES else ():
            name, value = part(declarator, "name"), part(declarator, "value")
            if is_a(name, "identifier") and value is not None and unwrapped(value).type in FUNCTION_VALUES:
                functions.append((text_of(name), unwrapped(value)))
    return functions


def _last_effective(candidates: Sequence[Node]) -> Node | None:
    """Returns the last statement that has an effect or declares a variable."""
    for statement in reversed(candidates):
        inner = statement.named_children[0].type if statement.type == "expression_statement" else statement.type
        if inner not in _NO_EFFECT and inner != "export_statement":
            return statement
    return None


def _fields(node: Node, *names: str) -> list[Node]:
    return [child for name in names if (child := part(node, name)) is not None]


def _is_directive(expression: Node) -> bool:
    return expression.type == "string" and text_of(expression)[1:-1] == "use strict"


def _declares_resource(expression: Node) -> bool:
    """True for `using x = …` and `await using x = …`, which the grammar parses as assignments."""
    inner = expression.named_children[0] if expression.type == "await_expression" else expression
    return inner.type == "assignment_expression" and inner.children[0].type == "using"


def _has_no_value(statement: Node) -> bool:
    return statement.type in VARIABLES | _LOOPS or _is_console_call(statement)


def _is_console_call(statement: Node) -> bool:
    return statement.type == "expression_statement" and (statement.text or b"").startswith(b"console.")


def _console_remark(last: Node, text: bytes) -> list[Diagnostic]:
    if not _is_console_call(last):
        return []
    return [_remark("it ends with a console call, which has no value", last, text, "return <value>")]


def _no_result(last: Node | None, text: bytes) -> Diagnostic:
    if last is None:
        message = "The program has no result: it has no statement that runs. End with `return <value>`."
        return Diagnostic(severity="info", code="no_result", message=message)
    if last.type in VARIABLES:
        value = f"{{ {', '.join(declared_names(last))} }}"
        return _remark("it ends with a declaration", last, text, f"return {value}")
    what = "a loop" if last.type in _LOOPS else "a statement without a value"
    return _remark(f"it ends with {what}", last, text, "return <value>")


def _remark(what: str, node: Node, text: bytes, fix: str) -> Diagnostic:
    message = f"The program has no result: {what}. End with `{fix}`."
    return Places(text).remark("info", "no_result", message, node.start_byte)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _arguments_of(function: Node | None) -> str | None:
    """Returns the arguments to call a function with, as code; None if it takes the tools."""
    parameter = first_parameter(function)
    if function is None or parameter is None:
        return None
    pattern, default = part(parameter, "pattern") or parameter, part(parameter, "value")
    names = set(bound_names(pattern))
    typed = part(parameter, "type")
    annotation = text_of(typed)
    if _NAMES & names or _OF_TOOLS.search(annotation) or pattern.type not in ("identifier", "object_pattern"):
        return None
    if default is not None:
        return None if _OF_TOOLS.search(text_of(default)) else ""
    uses = list(_uses(function, names))
    if pattern.type == "object_pattern":
        defaults = [each.type == "object_assignment_pattern" for each in pattern.named_children]
        means_data = (all(defaults) and bool(defaults)) or (bool(uses) and all(each in _DATA for each in uses))
        return "{}" if means_data else None
    if _PLAIN.fullmatch(annotation):
        return ""
    signs = {"member call"} | ({"given away"} if not annotation or _OPEN.fullmatch(annotation) else set[str]())
    return None if signs & set(uses) else ""


def _uses(function: Node, names: set[str]) -> Iterator[str]:
    """Yields the ways in which a function uses its argument."""
    body = part(function, "body")
    for node in walk(body) if body is not None else ():
        if node.type == "shorthand_property_identifier" and text_of(node) in names:
            yield "data"
        if node.type != "identifier" or text_of(node) not in names or node.parent is None:
            continue
        used, owner = node, node.parent
        while owner.type in _MEMBERS and owner.named_children[0] == used and owner.parent is not None:
            used, owner = owner, owner.parent
        called = owner.type == "call_expression" and part(owner, "function") == used
        if used != node:
            yield "member call" if called else "member"
        elif owner.type in ("template_substitution", "pair", "binary_expression"):
            yield "data"
        else:
            yield "given away"

"""Finds the function to call in a program of definitions."""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.python.names import Names, TooMuch
from corral.programs.syntax.parsing import is_a, part, text_of
from corral.programs.syntax.python import FUNCTIONS, is_async, statements, unwrapped
from corral.programs.syntax.typescript import ENTRY_NAMES

TOOLS = ("tools", "codemode")
"""Names of the global that holds the tools."""

_PARAMETERS = frozenset({"identifier", "typed_parameter", "default_parameter", "typed_default_parameter"})
_PLAIN = re.compile(
    r"[\s|\[\],.]*(?:(?:str|int|float|bool|bytes|None|list|dict|tuple|set|frozenset|date|datetime|List|Dict|Tuple|Set"
    r"|Optional|Union|Sequence|Iterable|Mapping|typing)\b[\s|\[\],.]*)+"
)
"""Annotations that cannot describe the tools."""


class Function(NamedTuple):
    """A function of the module: its name, its definition or lambda, and the statement that binds it."""

    name: str
    node: Node
    statement: Node

    @property
    def is_async(self) -> bool:
        """True if a call returns a coroutine."""
        return is_async(self.node) and not is_generator(self.node)


class Functions:
    """The functions that top-level statements define.

    With `only_usual`, only one with a usual name can be the function to run: later cells can use others.
    """

    def __init__(self, root: Node, names: Names, *, only_usual: bool = False) -> None:
        self._names = names
        self._only_usual = only_usual
        self.all = [defined for each in statements(root) if (defined := _function_of(each)) is not None]
        self._by_name = {function.name: function for function in self.all}

    def named(self, name: str) -> Function | None:
        """Returns the function of a name that is bound once."""
        function = self._by_name.get(name)
        if function is None or function.statement.type == "decorated_definition":
            return None
        try:
            return function if len(self._names.bindings(name)) == 1 else None
        except TooMuch:
            return None

    def unused(self, *, among: list[Node] | None = None) -> Function | None:
        """Returns the function that a program of definitions should run: one with a usual name, or the last one.

        With `among`, functions with other names count only if these statements define them.
        """
        for name in ENTRY_NAMES:
            function = self._by_name.get(name)
            if function is not None and not self._is_used(function):
                return function
        others = [] if self._only_usual else [each for each in self.all if among is None or each.statement in among]
        return next((each for each in reversed(others) if not self._is_used(each)), None)

    def _is_used(self, function: Function) -> bool:
        """True if a function is mentioned outside itself, or its name is bound again."""
        start, end = function.statement.start_byte, function.statement.end_byte
        try:
            return any(not start <= each.node.start_byte < end for each in self._names.in_module(function.name))
        except TooMuch:
            return True


def _function_of(statement: Node) -> Function | None:
    """Returns the function that a statement defines, or binds to a variable."""
    node = statement
    if statement.type == "decorated_definition":
        node = part(statement, "definition") or statement
    if node.type == "function_definition":
        return Function(text_of(part(node, "name")), node, statement)
    assigned = statement.named_children[0] if statement.type == "expression_statement" else None
    left, right = part(assigned, "left"), part(assigned, "right")
    if is_a(assigned, "assignment") and is_a(left, "identifier") and right is not None:
        return Function(text_of(left), unwrapped(right), statement) if unwrapped(right).type == "lambda" else None
    return None


def arguments_for(function: Node) -> str | None:
    """Returns the arguments to call a function with: empty, or the tools. None if it requires others."""
    required: list[str] = []
    keywords: list[str] = []
    first, only_keywords = "", False
    for number, parameter in enumerate(_parameters(function)):
        kind = parameter.type
        name = _name_of(parameter)
        if kind == "keyword_separator" or name is None:
            only_keywords = only_keywords or kind != "positional_separator"
        elif only_keywords and kind in ("identifier", "typed_parameter"):
            keywords.append(name)
        elif not only_keywords:
            first = first or (name if number == 0 else "")
            if kind in ("identifier", "typed_parameter"):
                required.append(name)
    if len(required) + len(keywords) > 1 or any(name not in TOOLS for name in keywords):
        return None
    if keywords:
        return f"{keywords[0]}=tools"
    if first in TOOLS or (required and not _means_else(function, required[0])):
        return "tools"
    return ""


def _means_else(function: Node, name: str) -> bool:
    """True if a parameter is clearly not the tools: by its annotation, or because no member of it is called."""
    parameter = next((each for each in _parameters(function) if _name_of(each) == name), None)
    annotation, text = text_of(part(parameter, "type")), text_of(part(function, "body")).encode()
    if name in TOOLS or "tools" in annotation.lower():
        return False
    if _PLAIN.fullmatch(annotation):
        return True
    word = re.escape(name.encode())
    if re.search(rb"(?<![\w.])%s\s*(?:\.\s*\w+|\[[^\]\n]{0,200}\])+\s*\(" % word, text):
        return False
    return annotation not in ("", "Any", "object") or not re.search(rb"(?<![\w.])%s(?!\w)(?!\s*[.\[])" % word, text)


def first_parameter(function: Node) -> str | None:
    """Returns the name of the parameter that receives the tools."""
    parameter = tools_parameter(function)
    return None if parameter is None else _name_of(parameter)


def tools_parameter(function: Node) -> Node | None:
    parameters = _parameters(function) if arguments_for(function) else []
    return next((each for each in parameters if _name_of(each) is not None), None)


def is_generator(function: Node) -> bool:
    """True if the function itself contains a `yield`."""
    body = part(function, "body")
    if body is None or b"yield" not in (body.text or b""):
        return False
    pending = [body]
    while pending:
        node = pending.pop()
        if node.type == "yield" and node.is_named:
            return True
        pending += [child for child in node.named_children if child.type not in FUNCTIONS]
    return False


def _parameters(function: Node) -> list[Node]:
    parameters = part(function, "parameters")
    return [each for each in parameters.named_children if each.type != "comment"] if parameters is not None else []


def _name_of(parameter: Node) -> str | None:
    if parameter.type == "typed_parameter":
        parameter = parameter.named_children[0]
    elif parameter.type in ("default_parameter", "typed_default_parameter"):
        parameter = part(parameter, "name") or parameter
    return text_of(parameter) if parameter.type == "identifier" else None

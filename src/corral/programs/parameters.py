"""Rewrites a program as a module with one function, in which parameters take the place of literals."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from tree_sitter import Node, Tree

from corral.errors import ConfigError
from corral.programs.edits import Edits
from corral.programs.reading import read_program
from corral.programs.syntax import python as python_grammar
from corral.programs.syntax import typescript as typescript_grammar
from corral.programs.syntax.parsing import is_a, part, text_of
from corral.types import Language

Value: TypeAlias = str | int | float | bool

_BLANK_ENDS = re.compile(r"\A(?:[^\S\n]*\n)+|\s+\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED = frozenset(keyword.kwlist) | frozenset(
    "arguments case catch const debugger default delete do enum eval export extends false function instanceof "
    "implements interface let new null package private protected public super switch this throw tools true typeof "
    "var void".split()
)
"""Words that cannot be variables in one of the languages, and `tools`."""
_LITERALS = frozenset("string number integer float true false unary_expression unary_operator".split())
_FIXED = frozenset(
    "import_statement literal_type case_pattern union_pattern keyword_pattern dict_pattern concatenated_string "
    "property_signature method_signature method_definition pair_pattern enum_body enum_assignment".split()
)
"""Nodes whose literals cannot be variables, or would mean something else as variables."""
_STRINGS = frozenset(("string", "template_string"))
_IDENTIFIERS = frozenset(("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"))
_TYPES: Mapping[Language, Mapping[type, str]] = {
    "typescript": {str: "string", bool: "boolean", int: "number", float: "number"},
    "python": {str: "str", bool: "bool", int: "int", float: "float"},
}


class ProgramFunction(NamedTuple):
    """Module with one function: `report({ days })` in TypeScript, `report(tools, *, days)` in Python."""

    source: str
    name: str
    call: str
    """Expression that calls the function with the values of the replaced literals."""


def as_function(source: str, language: Language, name: str, inputs: Mapping[str, str]) -> ProgramFunction:
    """Returns a program as a function. `inputs` are names of parameters, and the literals that each of them replaces.

    The function does not always do the same: a program can end in other ways than by its last expression.

    Raises:
        ConfigError: the program has no such literal, or uses the name for something else, or does not parse.
    """
    typed = read_program(source, language).typed
    if typed is None:
        raise ConfigError("it does not parse")
    form = _FORMS[language]
    root = form.parse(typed.parsed).root_node
    edits = Edits(typed.text)
    values = _replace_literals(list(typescript_grammar.walk(root)), inputs, edits)
    statements = form.statements(root)
    imports = [each for each in statements if form.moves_imports and each.type == "import_statement"]
    for each in imports:
        edits.blank(each.start_byte, each.end_byte)
    _indent(root, edits)
    if statements and statements[-1].type == "expression_statement":
        edits.insert(statements[-1].start_byte, b"return ")
    name = variable_name(name)
    types = {key: _TYPES[language][type(value)] for key, value in values.items()}
    body = _BLANK_ENDS.sub("", edits.apply()[0].decode())
    text = form.write(name, types, body)
    return ProgramFunction("".join([*(f"{text_of(each)}\n" for each in imports), text]), name, form.call(name, values))


def _write_typescript(name: str, types: Mapping[str, str], body: str) -> str:
    pairs = "; ".join(f"{key}: {kind}" for key, kind in types.items())
    parameter = f"{{ {', '.join(types)} }}: {{ {pairs} }}" if types else ""
    return f"export async function {name}({parameter}) {{\n{body}\n}}\n"


def _write_python(name: str, types: Mapping[str, str], body: str) -> str:
    named = ["*", *(f"{key}: {kind}" for key, kind in types.items())] if types else []
    return f"async def {name}({', '.join(['tools', *named])}):\n{body}\n"


def _call_typescript(name: str, values: Mapping[str, Value]) -> str:
    return f"await {name}({json.dumps(values) if values else ''})"


def _call_python(name: str, values: Mapping[str, Value]) -> str:
    return f"await {name}({', '.join(['tools', *(f'{key}={value!r}' for key, value in values.items())])})"


class _Form(NamedTuple):
    parse: Callable[[bytes], Tree]
    statements: Callable[[Node], list[Node]]
    moves_imports: bool
    """True if a function cannot have them."""
    write: Callable[[str, Mapping[str, str], str], str]
    call: Callable[[str, Mapping[str, Value]], str]


_FORMS: Mapping[Language, _Form] = {
    "typescript": _Form(
        typescript_grammar.parse,
        typescript_grammar.statements,
        moves_imports=True,
        write=_write_typescript,
        call=_call_typescript,
    ),
    "python": _Form(
        python_grammar.parse, python_grammar.statements, moves_imports=False, write=_write_python, call=_call_python
    ),
}


def is_variable(name: str) -> bool:
    """True if a program of any language can have a variable of this name."""
    return _NAME.fullmatch(name) is not None and name not in _RESERVED


def variable_name(text: str) -> str:
    """Returns the name of a variable that reads like a text of letters, digits, `-` and `_`."""
    name = text.replace("-", "_")
    return name if is_variable(name) else f"run_{name}"


def _replace_literals(nodes: list[Node], inputs: Mapping[str, str], edits: Edits) -> dict[str, Value]:
    used = {text_of(each) for each in nodes if each.type in _IDENTIFIERS and not _is_key(each)}
    if clash := used & inputs.keys():
        raise ConfigError(f"it has a variable {min(clash)}; choose another name for the input")
    values: dict[str, Value] = {}
    for each in nodes:
        literal = _literal(each)
        if literal is None or (is_a(each.parent, *_FIXED) or _is_key(each)):
            continue
        for name, text in inputs.items():
            if text in (literal, json.dumps(literal), text_of(each)) and values.setdefault(name, literal) == literal:
                edits.replace(each.start_byte, each.end_byte, name.encode())
                break
    if missing := [name for name in inputs if name not in values]:
        raise ConfigError(f"it has no text, number or truth value {inputs[missing[0]][:80]!r} for {missing[0]}")
    return {name: values[name] for name in inputs}


def _literal(node: Node) -> Value | None:
    """Returns the value of a text without escapes, a number or a truth value; None for other nodes."""
    text = text_of(node)
    if node.type == "string":
        is_plain = text[:1] in "'\"" and not text.startswith(('"""', "'''")) and "\\" not in text
        return text[1:-1] if is_plain else None
    if node.type not in _LITERALS:
        return None
    try:
        value: object = json.loads(text.lower())
    except ValueError:
        return None
    return value if isinstance(value, int | float) else None


def _is_key(node: Node) -> bool:
    """True for the name of a member or of an argument."""
    above = node.parent
    return above is not None and (
        (
            above.type == "pair"
            and part(above, "key") == node
            and above.parent is not None
            and above.parent.type == "object"
        )
        or (above.type == "keyword_argument" and part(above, "name") == node)
        or (above.type == "attribute" and part(above, "attribute") == node)
    )


def _indent(root: Node, edits: Edits) -> None:
    """Indents all lines with text, except those that begin within a string."""
    inside: set[int] = set()
    for each in typescript_grammar.walk(root):
        if each.type in _STRINGS:
            inside.update(range(each.start_point.row + 1, each.end_point.row + 1))
    at = 0
    for row, line in enumerate(edits.text.splitlines(keepends=True)):
        if line.strip() and row not in inside:
            edits.insert(at, b"    ")
        at += len(line)

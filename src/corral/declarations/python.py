"""Tools as stubs of Python: what a model reads, and what its program is checked against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from corral.declarations.algebra import union
from corral.declarations.constants import constants
from corral.declarations.describing import text_lines
from corral.declarations.languages import PYTHON
from corral.declarations.python_text import commented, constant_text, docstring, indented, is_name, quoted, told
from corral.declarations.python_types import PythonTypes, Scope, extra_items, listed, worked_out
from corral.declarations.shapes import UNKNOWN, Constant, Object, Property, Reference, Shape
from corral.declarations.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.declarations.traits import members_of
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.types import ToolName

__all__ = ["declare_python", "print_python", "python_call"]

_LINE_CHARACTERS = 100
_MAX_HOPS = 20
_BY_POSITION = {ToolName(None, name) for name in RESERVED_ROOT_NAMES}
"""Corral's own tools, which take their first parameter by position too; no other tools have these names."""


def declare_python(tools: Mapping[ToolName, ToolShape]) -> str:
    """Declares `tools`, its alias `codemode`, and the types that they mention: the text of a stub file.

    A tool takes keywords if its input is an object of known members that can be written so; else its whole input, by
    position. The text is the same whatever the order of the tools. It never throws: what a type cannot express is
    widened, up to `Any`, and whatever the texts and names in the schemas contain stays a text or a name.
    """
    return print_python(read_signatures(tools, PYTHON)) + "codemode = tools\n"


def print_python(signatures: Mapping[ToolName, Signature], *, line_characters: float = _LINE_CHARACTERS) -> str:
    """Declares `tools`, and the types that it mentions. `line_characters` is how long a `def` on one line may be."""
    signatures = {name: _with_keywords(name, each) for name, each in signatures.items()}
    own_names = {part for name in signatures for part in (name.namespace, name.name) if part}
    names = TypeNames(PYTHON.taken | own_names | {"tools", "codemode"})
    types = PythonTypes(name_definitions(signatures.values(), names), names)
    tree = _tree(signatures, types, line_characters)
    return "".join(f"{line}\n" for line in (*types.declarations(), *tree))


def python_call(name: ToolName, signature: Signature) -> str | None:
    """One line that says how a tool is called that mentions no definitions; None if it takes more than a line."""
    types = PythonTypes({}, TypeNames())
    path = _attribute("tools" if name.namespace is None else _attribute("tools", name.namespace), name.name)
    parameters, returned = _parameters(name, _with_keywords(name, signature), types, Scope(name.name))
    return None if types.needs_declarations else f"{path}({', '.join(parameters)}) -> {returned}"


def _with_keywords(name: ToolName, signature: Signature) -> Signature:
    members = members_of(signature.input) if name in _BY_POSITION else (signature.input,)
    found = next((keywords for keywords in map(_keywords, members) if keywords), None)
    return signature._replace(input=found or signature.input)


def _tree(signatures: Mapping[ToolName, Signature], types: PythonTypes, line_characters: float) -> list[str]:
    """The class `tools`: methods without a namespace first, then a class for each namespace."""
    entries: list[str] = []
    names = {name.namespace or name.name for name in signatures}
    for namespace, group in groupby(signatures.items(), key=lambda item: item[0].namespace):
        members = dict(group)
        owner, shadowed = (
            ("tools", names) if namespace is None else (_attribute("tools", namespace), {each.name for each in members})
        )
        scope = frozenset(shadowed)
        methods: list[str] = []
        for name, signature in members.items():
            method = _method(name, signature, types, Scope(name.name, scope), line_characters)
            methods += _written(owner, name.name, method)
        entries += methods if namespace is None else _written("tools", namespace, _class(namespace, methods))
    return _class("tools", entries)


def _class(name: str, entries: list[str]) -> list[str]:
    is_empty = all(line.startswith("#") for line in entries)
    return [f"class {name}:", *indented([*entries, *(["..."] if is_empty else [])])]


def _written(owner: str, name: str, lines: list[str]) -> list[str]:
    """The declaration; as a comment that says how to get at it, if what it declares has no name in Python."""
    return lines if is_name(name) else commented([_attribute(owner, name), *lines])


def _attribute(owner: str, name: str) -> str:
    return f"{owner}.{name}" if is_name(name) else f"getattr({owner}, {quoted(name)})"


def _method(
    name: ToolName, signature: Signature, types: PythonTypes, scope: Scope, line_characters: float
) -> list[str]:
    told_of_parameters: list[str] = []
    keywords = _keywords(signature.input)
    for each in keywords.properties if keywords else ():
        told_of_parameters += _section(each.name, told(each.doc, default=_default(each) in ("", "...")))
    parameters, returned = _parameters(name, signature, types, scope)
    lines = text_lines(signature.doc.text)
    rest = [
        *(["Args:", *indented(told_of_parameters)] if told_of_parameters else []),
        *(line for tag, text in signature.doc.tags for line in _section(tag.capitalize(), text_lines(text))),
    ]
    documented = docstring([*lines, *([""] if lines and rest else []), *rest])
    start, end = f"async def {name.name}(", f") -> {returned}:{'' if documented else ' ...'}"
    head = [f"{start}{', '.join(parameters)}{end}"]
    if len(head[0]) > line_characters and parameters:
        head = [start, *indented([f"{each}," for each in parameters]), end]
    return ["@staticmethod", *head, *indented(documented)]


def _parameters(name: ToolName, signature: Signature, types: PythonTypes, scope: Scope) -> tuple[list[str], str]:
    """What the function is declared to take, and the type of what it returns."""
    keywords = _keywords(signature.input)
    if keywords is None:
        given = types.show(signature.input, f"{name.name}-input", scope)
        parameters = [f"input: {given}{'' if signature.needs_input else ' = ...'}", "/"]
    else:
        parameters = [_parameter(each, types.show(each.shape, each.name, scope)) for each in keywords.properties]
        by_position = 1 if name in _BY_POSITION else 0
        if len(parameters) > by_position:
            parameters.insert(by_position, "*")
    return parameters, types.show(signature.output, f"{name.name}-output", scope)


def _parameter(each: Property, shown: str) -> str:
    default = _default(each)
    return f"{each.name}: {shown}{default and f' = {default}'}"


def _section(name: str, lines: list[str]) -> list[str]:
    return [f"{name}: {lines[0]}", *indented(lines[1:])] if lines else []


def _keywords(shape: Shape) -> Object | None:
    """The object whose members can be keywords of a call; None if a call has to pass the input as one value."""
    for _ in range(_MAX_HOPS):
        if not isinstance(shape, Reference):
            break
        shape = shape.definition.shape or UNKNOWN
    shape = worked_out(shape)
    if not isinstance(shape, Object) or extra_items(shape) is not None:
        return None
    properties = listed(shape)
    is_open = not properties and shape.additional is None
    return (
        None if is_open or not all(is_name(each.name) for each in properties) else replace(shape, properties=properties)
    )


def _default(each: Property) -> str:
    """The default of a parameter: none if it is required, `...` if it is not known, too large, or of another type."""
    if each.required:
        return ""
    value: object = None if each.doc.default is None else json.loads(each.doc.default)
    if each.doc.default is None or isinstance(value, list | dict):
        return "..."
    accepted = each.shape.definition.shape or UNKNOWN if isinstance(each.shape, Reference) else each.shape
    given = constants([value])
    if union((accepted, given)) != accepted:
        return "..."
    return constant_text(given) if isinstance(given, Constant) else "None"

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
from corral.declarations.traits import traits
from corral.types import ToolName

__all__ = ["declare_python"]

_LINE_CHARACTERS = 100
_MAX_HOPS = 20


def declare_python(tools: Mapping[ToolName, ToolShape]) -> str:
    """Declares `tools`, its alias `codemode`, and the types that they mention: the text of a stub file.

    A tool takes keywords if its input is an object of known members that can be written so; else its whole input, by
    position. The text is the same whatever the order of the tools. It never throws: what a type cannot express is
    widened, up to `Any`, and whatever the texts and names in the schemas contain stays a text or a name.
    """
    signatures = {
        name: each._replace(input=_keywords(each.input) or each.input)
        for name, each in read_signatures(tools, PYTHON).items()
    }
    own_names = {part for name in tools for part in (name.namespace, name.name) if part}
    names = TypeNames(PYTHON.taken | own_names | {"tools", "codemode"})
    types = PythonTypes(name_definitions(signatures.values(), names), names)
    tree = _tree(signatures, types)
    return "".join(f"{line}\n" for line in (*types.declarations(), *tree, "codemode = tools"))


def _tree(signatures: Mapping[ToolName, Signature], types: PythonTypes) -> list[str]:
    """The class `tools`: methods without a namespace first, then a class for each namespace."""
    entries: list[str] = []
    names = {name.namespace or name.name for name in signatures}
    for namespace, group in groupby(signatures.items(), key=lambda item: item[0].namespace):
        members = {name.name: signature for name, signature in group}
        owner, shadowed = ("tools", names) if namespace is None else (_attribute("tools", namespace), members)
        methods: list[str] = []
        for name, signature in members.items():
            methods += _written(owner, name, _method(name, signature, types, frozenset(shadowed)))
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


def _method(name: str, signature: Signature, types: PythonTypes, shadowed: frozenset[str]) -> list[str]:
    scope = Scope(name, shadowed)
    keywords = _keywords(signature.input)
    parameters = ["*"] if keywords and keywords.properties else []
    told_of_parameters: list[str] = []
    for each in keywords.properties if keywords else ():
        default = "" if each.required else _default(each)
        parameters.append(f"{each.name}: {types.show(each.shape, each.name, scope)}{default and f' = {default}'}")
        lines = told(each.doc, default=default in ("", "..."))
        told_of_parameters += _section(each.name, lines)
    if keywords is None:
        given = types.show(signature.input, f"{name}-input", scope)
        parameters = [f"input: {given}{' = ...' if traits(signature.input).accepts_empty else ''}", "/"]
    returned = types.show(signature.output, f"{name}-output", scope)
    lines = text_lines(signature.doc.text)
    rest = [
        *(["Args:", *indented(told_of_parameters)] if told_of_parameters else []),
        *(line for tag, text in signature.doc.tags for line in _section(tag.capitalize(), text_lines(text))),
    ]
    documented = docstring([*lines, *([""] if lines and rest else []), *rest])
    start, end = f"async def {name}(", f") -> {returned}:{'' if documented else ' ...'}"
    head = [f"{start}{', '.join(parameters)}{end}"]
    if len(head[0]) > _LINE_CHARACTERS and parameters:
        head = [start, *indented([f"{each}," for each in parameters]), end]
    return ["@staticmethod", *head, *indented(documented)]


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
    """The default of an optional parameter: `...` if it is not known, or too large, or not of the parameter's type."""
    value: object = None if each.doc.default is None else json.loads(each.doc.default)
    if each.doc.default is None or isinstance(value, list | dict):
        return "..."
    accepted = each.shape.definition.shape or UNKNOWN if isinstance(each.shape, Reference) else each.shape
    given = constants([value])
    if union((accepted, given)) != accepted:
        return "..."
    return constant_text(given) if isinstance(given, Constant) else "None"

"""Tools as stubs of Python: what a model reads, and what its program is checked against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from corral.model.printing.abbreviations import abbreviate
from corral.model.printing.named_types import share
from corral.model.printing.python_text import (
    commented,
    constant_text,
    docstring,
    indented,
    is_name,
    quoted,
    told,
    with_comment,
)
from corral.model.printing.python_types import ExpressionScope, PythonTypes, extra_items, listed, worked_out
from corral.model.printing.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.model.shapes.algebra import union
from corral.model.shapes.constants import constants
from corral.model.shapes.descriptions import told_of_tool
from corral.model.shapes.shape import NEVER, UNKNOWN, Constant, Object, Property, Shape, TypeReference
from corral.model.shapes.traits import members_of
from corral.model.shapes.type_systems import PYTHON
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.types import ToolName

_LINE_CHARACTERS = 240
_MAX_HOPS = 20
_NO_INPUT = Object(additional=NEVER)
_BY_POSITION = {ToolName(None, name) for name in RESERVED_ROOT_NAMES}
"""Corral's own tools, which take their first parameter by position too; no other tools have these names."""
_STREAM = """\
import typing as _typing
_Item = _typing.TypeVar("_Item", covariant=True)
class ToolStream(_typing.AsyncIterator[_Item], _typing.Awaitable[_typing.AsyncIterator[_Item]]):
    async def aclose(self) -> None: ...
"""
"""Type of a stream for a checker: programs may await the call, or read it at once."""
_ALIAS = "codemode = tools\n"


def declare_python(tools: Mapping[ToolName, ToolShape], *, checked: bool = False) -> str:
    """Declares `tools`, its alias `codemode`, and the types that they mention: the text of a stub file.

    A tool takes keywords if its input is an object of known members that can be written so; else its whole input, by
    position. The text is the same whatever the order of the tools. It never throws: what a type cannot express is
    widened, up to `Any`, and whatever the texts and names in the schemas contain stays a text or a name.

    Args:
        tools: by the names that programs call them by.
        checked: for a type checker and not for a reader: without texts.
    """
    signatures = share(read_signatures(tools, PYTHON), PYTHON, texts=not checked)
    return print_python(signatures, checked=checked) + _ALIAS


def print_python(signatures: Mapping[ToolName, Signature], *, checked: bool = False) -> str:
    """Declares `tools`, and the types that it mentions."""
    signatures = {name: _with_keywords(name, each, checked=checked) for name, each in signatures.items()}
    own_names = {part for name in signatures for part in (name.namespace, name.name) if part}
    legend = abbreviate({name: each.doc for name, each in signatures.items()})
    signatures = {name: each._replace(doc=legend.docs[name]) for name, each in signatures.items()}
    names = TypeNames(PYTHON.taken | own_names | {"tools", "codemode"})
    stream = names.pick("ToolStream") if checked and any(each.is_stream for each in signatures.values()) else None
    types = PythonTypes(name_definitions(signatures.values(), names), names, stream)
    tree = _tree(signatures, types)
    lines = (*types.declarations(), *commented(legend.lines), *tree)
    return "".join(f"{line}\n" for line in lines) + (_STREAM.replace("ToolStream", stream) if stream else "")


def python_call(name: ToolName, signature: Signature) -> str | None:
    """One line that says how a tool is called that mentions no definitions; None if it takes more than a line."""
    types = PythonTypes({}, TypeNames())
    path = _attribute("tools" if name.namespace is None else _attribute("tools", name.namespace), name.name)
    parameters, returned = _parameters(name, _with_keywords(name, signature), types, ExpressionScope(name.name))
    shown = ", ".join(each.text for each in parameters)
    return None if types.needs_declarations else f"{path}({shown}) -> {returned}"


def _with_keywords(name: ToolName, signature: Signature, *, checked: bool = False) -> Signature:
    """The signature with an input that is written as keywords, if there is a way to."""
    if signature.is_empty and not checked:
        return signature._replace(input=_NO_INPUT)
    members = members_of(signature.input) if name in _BY_POSITION else (signature.input,)
    found = next((keywords for keywords in map(_keywords, members) if keywords), None)
    return signature._replace(input=found or signature.input)


def _tree(signatures: Mapping[ToolName, Signature], types: PythonTypes) -> list[str]:
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
            method = _method(name, signature, types, ExpressionScope(name.name, scope))
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


def _method(name: ToolName, signature: Signature, types: PythonTypes, scope: ExpressionScope) -> list[str]:
    parameters, returned = _parameters(name, signature, types, scope)
    documented = docstring(told_of_tool(signature.doc))
    start, end = (
        f"{'def' if signature.is_stream else 'async def'} {name.name}(",
        f") -> {returned}:{'' if documented else ' ...'}",
    )
    head = [f"{start}{', '.join(each.text for each in parameters)}{end}"]
    if any(each.told for each in parameters) or (len(head[0]) > _LINE_CHARACTERS and parameters):
        star = "*," if parameters[0].text == "*" else ""
        lines = [with_comment(f"{each.text},", each.told) for each in parameters[bool(star) :]]
        head = [f"{start}{star}", *indented([line for each in lines for line in each]), end]
    return ["@staticmethod", *head, *indented(documented)]


class _Parameter(NamedTuple):
    text: str
    told: Sequence[str] = ()


def _parameters(
    name: ToolName, signature: Signature, types: PythonTypes, scope: ExpressionScope
) -> tuple[list[_Parameter], str]:
    """The declared parameters of the function, and its return type."""
    keywords = _keywords(signature.input)
    given_in = replace(scope, inline=signature.inline_input)
    if keywords is None:
        given = types.show(signature.input, f"{name.name}-input", given_in)
        parameters = [_Parameter(f"input: {given}{'' if signature.needs_input else ' = ...'}"), _Parameter("/")]
    else:
        parameters = [_parameter(each, types.show(each.shape, each.name, given_in)) for each in keywords.properties]
        by_position = 1 if name in _BY_POSITION else 0
        if len(parameters) > by_position:
            parameters.insert(by_position, _Parameter("*"))
        if signature.is_elided:
            parameters.append(_Parameter(f"**more: {types.show(UNKNOWN, name.name, scope)}"))
    returned = types.show(signature.output, f"{name.name}-output", replace(scope, inline=signature.inline_output))
    return parameters, types.stream(returned, scope) if signature.is_stream else returned


def _parameter(each: Property, shown: str) -> _Parameter:
    default = _default(each)
    told_of_it = told(each.doc, default=default in ("", "..."))
    return _Parameter(f"{each.name}: {shown}{default and f' = {default}'}", told_of_it)


def _keywords(shape: Shape) -> Object | None:
    """The object whose members can be keywords of a call; None if a call has to pass the input as one value."""
    for _ in range(_MAX_HOPS):
        if not isinstance(shape, TypeReference):
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
    accepted = each.shape.definition.shape or UNKNOWN if isinstance(each.shape, TypeReference) else each.shape
    given = constants([value])
    if union((accepted, given)) != accepted:
        return "..."
    return constant_text(given) if isinstance(given, Constant) else "None"

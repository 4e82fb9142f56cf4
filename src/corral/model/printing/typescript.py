"""Prints tools as TypeScript declarations, for models to read and programs to be checked against."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from corral.model.printing.abbreviations import abbreviate
from corral.model.printing.named_types import share
from corral.model.printing.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.model.shapes import descriptions as describing
from corral.model.shapes.algebra import union
from corral.model.shapes.descriptions import tool_lines
from corral.model.shapes.names import string_literal
from corral.model.shapes.shape import (
    NEVER,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Doc,
    Intersection,
    KeyPattern,
    Never,
    Object,
    Primitive,
    Property,
    Shape,
    TypeReference,
    Union,
    Unknown,
)
from corral.model.shapes.traits import layout, members_of
from corral.model.shapes.type_systems import TYPESCRIPT
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.types import ToolName

_BARE_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_DIRECTIVE = re.compile(r"^(\s*)@")
"""Matches directives such as `@ts-ignore`, which compilers recognise at the start of a comment."""
_ESCAPED = r"\1\\@"
_LINE_CHARACTERS = 240
"""Maximum length of an object type on one line."""
_PRIMITIVES = {"bytes": "Uint8Array", "integer": "number", "object": "{…}"}
_OBJECT_MEMBERS = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf")
)
"""Members that every TypeScript object has: an optional property with such a name must allow their types."""


def _type_expression(shape: Shape, names: Mapping[Definition, str], *, unknown: str = "unknown") -> str:
    """Prints the type, on one line if it is short and has no comments. Each definition in it needs a name.

    `unknown` is printed for unknown types.
    """
    return _Printer(names, unknown).show(shape)


def indented(text: str) -> str:
    """Indents the text by two columns. This is safe because no literal contains a line break."""
    return "\n".join(f"  {line}" if line else line for line in text.split("\n"))


def commented(lines: Sequence[str]) -> str:
    """Returns the lines as comments that cannot become directives."""
    return "".join(f"{_comment(line)}\n" for line in lines)


def description_lines(doc: Doc) -> list[str]:
    return describing.description_lines(doc, default=None if doc.default == "null" else doc.default)


def _property_key(name: str) -> str:
    """Returns the name as a key of an object type, quoted if necessary."""
    return name if _BARE_KEY.fullmatch(name) else string_literal(name)


class _Printer:
    def __init__(self, names: Mapping[Definition, str], unknown: str) -> None:
        self._names = names
        self._unknown = unknown

    def show(self, shape: Shape) -> str:
        match shape:
            case Unknown():
                return self._unknown
            case Never():
                return "never"
            case Primitive(kind=kind):
                return _PRIMITIVES.get(kind, kind)
            case Constant(text=text):
                return text
            case TypeReference(definition=definition):
                return self._names[definition]
            case Union(members=members):
                return " | ".join(self._grouped(member, Intersection) for member in members)
            case Intersection(members=members):
                return " & ".join(self._grouped(member, Union) for member in members)
            case Array():
                return self._array(shape)
            case Object():
                return self._object(shape)

    def _grouped(self, shape: Shape, *loose: type[Shape]) -> str:
        text = self.show(shape)
        return f"({text})" if isinstance(shape, loose) else text

    # --- arrays

    def _array(self, shape: Array) -> str:
        tuple_layout = layout(shape)
        if tuple_layout is None:
            return "never"
        spread = [] if tuple_layout.rest is None else [f"{self._grouped(tuple_layout.rest, Union, Intersection)}[]"]
        if spread and not tuple_layout.spelt:
            return spread[0]
        required = map(self.show, tuple_layout.spelt[: tuple_layout.required])
        optional = (
            f"{self._grouped(item, Union, Intersection)}?" for item in tuple_layout.spelt[tuple_layout.required :]
        )
        return f"[{', '.join((*required, *optional, *(f'...{items}' for items in spread)))}]"

    # --- objects

    def _object(self, shape: Object) -> str:
        members = [*map(self._property, shape.properties), *self._index_signatures(shape)]
        if not members:
            return f"Record<string, {'never' if shape.additional == NEVER else self._unknown}>"
        if not shape.properties and not shape.patterns and isinstance(shape.additional, Primitive | Unknown):
            return f"Record<string, {self.show(shape.additional)}>"
        texts = [description_lines(each.doc) for each in shape.properties]
        line = f"{{ {'; '.join(members)} }}"
        if len(line) <= _LINE_CHARACTERS and "\n" not in line and not any(texts):
            return line
        texts += [[]] * (len(members) - len(texts))
        return "\n".join(("{", *map(_member, members, texts), "}"))

    def _property(self, each: Property) -> str:
        optional = "" if each.required else "?"
        types = " | ".join((self.show(each.shape), *_inherited(each)))
        return f"{_property_key(each.name)}{optional}: {types}"

    def _index_signatures(self, shape: Object) -> Iterator[str]:
        """Yields index signatures. Each must allow the types of all properties and narrower signatures in its range."""
        is_explicit = shape.additional not in (None, NEVER)
        general = [shape.additional] if is_explicit and shape.additional is not None else []
        templates: dict[KeyPattern, Shape] = {}
        for pattern, value in shape.patterns:
            if pattern.covers("") or (is_explicit and not pattern.exact):
                general.append(value)
            else:
                template = replace(pattern, exact=True)
                templates[template] = union((templates.get(template, NEVER), value))
        for pattern in templates:
            narrower = [value for other, value in templates.items() if pattern.covers(other)]
            inside = [each for each in shape.properties if pattern.covers(each.name)]
            yield f"[key: {_template(pattern)}]: {self._index_type(narrower, inside)}"
        if general:
            yield f"[key: string]: {self._index_type([*general, *templates.values()], shape.properties)}"

    def _index_type(self, values: Sequence[Shape], properties: Sequence[Property]) -> str:
        shape = union((*values, *(each.shape for each in properties)))
        if shape == UNKNOWN:
            return self._unknown
        absent = ["undefined"] if any(not each.required for each in properties) else []
        inherited = [name for each in properties for name in _inherited(each)]
        return " | ".join((self.show(shape), *absent, *inherited))


def _member(member: str, lines: Sequence[str]) -> str:
    """Prints a line of an object's type; a one-line comment goes at its end, a longer one above it."""
    if len(lines) == 1 and "\n" not in member:
        return indented(f"{member}; {_comment(lines[0])}")
    return indented(f"{commented(lines)}{member};")


def _comment(line: str) -> str:
    return f"// {_DIRECTIVE.sub(_ESCAPED, line)}"


def _inherited(each: Property) -> list[str]:
    return [f'Object["{each.name}"]'] if each.name in _OBJECT_MEMBERS and not each.required else []


def _template(pattern: KeyPattern) -> str:
    return f"`{_template_text(pattern.prefix)}${{{pattern.hole}}}{_template_text(pattern.suffix)}`"


def _template_text(text: str) -> str:
    return string_literal(text)[1:-1].replace('\\"', '"').replace("`", "\\`").replace("${", "\\${")


_WITH_OPTIONS = {ToolName(None, name) for name in RESERVED_ROOT_NAMES}
"""Corral's own tools, which take their first member by position and options after it. Their names are reserved."""
_ALIAS = "declare const codemode: typeof tools;\n"


def declare_typescript(tools: Mapping[ToolName, ToolShape], *, checked: bool = False) -> str:
    """Declares `tools`, its alias `codemode`, and a type for each definition that the schemas refer to.

    The text does not depend on the order of the tools. Never raises: types that TypeScript cannot express are widened,
    up to `unknown`, and texts and names in the schemas cannot break out of their place.

    Args:
        tools: by their names in programs.
        checked: prints for a compiler instead of a reader: without descriptions, with `any` for unknown types, and so
            that a tool without input can be called with `{}`.
    """
    signatures = share(read_signatures(tools, TYPESCRIPT), TYPESCRIPT, texts=not checked)
    return print_typescript(signatures, checked=checked) + _ALIAS


def print_typescript(signatures: Mapping[ToolName, Signature], *, checked: bool = False) -> str:
    """Declares `tools`, and the types that they mention."""
    names = name_definitions(signatures.values(), TypeNames())
    show = partial(_type_expression, names=names, unknown="any" if checked else "unknown")
    types = [
        f"{commented(description_lines(definition.doc))}type {name} = {show(definition.shape or UNKNOWN)};\n"
        for definition, name in sorted(names.items(), key=lambda item: item[1])
    ]
    legend = abbreviate({name: each.doc for name, each in signatures.items()})
    methods = {
        name: f"{commented(tool_lines(legend.docs[name]))}{_method(name, each, show, checked=checked)};"
        for name, each in signatures.items()
    }
    return "".join((*types, commented(legend.lines), f"declare const tools: {_tree(methods)};\n"))


def typescript_call(name: ToolName, signature: Signature) -> str:
    """Prints the call to a tool that mentions no definitions on one line, without comments."""
    return f"tools.{name}{_parameters(signature, partial(_type_expression, names={}))}"


def _method(name: ToolName, signature: Signature, show: Callable[[Shape], str], *, checked: bool) -> str:
    options = members_of(signature.input) if checked and name in _WITH_OPTIONS else ()
    options = [each for each in options if isinstance(each, Object)]
    return f"{_property_key(name.name)}{_parameters(signature, show, options, checked=checked)}"


def _parameters(
    signature: Signature, show: Callable[[Shape], str], options: Iterable[Object] = (), *, checked: bool = False
) -> str:
    optional = "" if signature.needs_input else "?"
    if signature.is_elided and isinstance(signature.input, Object):
        signature = signature._replace(input=replace(signature.input, additional=UNKNOWN))
    parameters = "" if signature.is_empty and not checked else f"input{optional}: {show(signature.input)}"
    parameters += "".join(f", options?: Partial<{show(each)}>" for each in options)
    output = show(signature.output)
    if signature.is_stream:
        return f"({parameters}): AsyncIterable<{output}>"
    return f"({parameters}): Promise<{'void' if output == 'null' else output}>"


def _tree(methods: Mapping[ToolName, str]) -> str:
    """Prints the type of `tools`: methods without a namespace first, then an object for each namespace."""
    entries: list[str] = []
    for namespace, group in groupby(methods.items(), key=lambda item: item[0].namespace):
        members = [method for _, method in group]
        entries += members if namespace is None else [f"{_property_key(namespace)}: {_block(members)};"]
    return _block(entries)


def _block(entries: list[str]) -> str:
    return "\n".join(("{", *map(indented, entries), "}")) if entries else "{}"

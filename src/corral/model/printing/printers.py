"""Prints tools in either language: in full, shortened, or as one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from functools import partial, reduce
from itertools import product
from typing import NamedTuple

from corral.languages import LANGUAGES
from corral.model.printing.named_types import share
from corral.model.printing.python import declare_python, print_python, python_call
from corral.model.printing.schema_weight import outline, reachable_weight
from corral.model.printing.signatures import Signature, ToolShape, in_order, read_signature
from corral.model.printing.typescript import declare_typescript, print_typescript, typescript_call
from corral.model.shapes import type_systems
from corral.model.shapes.algebra import intersect, union
from corral.model.shapes.definitions import Definitions
from corral.model.shapes.descriptions import summary
from corral.model.shapes.shape import (
    ANY_ARRAY,
    BOOLEAN,
    ELIDED,
    NEVER,
    NUMBER,
    STRING,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Doc,
    Intersection,
    Object,
    Property,
    Shape,
    TypeReference,
    Union,
)
from corral.types import Language, ToolName

_MAX_PARTS, _MAX_WHOLE_PARTS = 200, 4_000
"""Maximum number of shapes visited within one; further ones are widened. The second number is for descriptions."""
_MAX_PROPERTIES = 20
_MOST_KEPT = (16, 8, 4, 2)
"""Number of members shown of an input whose members do not all fit."""
_MAX_HOPS = 20
_MAX_MEMBERS = 8
_MAX_CONSTANT_CHARACTERS = 30
_MAX_ITEMS = 4
_MAX_ARRAYS = 5
"""Maximum array nesting."""
_KINDS = {"string": STRING, "number": NUMBER, "boolean": BOOLEAN}


class _Depth(NamedTuple):
    """Maximum nesting of printed objects in an input and in an output. Members of deeper ones are omitted."""

    input: int
    output: int


_DEPTHS = (_Depth(2, 2), _Depth(2, 1), _Depth(1, 1), _Depth(1, 0), _Depth(0, 0))


def shortened(signature: Signature, show: Callable[[Signature], str | None], characters: int) -> Signature:
    """Returns the first of ever shorter forms of the signature that takes at most `characters`.

    Levels of objects go first, then members of the input, then everything but the kind of the output; in the last form
    the output is unknown.
    """
    for shorter in _forms(signature):
        shown = show(shorter)
        if shown is not None and len(shown) <= characters:
            return shorter
    return Signature(UNKNOWN, UNKNOWN, Doc(), omissible=not signature.needs_input, is_empty=signature.is_empty)


def _forms(signature: Signature) -> Iterator[Signature]:
    members = _members(signature.input)
    for depth in _DEPTHS[:-1] if len(members) <= _MAX_PROPERTIES else ():
        yield _in_depth(signature, depth)
    for depth, most in product(_DEPTHS[-3:-1], _MOST_KEPT):
        if len(members) > most:
            kept = set(list(dict.fromkeys((*(each for each in members if each.required), *members)))[:most])
            shorter_input = Object(tuple(each for each in members if each in kept))
            yield _in_depth(signature._replace(input=shorter_input), depth)._replace(
                omissible=not signature.needs_input, is_elided=True
            )
    yield _in_depth(signature, _DEPTHS[-1])


def _members(shape: Shape) -> tuple[Property, ...]:
    for _ in range(_MAX_HOPS):
        if not isinstance(shape, TypeReference):
            break
        shape = shape.definition.shape or UNKNOWN
    is_plain = isinstance(shape, Object) and not shape.patterns and shape.additional in (None, NEVER)
    return shape.properties if isinstance(shape, Object) and is_plain else ()


def _in_depth(signature: Signature, depth: _Depth) -> Signature:
    return Signature(
        _Shortening().shape(signature.input, depth.input),
        _Shortening().shape(signature.output, depth.output),
        Doc(),
        omissible=not signature.needs_input,
        is_empty=signature.is_empty,
        inline_input=True,
        inline_output=True,
    )


class _Shortening:
    """Shortens a shape. With `whole`, only cuts off objects that are too deep, and keeps all details of the others."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._parts = _MAX_WHOLE_PARTS if whole else _MAX_PARTS
        self.elides = False
        """True once members of an object were left out."""
        self._arrays = 0
        self._within: list[Definition] = []
        """Definitions that are being expanded."""

    def shape(self, shape: Shape, levels: int) -> Shape:
        self._parts -= 1
        match shape:
            case Constant(kind=kind, text=text) if len(text) > _MAX_CONSTANT_CHARACTERS and not self._whole:
                return _KINDS[kind]
            case TypeReference(definition=definition):
                return self._definition(definition, levels)
            case Array():
                return self._array(shape, levels) if self._parts > 0 else ANY_ARRAY
            case Object():
                return self._object(shape, levels)
            case Union(members=members):
                return self._union(members, levels)
            case Intersection(members=members):
                return reduce(intersect, (self.shape(each, levels) for each in members), UNKNOWN)
            case _:
                return shape

    def _definition(self, definition: Definition, levels: int) -> Shape:
        shape = definition.shape
        if shape is None or definition in self._within:
            return self._elided() if isinstance(shape, Object) else UNKNOWN
        self._within.append(definition)
        try:
            return self.shape(shape, levels)
        finally:
            self._within.pop()

    def _array(self, shape: Array, levels: int) -> Shape:
        if len(shape.prefix) > _MAX_ITEMS or self._arrays == _MAX_ARRAYS:
            return ANY_ARRAY
        self._arrays += 1
        rest = None if shape.rest is None else self.shape(shape.rest, levels)
        prefix = tuple(self.shape(each, levels) for each in shape.prefix)
        self._arrays -= 1
        return Array(prefix, rest, shape.min_items, shape.max_items)

    def _object(self, shape: Object, levels: int) -> Shape:
        if not shape.properties:
            values = [value for _, value in shape.patterns]
            values += [] if shape.additional in (None, NEVER) else [shape.additional]
            value = union(self.shape(each, max(levels - 1, 0)) for each in values)
            return Object(additional=value) if values and value != UNKNOWN else replace(shape, additional=None)
        if levels == 0 or self._parts <= 0:
            return self._elided()
        if self._whole:
            properties = tuple(replace(each, shape=self.shape(each.shape, levels - 1)) for each in shape.properties)
            patterns = tuple((pattern, self.shape(value, levels - 1)) for pattern, value in shape.patterns)
            additional = None if shape.additional is None else self.shape(shape.additional, levels - 1)
            return replace(shape, properties=properties, patterns=patterns, additional=additional)
        if len(shape.properties) > _MAX_PROPERTIES:
            return self._elided()
        return Object(
            tuple(Property(each.name, self.shape(each.shape, levels - 1), each.required) for each in shape.properties)
        )

    def _elided(self) -> Shape:
        self.elides = True
        return ELIDED

    def _union(self, members: tuple[Shape, ...], levels: int) -> Shape:
        """Keeps only the kinds of many constants, and only `object` for many objects."""
        if (len(members) > _MAX_MEMBERS and not self._whole) or self._parts <= 0:
            members = tuple(_KINDS[each.kind] if isinstance(each, Constant) else each for each in members)
            members = tuple(dict.fromkeys(self.shape(each, 0) for each in dict.fromkeys(members)))
            return UNKNOWN if len(members) > _MAX_MEMBERS else union(members)
        return union(self.shape(each, levels) for each in members)


_LINE_CHARACTERS = 240
_HEAVY = 2_000
"""Weight above which a tool is too heavy for most texts. Reading one of this weight takes 20 ms."""
_MOST_HEAVY = 20_000
"""Maximum total weight of heavy tools that are read for a text. Further ones are outlined."""


class Degree(IntEnum):
    """Degree of detail for a tool. Each degree adds to the one before it."""

    COUNTED = 0
    NAMED = 1
    SHORT = 2
    """Adds the signature, without descriptions or types of other tools."""
    SUMMARIZED = 3
    """Adds the first line of the description."""
    DETAILED = 4
    """Adds everything about the tool and its input. The result is cut to one line."""
    FULL = 5


class _Printer(NamedTuple):
    language: type_systems.TypeSystem
    declare: Callable[[Mapping[ToolName, Signature]], str]
    call: Callable[[ToolName, Signature], str | None]
    declare_all: Callable[..., str]


_PRINTERS: Mapping[Language, _Printer] = {
    "typescript": _Printer(type_systems.TYPESCRIPT, print_typescript, typescript_call, declare_typescript),
    "python": _Printer(type_systems.PYTHON, print_python, python_call, declare_python),
}


def declare_tools(tools: Mapping[ToolName, ToolShape], language: Language, *, checked: bool = False) -> str:
    """Declares all tools in full, for a model or, with `checked`, for a type checker."""
    return _PRINTERS[language].declare_all(tools, checked=checked)


class DegreePrinter:
    """Prints the tools of one text at any degree. Reads each tool when it is first needed."""

    def __init__(self, tools: Mapping[ToolName, ToolShape], language: Language) -> None:
        self._tools = tools
        self._printer = _PRINTERS[language]
        self._definitions = Definitions()
        self._whole: dict[ToolName, Signature] = {}
        self._short: dict[ToolName, Signature] = {}
        self._weights: dict[ToolName, tuple[int, int]] = {}
        self._heavy_room = _MOST_HEAVY
        self._last: tuple[Mapping[ToolName, Degree] | None, str] = None, ""

    def declare(self, degrees: Mapping[ToolName, Degree]) -> str:
        """Declares `tools` with the tools of a higher degree than `NAMED`, and the types that they mention."""
        if degrees != self._last[0]:
            self._last = dict(degrees), self._declare_without_legend(degrees)
        return self._last[1]

    def _declare_without_legend(self, degrees: Mapping[ToolName, Degree]) -> str:
        shown = in_order(name for name, degree in degrees.items() if degree > Degree.NAMED)
        whole = {name: self._read(name) for name in shown if degrees[name] >= Degree.DETAILED}
        shared = share(
            {name: self._detailed(name, each, degrees[name]) for name, each in whole.items()}, self._language
        )
        return self._printer.declare({name: shared.get(name) or self._brief(name, degrees[name]) for name in shown})

    def declare_whole(self) -> str:
        """Declares all tools in full."""
        return self.declare(dict.fromkeys(self._tools, Degree.FULL))

    @property
    def _language(self) -> type_systems.TypeSystem:
        return self._printer.language

    def _read(self, name: ToolName) -> Signature:
        if name not in self._whole:
            tool = self._tools[name]
            if (weight := self.weight(name, Degree.FULL)) > _HEAVY:
                self._heavy_room -= weight
                if self._heavy_room < 0:
                    tool = outline(tool)
            self._whole[name] = read_signature(name, tool, self._language, self._definitions)
        return self._whole[name]

    def weight(self, name: ToolName, degree: Degree) -> int:
        """Returns the weight of the schemas that a tool shows at this degree, in addition to its signature."""
        if degree < Degree.DETAILED:
            return 0
        if name not in self._weights:
            tool = self._tools[name]
            self._weights[name] = reachable_weight(tool.input_schema), reachable_weight(tool.output_schema)
        input_weight, output_weight = self._weights[name]
        return input_weight + output_weight if degree == Degree.FULL else input_weight

    def _detailed(self, name: ToolName, whole: Signature, degree: Degree) -> Signature:
        if degree == Degree.FULL:
            return whole
        return whole._replace(output=self._brief(name, Degree.SHORT).output, inline_output=True)

    def _brief(self, name: ToolName, degree: Degree) -> Signature:
        if name not in self._short:
            self._short[name] = shortened(self._read(name), partial(self._printer.call, name), _LINE_CHARACTERS)
        doc = Doc(summary(self._tools[name].description) if degree > Degree.SHORT else "")
        return self._short[name]._replace(doc=doc)


def declare_in_depth(name: ToolName, tool: ToolShape, language: Language, depth: int) -> str:
    """Declares `tools` with one tool, the types that it mentions, and `depth` levels of objects of its result."""
    printer = _PRINTERS[language]
    whole = read_signature(name, tool, printer.language, Definitions())
    shortening = _Shortening(whole=True)
    output = shortening.shape(whole.output, depth)
    shown = whole._replace(output=output) if shortening.elides else whole
    levels = f"{depth} level{'' if depth == 1 else 's'}"
    remark = f"Objects in the result are shown {levels} deep; describe it with a greater depth to see more.\n"
    declared = printer.declare(share({name: shown}, printer.language))
    return comment_lines(remark, language) + declared if shortening.elides else declared


def declare_short(tools: Mapping[ToolName, ToolShape], language: Language) -> str:
    """Declares tools without descriptions, one line each, and without other types."""
    return DegreePrinter(tools, language).declare(dict.fromkeys(tools, Degree.SHORT))


def one_line(name: ToolName, tool: ToolShape, language: Language) -> str:
    """Prints the tool's signature without descriptions, in at most about 250 characters if its name is short."""
    printer = _PRINTERS[language]
    whole = read_signature(name, tool, printer.language, Definitions())
    short = shortened(whole, partial(printer.call, name), _LINE_CHARACTERS)
    return printer.call(name, short) or f"tools.{name}"


def comment_lines(text: str, language: Language) -> str:
    return "".join(f"{LANGUAGES[language].comment} {line}\n" for line in text.splitlines())

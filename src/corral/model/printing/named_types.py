"""Names types that occur several times, so that each is declared once and then referred to by name.

Two types are equal if they accept the same values and have the same descriptions. A tool's input itself is never
shared, because calls are written from it, but its parts are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import TypeAlias

from corral.model.printing.signatures import RETURNS, Signature
from corral.model.shapes.names import pascal_case
from corral.model.shapes.shape import (
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Doc,
    Intersection,
    Object,
    Primitive,
    Property,
    Shape,
    TypeReference,
    Union,
)
from corral.model.shapes.traits import parts_of
from corral.model.shapes.type_systems import TypeSystem
from corral.types import ToolName

_LEAST_SAVED = 40
"""Minimum number of characters that a name must save to be worth looking up."""
_LEAST_SAVED_BY_ONE_NAME_FOR_TWO = 160
"""The same for a type that occurs under several names, any of which misleads in some places."""
_NAME_CHARACTERS = 16
"""Approximate length of a reference."""
_MAX_NAME_CHARACTERS = 40

_OUTPUT = "-output"
_MAX_NAMING_MEMBERS = 2

_Key: TypeAlias = tuple[object, ...]


@dataclass(eq=False, slots=True)
class _Node:
    """A type, wherever it occurs."""

    shape: Shape
    parts: tuple[_Node, ...]
    described: tuple[_Described, ...]
    """Properties of an object, with their descriptions."""
    characters: int
    hint: str
    """Names that fit the type."""
    uses: int = 0
    has_hints: bool = False
    """True if another name would fit as well."""
    definition: Definition | None = None


@dataclass(eq=False, slots=True)
class _Described:
    """Properties with the same name, type and description."""

    node: _Node
    doc: Doc
    characters: int
    uses: int = 0
    definition: Definition | None = None


def share(
    signatures: Mapping[ToolName, Signature], language: TypeSystem, *, texts: bool = True
) -> dict[ToolName, Signature]:
    """Replaces long types that repeat by references.

    Without `texts`, descriptions are left out.
    """
    sharing = _Sharing(language, texts=texts)
    nodes = {
        name: (
            sharing.enter(each.input, f"{name.name}-input", stays=True),
            sharing.enter(each.output, f"{name.name}{_OUTPUT}"),
        )
        for name, each in signatures.items()
    }
    tools: defaultdict[_Node, list[ToolName]] = defaultdict(list)
    for name, (_, output) in nodes.items():
        output.uses += 1
        tools[output].append(name)
    for output, names in tools.items():
        if len(names) > 1 and output.hint.endswith(_OUTPUT):
            output.hint = _shared_hint(output.shape, names) or output.hint
    sharing.enter_definitions()
    shared: dict[ToolName, Signature] = {}
    for name, (input, returned) in nodes.items():
        doc = signatures[name].doc
        returns = dict(doc.tags).get(RETURNS, "")
        output = sharing.mention(returned, Doc(returns))
        if isinstance(output, TypeReference) and output.definition.doc.text == returns:
            doc = replace(doc, tags=tuple(tag for tag in doc.tags if tag[0] != RETURNS))
        shared[name] = signatures[name]._replace(
            input=sharing.rebuilt(input), output=output, doc=doc if texts else Doc()
        )
    return shared


class _Sharing:
    def __init__(self, language: TypeSystem, *, texts: bool) -> None:
        self._language = language
        self._texts = texts
        self._nodes: dict[_Key, _Node] = {}
        self._described: dict[_Key, _Described] = {}
        self._copies: dict[Definition, Definition] = {}
        self._bodies: dict[Definition, _Node] = {}
        self._waiting: list[Definition] = []

    def enter(self, shape: Shape, hint: str, *, stays: bool = False) -> _Node:
        """Returns the node of the shape. Its parts count as used once, however often the node itself is.

        With `stays`, the node is not shared.
        """
        parts = tuple(map(self.enter, parts_of(shape), _hints(shape, hint)))
        described = tuple(map(self._describe, shape.properties, parts)) if isinstance(shape, Object) else ()
        key = (*_own(shape), *map(id, parts), *map(id, described))
        title = shape.title if isinstance(shape, Object) else ""
        known = None if stays else self._nodes.get(key)
        if known is not None:
            known.has_hints |= (title or hint) != known.hint and not hint.endswith(_OUTPUT)
            return known
        if isinstance(shape, TypeReference) and shape.definition not in self._copies:
            own = shape.definition
            self._copies[own] = self._definition(own.base_name, own.doc, partial(self._body, own))
            self._waiting.append(own)
        characters = _characters(shape) + sum(part.characters for part in parts)
        node = self._nodes[key] = _Node(shape, parts, described, characters, title or hint)
        for each in (*parts, *described):
            each.uses += 1
        return node

    def enter_definitions(self) -> None:
        """Enters everything reachable through references, so that equal types elsewhere get the same names."""
        for definition in self._waiting:  # grows during iteration
            node = self._bodies[definition] = self.enter(definition.shape or UNKNOWN, definition.base_name)
            if node.definition is None and node.characters >= _LEAST_SAVED:
                node.definition = self._copies[definition]

    def mention(self, node: _Node, doc: Doc = Doc()) -> Shape:  # noqa: B008 - it cannot change
        """Returns a reference if the type has a name or deserves one, else the type itself. `doc` describes a new
        name."""
        if node.definition is None and self._is_worth_a_name(node):
            node.definition = self._definition(self._name(node.hint), doc, partial(self.rebuilt, node))
        return TypeReference(node.definition) if node.definition is not None else self.rebuilt(node)

    def rebuilt(self, node: _Node) -> Shape:
        """Returns the type, with references for its named parts."""
        match node.shape:
            case TypeReference(definition=definition):
                return TypeReference(self._copies[definition])
            case Object() as shape:
                properties = tuple(map(self._property, shape.properties, node.parts, node.described))
                others = iter(node.parts[len(properties) :])
                patterns = tuple((pattern, self.mention(next(others))) for pattern, _ in shape.patterns)
                additional = None if shape.additional is None else self.mention(next(others))
                return replace(shape, properties=properties, patterns=patterns, additional=additional)
            case Array(prefix=prefix) as shape:
                parts = tuple(map(self.mention, node.parts))
                rest = parts[len(prefix)] if len(parts) > len(prefix) else None
                return replace(shape, prefix=parts[: len(prefix)], rest=rest)
            case Union():
                return Union(tuple(map(self.mention, node.parts)))
            case Intersection():
                return Intersection(tuple(map(self.mention, node.parts)))
            case shape:
                return shape

    def _describe(self, each: Property, node: _Node) -> _Described:
        key = (each.name, id(node), " ".join(each.doc.text.split()), each.doc.tags)
        if key not in self._described:
            length = sum(map(len, (each.doc.text, *chain.from_iterable(each.doc.tags))))
            self._described[key] = _Described(node, replace(each.doc, default=None), length)
        return self._described[key]

    def _property(self, each: Property, node: _Node, described: _Described) -> Property:
        """Splits off the default, which belongs to the property even if the rest of its description belongs to the
        type."""
        default = Doc(default=each.doc.default)
        if not self._texts:
            return replace(each, shape=self.mention(node), doc=default if self._language.writes_defaults else Doc())
        if described.definition is None and _is_plain(node) and _saved(described) >= _LEAST_SAVED:
            described.definition = self._definition(self._name(each.name), described.doc, partial(self.rebuilt, node))
        if described.definition is not None:
            return replace(each, shape=TypeReference(described.definition), doc=default)
        shape = self.mention(node)
        is_told = isinstance(shape, TypeReference) and replace(each.doc, default=None) == shape.definition.doc
        return replace(each, shape=shape, doc=default if is_told else each.doc)

    def _body(self, definition: Definition) -> Shape:
        return self.rebuilt(self._bodies[definition])

    def _definition(self, name: str, doc: Doc, read: Callable[[], Shape | None]) -> Definition:
        return Definition(name, doc if self._texts else Doc(), read)

    def _name(self, hint: str) -> str:
        return pascal_case(hint, self._language.taken)[:_MAX_NAME_CHARACTERS]

    def _is_worth_a_name(self, node: _Node) -> bool:
        if node.has_hints:
            return isinstance(node.shape, Object | Union) and _saved(node) >= _LEAST_SAVED_BY_ONE_NAME_FOR_TWO
        if isinstance(node.shape, Object) and node.shape.properties and not self._language.has_object_types:
            return node.uses > 1
        return isinstance(node.shape, Object | Union) and _saved(node) >= _LEAST_SAVED


def _shared_hint(shape: Shape, tools: Sequence[ToolName]) -> str | None:
    """Names the result of several tools: after its members if these are few, else after the namespace."""
    members = [each.name for each in shape.properties] if isinstance(shape, Object) else []
    if 0 < len(members) <= _MAX_NAMING_MEMBERS:
        return f"{'-'.join(members)}{_OUTPUT}"
    spaces = {name.namespace for name in tools}
    return f"{spaces.pop()}{_OUTPUT}" if len(spaces) == 1 and None not in spaces else None


def _saved(each: _Node | _Described) -> int:
    """Returns the number of characters that a name saves."""
    return (each.uses - 1) * each.characters - each.uses * _NAME_CHARACTERS


def _is_plain(node: _Node) -> bool:
    """True if a type has no parts to read, so its description is most of it."""
    match node.shape:
        case Primitive() | Constant():
            return True
        case Union() | Array():
            return all(isinstance(part.shape, Primitive | Constant) for part in node.parts)
        case _:
            return False


def _hints(shape: Shape, hint: str) -> Iterator[str]:
    """Yields names for the parts of a shape, without end."""
    if isinstance(shape, Object):
        yield from (each.name for each in shape.properties)
        hint = f"{hint}-value"
    yield from repeat(f"{hint}-item" if isinstance(shape, Array) else hint)


def _own(shape: Shape) -> _Key:
    """Returns the attributes in which two shapes with equal parts can differ."""
    match shape:
        case Object(properties=properties, patterns=patterns, additional=additional):
            listed = tuple((each.name, each.required, each.doc.default) for each in properties)
            return "object", listed, tuple(pattern for pattern, _ in patterns), additional is None
        case Array(prefix=prefix, rest=rest, min_items=least, max_items=most):
            return "array", len(prefix), rest is None, least, most
        case Union() | Intersection():
            return (type(shape),)
        case _:
            return (shape,)


def _characters(shape: Shape) -> int:
    """Returns the length of the printed shape, without its parts."""
    match shape:
        case Object(properties=properties):
            texts = chain.from_iterable((each.name, each.doc.text, each.doc.default or "") for each in properties)
            return 4 + sum(map(len, texts)) + 6 * len(properties)
        case Constant(text=text):
            return len(text) + 3
        case TypeReference():
            return _NAME_CHARACTERS
        case _:
            return 6

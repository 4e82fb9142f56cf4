"""Signatures made short: for lists of many tools without comments, named types or much depth, and widened instead; for
descriptions with a result in less depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import NamedTuple

from corral.model.printing.signatures import Signature
from corral.model.shapes.algebra import intersect, union
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

_MAX_PARTS, _MAX_WHOLE_PARTS = 200, 4_000
"""Maximum number of shapes within one that are looked at; further ones are widened. The second is for descriptions."""
_MAX_PROPERTIES = 20
_MOST_KEPT = (16, 8, 4, 2)
"""Members shown of an input that has more than there is room for."""
_MAX_HOPS = 20
_MAX_MEMBERS = 8
_MAX_CONSTANT_CHARACTERS = 30
_MAX_ITEMS = 4
_MAX_ARRAYS = 5
"""Maximum array nesting."""
_KINDS = {"string": STRING, "number": NUMBER, "boolean": BOOLEAN}


class _Depth(NamedTuple):
    """Maximum nesting of printed objects in an input and in an output; of deeper ones no members are shown."""

    input: int
    output: int


_DEPTHS = (_Depth(2, 2), _Depth(2, 1), _Depth(1, 1), _Depth(1, 0), _Depth(0, 0))


def shortened(signature: Signature, show: Callable[[Signature], str | None], characters: int) -> Signature:
    """The first of ever shorter forms of the signature that is shown in so many characters.

    At first there are fewer levels of objects, then fewer members of the input, then only the kind of the output; in
    the end nothing is known of it.
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
            given = Object(tuple(each for each in members if each in kept))
            yield _in_depth(signature._replace(input=given), depth)._replace(
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


def in_depth(signature: Signature, levels: int) -> tuple[Signature, bool]:
    """The signature with so many levels of objects in its output, and True if there are more."""
    shortening = _Shortening(whole=True)
    shown = shortening.shape(signature.output, levels)
    return (signature._replace(output=shown), True) if shortening.elides else (signature, False)


class _Shortening:
    """Shortens a shape. `whole`: only objects that are too deep are cut off, and the others keep all that is said."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._parts = _MAX_WHOLE_PARTS if whole else _MAX_PARTS
        self.elides = False
        """True once members of an object were left out."""
        self._arrays = 0
        self._within: list[Definition] = []
        """The definitions that are being spelt out."""

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
        found = definition.shape
        if found is None or definition in self._within:
            return self._elided() if isinstance(found, Object) else UNKNOWN
        self._within.append(definition)
        try:
            return self.shape(found, levels)
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
        """Of many constants only the kinds are left, of many objects that they are objects."""
        if (len(members) > _MAX_MEMBERS and not self._whole) or self._parts <= 0:
            members = tuple(_KINDS[each.kind] if isinstance(each, Constant) else each for each in members)
            members = tuple(dict.fromkeys(self.shape(each, 0) for each in dict.fromkeys(members)))
            return UNKNOWN if len(members) > _MAX_MEMBERS else union(members)
        return union(self.shape(each, levels) for each in members)

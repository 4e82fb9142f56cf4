"""Signatures made short, for lists of many tools: without comments, named types or much depth, and widened instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from corral.declarations.printing.signatures import Signature
from corral.declarations.shapes.algebra import intersect, union
from corral.declarations.shapes.shape import (
    ANY_ARRAY,
    ANY_OBJECT,
    BOOLEAN,
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

__all__ = ["shortened"]

_MAX_PARTS = 200
"""Maximum number of shapes within one that are looked at; further ones are widened."""
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
    """Maximum nesting of printed objects in an input and in an output; deeper ones are any object."""

    input: int
    output: int


_DEPTHS = (_Depth(2, 2), _Depth(2, 1), _Depth(1, 1), _Depth(1, 0), _Depth(0, 0))


def shortened(signature: Signature, show: Callable[[Signature], str | None], characters: int) -> Signature:
    """The first of ever shorter forms of the signature that is shown in so many characters.

    At first there are fewer levels of objects, then fewer members of the input; in the end nothing is known of it.
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
    for most in _MOST_KEPT:
        if len(members) > most:
            kept = set(list(dict.fromkeys((*(each for each in members if each.required), *members)))[:most])
            given = Object(tuple(each for each in members if each in kept))
            yield _in_depth(signature._replace(input=given), _DEPTHS[-2])._replace(
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
    def __init__(self) -> None:
        self._parts = _MAX_PARTS
        self._arrays = 0
        self._within: list[Definition] = []
        """The definitions that are being spelt out."""

    def shape(self, shape: Shape, levels: int) -> Shape:
        self._parts -= 1
        match shape:
            case Constant(kind=kind, text=text) if len(text) > _MAX_CONSTANT_CHARACTERS:
                return _KINDS[kind]
            case TypeReference(definition=definition):
                return self._definition(definition, levels)
            case Array():
                return self._array(shape, levels) if self._parts > 0 else ANY_ARRAY
            case Object():
                return self._object(shape, levels) if self._parts > 0 else ANY_OBJECT
            case Union(members=members):
                return self._union(members, levels)
            case Intersection(members=members):
                return reduce(intersect, (self.shape(each, levels) for each in members), UNKNOWN)
            case _:
                return shape

    def _definition(self, definition: Definition, levels: int) -> Shape:
        found = definition.shape
        if found is None or definition in self._within:
            return ANY_OBJECT if isinstance(found, Object) else UNKNOWN
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
            value = union(self.shape(each, levels) for each in values)
            return Object(additional=value) if values and value != UNKNOWN else replace(shape, additional=None)
        if levels == 0 or len(shape.properties) > _MAX_PROPERTIES:
            return ANY_OBJECT
        return Object(tuple(self._properties(shape, levels - 1)))

    def _properties(self, shape: Object, levels: int) -> Iterator[Property]:
        for each in shape.properties:
            yield Property(each.name, self.shape(each.shape, levels), each.required)

    def _union(self, members: tuple[Shape, ...], levels: int) -> Shape:
        """Of many constants only the kinds are left, of many objects that they are objects."""
        if len(members) > _MAX_MEMBERS or self._parts <= 0:
            members = tuple(_KINDS[each.kind] if isinstance(each, Constant) else each for each in members)
            members = tuple(dict.fromkeys(members))
            levels = 0
        if len(members) > _MAX_MEMBERS:
            return UNKNOWN
        return union(self.shape(each, levels) for each in members)

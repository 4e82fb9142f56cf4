"""Signatures made short, for lists of many tools: without comments, named types or much depth, and widened instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple

from corral.declarations.algebra import intersect, union
from corral.declarations.shapes import (
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
    Reference,
    Shape,
    Union,
)
from corral.declarations.signatures import Signature

__all__ = ["Depth", "shortened"]

_MAX_CHARACTERS = 240
_MAX_PARTS = 200
"""How many shapes within one are looked at; further ones are widened."""
_MAX_PROPERTIES = 20
_MAX_MEMBERS = 8
_MAX_CONSTANT_CHARACTERS = 30
_MAX_ITEMS = 4
_MAX_ARRAYS = 5
"""How many arrays may be within each other."""
_KINDS = {"string": STRING, "number": NUMBER, "boolean": BOOLEAN}


class Depth(NamedTuple):
    """How many objects within each other are spelt out in an input and in an output; others are any object."""

    input: int
    output: int


def shortened(signature: Signature, depths: Iterable[Depth], show: Callable[[Signature], str | None]) -> Signature:
    """The signature in the first depth in which it can be shown in few characters; else with nothing known of it."""
    for depth in depths:
        shorter = _in_depth(signature, depth)
        shown = show(shorter)
        if shown is not None and len(shown) <= _MAX_CHARACTERS:
            return shorter
    return Signature(UNKNOWN, UNKNOWN, Doc(), omissible=not signature.needs_input)


def _in_depth(signature: Signature, depth: Depth) -> Signature:
    return Signature(
        _Shortening().shape(signature.input, depth.input),
        _Shortening().shape(signature.output, depth.output),
        Doc(),
        omissible=not signature.needs_input,
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
            case Reference(definition=definition):
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
            return Object(additional=union(self.shape(each, levels) for each in values)) if values else shape
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

"""Finds traits of shapes without expanding them, and the layouts of arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

from corral.model.shapes.shape import (
    ALL_KINDS,
    INTEGER,
    NEVER,
    NUMBER,
    OBJECTS,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Intersection,
    Kind,
    Never,
    Object,
    Primitive,
    Shape,
    Traits,
    TypeReference,
    Union,
    Unknown,
)

_MAX_HOPS = 20
"""Maximum length of a chain of definitions that are aliases of each other."""
_MAX_SPELT_ITEMS = 4
"""Maximum number of items beyond the prefix that are spelt out."""


def traits(shape: Shape, hops: int = 0) -> Traits:
    """Returns the traits of the shape. They are minimal if they depend on a definition that is being read."""
    match shape:
        case Unknown():
            return Traits(ALL_KINDS, accepts_empty=True)
        case Never():
            return Traits(frozenset())
        case Primitive(kind=kind) | Constant(kind=kind):
            return Traits(frozenset(("number" if kind == "integer" else kind,)))
        case Array():
            return Traits(frozenset(("array",)))
        case Object():
            return Traits(
                OBJECTS,
                transparent=shape.additional in (None, UNKNOWN) and not shape.patterns,
                accepts_empty=not any(each.required for each in shape.properties),
            )
        case Union(members=members):
            parts = [traits(member, hops) for member in members]
            return Traits(
                frozenset[Kind]().union(*(each.kinds for each in parts)),
                sum(each.alternatives for each in parts),
                transparent=all(each.transparent for each in parts),
                accepts_empty=any(each.accepts_empty for each in parts),
            )
        case Intersection(members=members):
            parts = [traits(member, hops) for member in members]
            return Traits(
                ALL_KINDS.intersection(*(each.kinds for each in parts)),
                math.prod(each.alternatives for each in parts),
                transparent=all(each.transparent for each in parts),
                accepts_empty=all(each.accepts_empty for each in parts),
            )
        case TypeReference(definition=definition):
            if definition.traits is None:
                defined = definition.shape if hops < _MAX_HOPS else None
                if defined is None:
                    return Traits(ALL_KINDS, transparent=True)
                definition.traits = traits(defined, hops + 1)
            return definition.traits


def members_of(shape: Shape) -> tuple[Shape, ...]:
    """Returns the members of a union, or any other shape as its only member."""
    return shape.members if isinstance(shape, Union) else (shape,)


def parts_of(shape: Shape) -> list[Shape]:
    """Returns the shapes within a shape: members, items, or values of properties, in the order of attributes."""
    match shape:
        case Union(members=members) | Intersection(members=members):
            return list(members)
        case Array(prefix=prefix, rest=rest):
            return [*prefix, *(() if rest is None else (rest,))]
        case Object(properties=properties, patterns=patterns, additional=additional):
            others = [value for _, value in patterns]
            return [*(each.shape for each in properties), *others, *(() if additional is None else (additional,))]
        case _:
            return []


def primitives_around(shape: Shape) -> tuple[Primitive, ...]:
    """Returns the wider primitives, which accept everything that this one accepts."""
    match shape:
        case Constant(kind="number", text=text):
            return (NUMBER, INTEGER) if float(text).is_integer() else (NUMBER,)
        case Constant(kind=kind):
            return (Primitive(kind),)
        case Primitive(kind="integer"):
            return (NUMBER,)
        case _:
            return ()


def properties_of(shape: Shape) -> dict[str, list[Shape]]:
    """Returns the shapes of all properties that the shape announces anywhere at its top level."""
    shapes: dict[str, list[Shape]] = {}
    seen: set[Shape] = set()
    waiting = [shape]
    while waiting:
        match waiting.pop():
            case Object(properties=properties):
                for each in properties:
                    shapes.setdefault(each.name, []).append(each.shape)
            case Union(members=members) | Intersection(members=members):
                waiting += members
            case TypeReference(definition=Definition(shape=target)) as reference if target and reference not in seen:
                seen.add(reference)
                waiting.append(target)
            case _:
                pass
    return shapes


class _Layout(NamedTuple):
    spelt: tuple[Shape, ...]
    """Items that are spelt out; empty for a plain list."""
    required: int
    """Number of items that are always present."""
    rest: Shape | None
    """Shape of further items; None if there cannot be any."""


def layout(shape: Array) -> _Layout | None:
    """Returns the layout of the array's type; None if no array can match."""
    rest = UNKNOWN if shape.rest is None else shape.rest
    known, least = len(shape.prefix), shape.min_items
    ends = [end for end in (shape.max_items, known if rest == NEVER else None) if end is not None]
    most = min(ends, default=None)
    if most is not None and least > most:
        return None
    if not known and most != 0 and not (most is not None and least == most <= _MAX_SPELT_ITEMS):
        return _Layout((), 0, rest)
    spelt = _spelt_items(known, least, most)
    items = (*shape.prefix, *(rest for _ in range(known, spelt)))[:spelt]
    return _Layout(items, min(least, spelt), rest if most is None or most > spelt else None)


def _spelt_items(known: int, least: int, most: int | None) -> int:
    """Returns the number of items to spell out: more than the prefix if a few more make the length exact."""
    for target in (most, least):
        if target is not None and target - known <= _MAX_SPELT_ITEMS:
            return target if target == most else max(known, target)
    return known

"""Finds traits of shapes without expanding them."""

from __future__ import annotations

import math

from corral.model.shapes.shape import (
    ALL_KINDS,
    INTEGER,
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

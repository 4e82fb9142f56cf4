"""Reads schemas with alternatives: keeps the members of a union apart, and turns conditions into unions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from corral.model.shapes.algebra import intersect, union
from corral.model.shapes.shape import (
    ANY_OBJECT,
    NEVER,
    UNKNOWN,
    Constant,
    Definition,
    Intersection,
    Object,
    Property,
    Shape,
    TypeReference,
)
from corral.model.shapes.traits import members_of, properties_of

_MAX_HOPS = 20
_MAX_FORBIDDEN = 24
"""Maximum number of properties added to a union to keep its members apart."""


def exclusive(members: Sequence[Shape], *, one_of: bool, announced: Collection[str] | None, with_named: bool) -> Shape:
    """Returns the union, with each object forbidding properties that only others announce: TypeScript lets literals
    mix.

    Applies to closed objects and, with `one_of`, to a property whose presence selects another member. Members that are
    discriminated by a property with constants need no change.

    Args:
        members: of the union.
            one_of: True if a value must match exactly one member.
            announced: the properties described beside the union; None if that could be any.
            with_named: True to treat references too, which replaces them by their objects.
    """
    objects = {position: own for position, member in enumerate(members) if (own := _object(member)) is not None}
    if not 2 <= len(objects) <= _MAX_FORBIDDEN or _discriminated(list(objects.values())):
        return union(members)
    forbidden: dict[int, list[str]] = {}
    for position, own in objects.items():
        others = {place: other for place, other in objects.items() if place != position}
        names: list[str] = []
        if own.additional == NEVER and not own.patterns:
            names = [each.name for other in others.values() for each in other.properties]
        elif one_of and own.additional is None and not own.patterns:
            names = [name for other in others if (name := _decisive(objects, other, announced))]
        known = {each.name for each in own.properties}
        forbidden[position] = [name for name in dict.fromkeys(names) if name not in known]
    if sum(map(len, forbidden.values())) > _MAX_FORBIDDEN:
        return union(members)
    return union(
        _without(member, forbidden[position])
        if forbidden.get(position) and (with_named or isinstance(member, Object))
        else member
        for position, member in enumerate(members)
    )


def mixed(members: Sequence[Shape]) -> list[Shape]:
    """Lets each open object have properties that only others announce: Python keeps literals to one member.

    Applies to objects without a name. Members that are discriminated by a property with constants do not mix.
    """
    candidates = [_open_object(member) for member in members]
    objects = [each for each in candidates if each is not None]
    if not 2 <= len(objects) <= _MAX_FORBIDDEN:
        return list(members)
    announced: dict[str, Property] = {}
    for each in (each for own in objects for each in own.properties):
        shapes = [announced[each.name].shape] if each.name in announced else []
        announced[each.name] = replace(each, shape=union((*shapes, each.shape)), required=False)
    if len(objects) * len(announced) > _MAX_FORBIDDEN or _discriminated(objects):
        return list(members)
    return [member if own is None else _with(own, announced) for member, own in zip(members, candidates, strict=True)]


def forbid(name: str) -> Object:
    """Returns the shape of objects without that property."""
    return Object((Property(name, NEVER, required=False),))


def branch(shape: Shape, condition: Shape, then: Shape, otherwise: Shape) -> Shape:
    """Restricts objects of the shape to `then` if they match `condition`, else to `otherwise`.

    The two cases become a union. They overlap if the opposite of the condition cannot be expressed.
    """
    then, otherwise = intersect(ANY_OBJECT, then), intersect(ANY_OBJECT, otherwise)
    if then == otherwise == ANY_OBJECT:
        return shape
    positive = intersect(intersect(ANY_OBJECT, condition), then)
    opposite = _opposite(condition, shape)
    if opposite is None:
        names = properties_of(shape).keys()
        if otherwise == ANY_OBJECT and properties_of(positive).keys() <= names:
            return shape
        opposite = Object(tuple(Property(name, UNKNOWN, required=False) for name in properties_of(condition)))
    return intersect(shape, union((positive, intersect(opposite, otherwise))))


def _decisive(objects: dict[int, Object], position: int, announced: Collection[str] | None) -> str | None:
    """Returns a property whose presence alone makes an object match that member, if there is one."""
    own = objects[position]
    required = [each.name for each in own.properties if each.required]
    if len(required) != 1 or own.additional is not None or own.patterns:
        return None
    elsewhere = {
        each.name for other, other_object in objects.items() if other != position for each in other_object.properties
    }
    for each in own.properties:
        constrained_twice = announced is None or each.name in announced or each.name in elsewhere
        if constrained_twice and each.shape != UNKNOWN:
            return None
    return required[0]


def _open_object(shape: Shape) -> Object | None:
    """Returns the shape, if it is an object without a name that can have any other properties."""
    return shape if isinstance(shape, Object) and shape.additional is None and not shape.patterns else None


def _with(shape: Object, announced: dict[str, Property]) -> Object:
    listed = {each.name: each for each in shape.properties}
    return replace(shape, properties=tuple((announced | listed).values()))


def _without(member: Shape, names: list[str]) -> Shape:
    absent = tuple(Property(name, NEVER, required=False) for name in names)
    if isinstance(member, Object):
        return replace(member, properties=member.properties + absent)
    return Intersection((member, Object(absent)))


def _object(shape: Shape) -> Object | None:
    """Returns the object that the shape is, or refers to."""
    for _ in range(_MAX_HOPS):
        match shape:
            case TypeReference(definition=Definition(shape=defined)) if defined:
                shape = defined
            case Object():
                return shape
            case _:
                return None
    return None


def _discriminated(objects: list[Object]) -> bool:
    """True if a property's constants tell which of the objects a value is."""
    shapes = [{member.name: member.shape for member in each.properties} for each in objects]
    return any(_tells_apart(candidate.name, shapes) for candidate in objects[0].properties)


def _tells_apart(name: str, shapes: list[dict[str, Shape]]) -> bool:
    seen: set[Shape] = set()
    for each in shapes:
        own = _constants(each.get(name, UNKNOWN))
        if not own or not seen.isdisjoint(own):
            return False
        seen.update(own)
    return True


def _constants(shape: Shape) -> list[Shape]:
    """Returns the constants that a shape consists of; empty if it accepts anything else."""
    members = members_of(shape)
    return list(members) if all(isinstance(member, Constant) for member in members) else []


def _opposite(condition: Shape, shape: Shape) -> Shape | None:
    """Returns the shape of objects that do not meet the condition; None if it cannot be expressed.

    It can be if the condition is about one property: its presence, or which of the shape's constants it has.
    """
    match condition:
        case Object(properties=(Property(name=name, shape=value, required=required),), patterns=(), additional=None):
            if value == UNKNOWN:
                return forbid(name) if required else None
        case _:
            return None
    excluded = frozenset(_constants(value))
    possible = _possible_constants(shape, name)
    if not excluded or not possible:
        return None
    left = union(each for each in possible if each not in excluded)
    return NEVER if left == NEVER and not required else Object((Property(name, left, required=not required),))


def _possible_constants(shape: Shape, name: str) -> list[Shape]:
    """Returns the constants that a property is limited to; empty if it can have other values."""
    for factor in shape.members if isinstance(shape, Intersection) else (shape,):
        own = _object(factor)
        declared = [each.shape for each in own.properties if each.name == name] if own else []
        if declared and (values := _constants(declared[0])):
            return values
    return []

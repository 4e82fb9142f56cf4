"""Schemas that choose: keeping the members of a union apart, and conditions as unions."""

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
"""Most properties added to a union to keep its members apart."""


def exclusive(members: Sequence[Shape], *, one_of: bool, announced: Collection[str] | None, with_named: bool) -> Shape:
    """The union, in which each object forbids what only others announce: TypeScript lets literals mix members.

    That is done for closed objects and, with `one_of`, for a property whose presence decides for another member.
    Members that a property with constants tells apart need nothing.

    Args:
        members: of the union.
        one_of: whether a value must fit no more than one of them.
        announced: the properties described beside the union; None if that could be any.
        with_named: whether that is done for references too, which then are no mere names any more.
    """
    objects = {position: found for position, member in enumerate(members) if (found := _object(member)) is not None}
    if not 2 <= len(objects) <= _MAX_FORBIDDEN or _discriminated(list(objects.values())):
        return union(members)
    forbidden: dict[int, list[str]] = {}
    for position, own in objects.items():
        others = {other: found for other, found in objects.items() if other != position}
        names: list[str] = []
        if own.additional == NEVER and not own.patterns:
            names = [each.name for found in others.values() for each in found.properties]
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
    """The members, in which each open object may have what only others announce: Python keeps literals to one member.

    That is done for objects without a name. Members that a property with constants tells apart do not mix.
    """
    found = [_open_object(member) for member in members]
    objects = [each for each in found if each is not None]
    if not 2 <= len(objects) <= _MAX_FORBIDDEN:
        return list(members)
    announced: dict[str, Property] = {}
    for each in (each for own in objects for each in own.properties):
        shapes = [announced[each.name].shape] if each.name in announced else []
        announced[each.name] = replace(each, shape=union((*shapes, each.shape)), required=False)
    if len(objects) * len(announced) > _MAX_FORBIDDEN or _discriminated(objects):
        return list(members)
    return [member if own is None else _with(own, announced) for member, own in zip(members, found, strict=True)]


def forbid(name: str) -> Object:
    """Objects without a property of that name."""
    return Object((Property(name, NEVER, required=False),))


def branch(shape: Shape, condition: Shape, then: Shape, otherwise: Shape) -> Shape:
    """Objects of the shape that are like `then` if they are like `condition`, else like `otherwise`.

    The two cases become a union. They overlap where the opposite of the condition cannot be expressed.
    """
    then, otherwise = intersect(ANY_OBJECT, then), intersect(ANY_OBJECT, otherwise)
    if then == otherwise == ANY_OBJECT:
        return shape
    positive = intersect(intersect(ANY_OBJECT, condition), then)
    opposite = _opposite(condition, shape)
    if opposite is None:
        said = properties_of(shape).keys()
        if otherwise == ANY_OBJECT and properties_of(positive).keys() <= said:
            return shape
        opposite = Object(tuple(Property(name, UNKNOWN, required=False) for name in properties_of(condition)))
    return intersect(shape, union((positive, intersect(opposite, otherwise))))


def _decisive(objects: dict[int, Object], position: int, announced: Collection[str] | None) -> str | None:
    """The property that makes an object fit that member as soon as it has it, if there is one."""
    own = objects[position]
    required = [each.name for each in own.properties if each.required]
    if len(required) != 1 or own.additional is not None or own.patterns:
        return None
    elsewhere = {each.name for other, found in objects.items() if other != position for each in found.properties}
    for each in own.properties:
        constrained_twice = announced is None or each.name in announced or each.name in elsewhere
        if constrained_twice and each.shape != UNKNOWN:
            return None
    return required[0]


def _open_object(shape: Shape) -> Object | None:
    """The shape, if it is an object without a name that may have any other properties."""
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
    """The object that the shape is, or is a name of."""
    for _ in range(_MAX_HOPS):
        match shape:
            case TypeReference(definition=Definition(shape=found)) if found:
                shape = found
            case Object():
                return shape
            case _:
                return None
    return None


def _discriminated(objects: list[Object]) -> bool:
    """True if there is a property whose constants say which of the objects a value is."""
    shapes = [{found.name: found.shape for found in each.properties} for each in objects]
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
    """The constants that are all the shape accepts; none if it accepts something else."""
    members = members_of(shape)
    return list(members) if all(isinstance(member, Constant) for member in members) else []


def _opposite(condition: Shape, shape: Shape) -> Shape | None:
    """The shape of objects that do not meet the condition; None if it has no shape.

    It can where the condition is about one property: that it is there, or which of the shape's constants it has.
    """
    match condition:
        case Object(properties=(Property(name=name, shape=wanted, required=required),), patterns=(), additional=None):
            if wanted == UNKNOWN:
                return forbid(name) if required else None
        case _:
            return None
    excluded = frozenset(_constants(wanted))
    possible = _possible_constants(shape, name)
    if not excluded or not possible:
        return None
    left = union(each for each in possible if each not in excluded)
    return NEVER if left == NEVER and not required else Object((Property(name, left, required=not required),))


def _possible_constants(shape: Shape, name: str) -> list[Shape]:
    """The constants that are all the property of that name can be; none if it can be something else."""
    for factor in shape.members if isinstance(shape, Intersection) else (shape,):
        own = _object(factor)
        declared = [each.shape for each in own.properties if each.name == name] if own else []
        if declared and (found := _constants(declared[0])):
            return found
    return []

"""Unions and intersections of shapes, simplified as far as that makes them shorter or more exact.

TypeScript's own `&` is correct for open objects, but not for index signatures and closed objects, so these are merged
into one object. Both operations are bounded: an intersection with too many alternatives is widened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product

from corral.model.shapes.shape import (
    ANY_ARRAY,
    ANY_KEY,
    ANY_OBJECT,
    INTEGER,
    NEVER,
    OBJECTS,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Doc,
    Intersection,
    KeyPattern,
    Kind,
    Object,
    Primitive,
    Property,
    Shape,
    TypeReference,
    Union,
)
from corral.model.shapes.traits import members_of, primitives_around, properties_of, traits

_MAX_PAIRS = 64
"""Maximum number of pairs of alternatives to which an intersection of unions is expanded."""
_MAX_ALTERNATIVES = 256
"""Maximum number of alternatives that TypeScript has to consider in one intersection."""
_MOST_IN_A_ROW = 8
_MAX_PATTERNS = 32
"""Maximum number of an object's name patterns, because each property is compared with each pattern."""
MAX_EXPANSIONS = 3
"""Maximum nesting of expanded unions and definitions. Deeper ones are intersected by name."""

_SCALARS: frozenset[Kind] = frozenset(("string", "bytes", "number", "boolean", "null"))
_OTHERWISE_OPEN = Object(additional=UNKNOWN)
_TRUE_AND_FALSE = (Constant("boolean", "true"), Constant("boolean", "false"))


def union(shapes: Iterable[Shape]) -> Shape:
    """Returns the union of the shapes, in their order."""
    members = dict.fromkeys(member for shape in shapes for member in members_of(shape))
    members.pop(NEVER, None)
    if UNKNOWN in members:
        return UNKNOWN
    if all(constant in members for constant in _TRUE_AND_FALSE):
        members[Primitive("boolean")] = None
    kept = [each for each in members if not any(wider in members for wider in primitives_around(each))]
    if len(kept) > 1:
        return Union(tuple(kept))
    return kept[0] if kept else NEVER


def intersect(left: Shape, right: Shape, expansions: int = 0) -> Shape:
    """Returns the intersection of two shapes."""
    if left == right or right == UNKNOWN:
        return left
    if left == UNKNOWN:
        return right
    about_left, about_right = traits(left), traits(right)
    if not about_left.kinds & about_right.kinds:
        return NEVER
    if about_left.kinds <= about_right.kinds and _is_whole(right):
        return left
    if about_right.kinds <= about_left.kinds and _is_whole(left):
        return right
    match left, right:
        case Constant(), Constant():
            return NEVER
        case (Constant() as constant, Primitive() as primitive) | (Primitive() as primitive, Constant() as constant):
            return constant if primitive in primitives_around(constant) else NEVER
        case Object(), Object():
            return _merge_objects(left, right, expansions)
        case Array(), Array():
            return _merge_arrays(left, right, expansions)
        case _:
            by_name = about_left.transparent and about_right.transparent and not _conflict(left, right)
            multiplied = None if by_name else _multiply(left, right, expansions)
            return _by_name(left, right, expansions) if multiplied is None else multiplied


def intersect_all(shapes: Sequence[Shape]) -> Shape:
    """Intersects shapes. If there are many, combines them pairwise, so that no large shape is merged with each small
    one."""
    while len(shapes) > _MOST_IN_A_ROW:
        pairs = (shapes[start : start + 2] for start in range(0, len(shapes), 2))
        shapes = [reduce(intersect, pair) for pair in pairs]
    return reduce(intersect, shapes, UNKNOWN)


def intersect_kind(shape: Shape, kind: Kind, constraint: Shape) -> Shape:
    """Applies the constraint, which is about one kind of values, to values of that kind only.

    The constraint replaces a shape that accepts everything, because that is what authors of schemas mean.
    """
    if kind not in traits(shape).kinds:
        return shape
    match shape:
        case Union(members=members):
            return union(intersect_kind(member, kind, constraint) for member in members)
        case TypeReference(definition=Definition(shape=defined)) if defined and len(traits(defined).kinds) > 1:
            return intersect_kind(defined, kind, constraint)
        case _:
            return intersect(shape, constraint)


def fill_additional(shape: Shape, additional: Shape) -> Shape:
    """Sets the shape of properties that no part of the shape mentions.

    A named definition keeps its name if the only change is to close it, which would not be visible.
    """

    def filled(each: Shape) -> Shape:
        is_open = isinstance(each, Object) and each.additional is None
        return replace(each, additional=additional) if is_open else each

    return _replace_each(shape, members_of(shape) if additional == NEVER else alternatives(shape), filled)


def fill_rest(shape: Shape, rest: Shape) -> Shape:
    """Sets the shape of items that no part of the shape mentions."""

    def filled(each: Shape) -> Shape:
        return replace(each, rest=rest) if isinstance(each, Array) and each.rest is None else each

    return _replace_each(shape, alternatives(shape), filled)


def _replace_each(shape: Shape, alternatives: Sequence[Shape] | None, change: Callable[[Shape], Shape]) -> Shape:
    if alternatives is None:
        return shape
    changed = [change(each) for each in alternatives]
    return shape if changed == list(alternatives) else union(changed)


def _is_whole(shape: Shape) -> bool:
    """True if the shape accepts every value of its kinds."""
    match shape:
        case Primitive():
            return shape != INTEGER
        case Object() | Array():
            return shape in (ANY_OBJECT, ANY_ARRAY)
        case Union(members=members):
            return all(_is_whole(member) for member in members)
        case _:
            return False


def _conflict(left: Shape, right: Shape) -> bool:
    """True if both announce a property as different objects or arrays, which can have to be merged."""
    others = properties_of(right)
    return any(
        one != other and UNKNOWN not in (one, other) and not traits(one).kinds & traits(other).kinds <= _SCALARS
        for name, shapes in properties_of(left).items()
        for one, other in product(shapes, others.get(name, ()))
    )


# --- intersections by name


def _by_name(left: Shape, right: Shape, expansions: int) -> Shape:
    """Makes an intersection for TypeScript to expand: references, one object of everything unnamed, then unions."""
    references: dict[Shape, None] = {}
    unions: dict[Shape, None] = {}
    nameless: Shape = UNKNOWN
    alternatives = 1
    for factor in (*_factors(left), *_factors(right)):
        about = traits(factor)
        if isinstance(factor, Object):
            nameless = intersect(nameless, factor, expansions)
        elif alternatives == 1 or alternatives * about.alternatives <= _MAX_ALTERNATIVES:
            (references if isinstance(factor, TypeReference) else unions)[factor] = None
            alternatives = math.prod(traits(each).alternatives for each in (*references, *unions))
        elif about.kinds <= OBJECTS:
            nameless = intersect(nameless, _OTHERWISE_OPEN, expansions)
    factors = (*references, *(() if nameless == UNKNOWN else (nameless,)), *unions)
    if NEVER in factors:
        return NEVER
    return factors[0] if len(factors) == 1 else Intersection(factors)


def _factors(shape: Shape) -> tuple[Shape, ...]:
    return shape.members if isinstance(shape, Intersection) else (shape,)


# --- expanded intersections


def _multiply(left: Shape, right: Shape, expansions: int) -> Shape | None:
    """Returns the intersection without `&`; None if it cannot be expressed or would be too long."""
    if expansions >= MAX_EXPANSIONS:
        return None
    if isinstance(left, Union) or isinstance(right, Union):
        return _distribute(members_of(left), members_of(right), expansions + 1)
    for one, other in ((left, right), (right, left)):
        match one:
            case TypeReference(definition=Definition(shape=defined)) if defined:
                both = intersect(defined, other, expansions + 1)
                return one if both == defined else both
            case Intersection():
                expanded = alternatives(one, expansions + 1)
                if expanded is not None:
                    return union(intersect(each, other, expansions + 1) for each in expanded)
            case _:
                pass
    return None


def _distribute(lefts: Sequence[Shape], rights: Sequence[Shape], expansions: int) -> Shape | None:
    left_scalars = {each for each in lefts if isinstance(each, Primitive | Constant)}
    right_scalars = {each for each in rights if isinstance(each, Primitive | Constant)}
    compounds = len(lefts) + len(rights) - len(left_scalars) - len(right_scalars)
    if compounds * (len(lefts) + len(rights)) > _MAX_PAIRS**2:
        return None
    scalars = [
        each
        for own, others in ((lefts, right_scalars), (rights, left_scalars))
        for each in own
        if isinstance(each, Primitive | Constant) and any(wider in others for wider in (each, *primitives_around(each)))
    ]
    pairs = [
        (left, right)
        for left, right in product(lefts if compounds else (), rights)
        if not (left in left_scalars and right in right_scalars) and traits(left).kinds & traits(right).kinds
    ]
    if len(pairs) > _MAX_PAIRS:
        return None
    return union([*scalars, *(intersect(left, right, expansions) for left, right in pairs)])


def alternatives(shape: Shape, expansions: int = 0) -> list[Shape] | None:
    """Splits a shape into a union of shapes without names, unions or intersections; None if there are too many."""
    match shape:
        case TypeReference(definition=definition):
            return None if definition.shape is None else alternatives(definition.shape, expansions)
        case Union(members=members):
            shapes: list[Shape] = []
            for member in members:
                more = alternatives(member, expansions)
                if more is None or len(shapes) + len(more) > _MAX_PAIRS:
                    return None
                shapes += more
            return shapes
        case Intersection(members=members):
            factors = [alternatives(member, expansions) for member in members]
            known = [each for each in factors if each is not None]
            if len(known) < len(factors) or math.prod(map(len, known)) > _MAX_PAIRS:
                return None
            merge = partial(intersect, expansions=expansions)
            return [reduce(merge, combination) for combination in product(*known)]
        case _:
            return [shape]


def _merge_objects(left: Object, right: Object, expansions: int) -> Shape:
    properties: list[Property] = []
    sides = [(side, {each.name: each for each in side.properties}) for side in (left, right)]
    for name in dict.fromkeys(name for _, listed in sides for name in listed):
        shapes = [listed[name].shape if name in listed else unlisted(side, name) for side, listed in sides]
        declared = [listed[name] for _, listed in sides if name in listed]
        required = any(each.required for each in declared)
        shape = intersect(shapes[0], shapes[1], expansions)
        if shape == NEVER and required:
            return NEVER
        if shape == NEVER and NEVER in shapes and declared[0].shape != NEVER and len(declared) == 1:
            continue  # the other side is closed
        properties.append(Property(name, shape, required, next((each.doc for each in declared if each.doc), Doc())))
    patterns = {
        pattern: shape
        for own, other in ((left, right), (right, left))
        for pattern, constraint in own.patterns
        if (shape := intersect(constraint, unlisted(other, pattern), expansions)) != NEVER
    }
    announced = [each.additional for each in (left, right) if each.additional is not None]
    additional = reduce(lambda one, other: intersect(one, other, expansions), announced) if announced else None
    return Object(tuple(properties), few_patterns(patterns.items()), additional)


def few_patterns(patterns: Iterable[tuple[KeyPattern, Shape]]) -> tuple[tuple[KeyPattern, Shape], ...]:
    """Returns the patterns. If there are too many, one for all names replaces the last ones."""
    listed = tuple(patterns)
    if len(listed) <= _MAX_PATTERNS:
        return listed
    kept = dict(listed[: _MAX_PATTERNS - 1])
    others = (shape for _, shape in listed[_MAX_PATTERNS - 1 :])
    return tuple((kept | {ANY_KEY: union((kept.get(ANY_KEY, NEVER), *others))}).items())


def unlisted(shape: Object, key: str | KeyPattern) -> Shape:
    """Returns an object's shape for a property that it does not list, or for all properties that match a pattern."""
    sure = [constraint for pattern, constraint in shape.patterns if pattern.exact and pattern.covers(key)]
    if sure:
        return reduce(intersect, sure)
    otherwise = UNKNOWN if shape.additional is None else shape.additional
    return union([otherwise, *(constraint for pattern, constraint in shape.patterns if pattern.overlaps(key))])


def _merge_arrays(left: Array, right: Array, expansions: int) -> Shape:
    length = max(len(left.prefix), len(right.prefix))
    prefix = tuple(intersect(_item(left, index), _item(right, index), expansions) for index in range(length))
    announced = [each.rest for each in (left, right) if each.rest is not None]
    rest = reduce(lambda one, other: intersect(one, other, expansions), announced) if announced else None
    ends = [each.max_items for each in (left, right) if each.max_items is not None]
    return Array(prefix, rest, max(left.min_items, right.min_items), min(ends, default=None))


def _item(shape: Array, index: int) -> Shape:
    if index < len(shape.prefix):
        return shape.prefix[index]
    return UNKNOWN if shape.rest is None else shape.rest

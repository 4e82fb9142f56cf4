"""Schemas of objects: what is said of properties by name, by pattern, and of all the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from corral.model.shapes.algebra import few_patterns, intersect, union, unlisted
from corral.model.shapes.constants import strings_of
from corral.model.shapes.descriptions import describe
from corral.model.shapes.patterns import key_pattern
from corral.model.shapes.shape import ANY_KEY, NEVER, UNKNOWN, KeyPattern, Object, Property, Shape
from corral.tools.json_schema.keywords import listing, mapping


def read_object(keywords: dict[str, object], read: Callable[[object], Shape], names: object) -> Shape:
    """The objects that the keywords allow.

    Args:
        keywords: a schema of objects.
        read: reads a schema within it.
        names: its `propertyNames`, or the schema at the end of that if it is a reference; None if it has none.
    """
    schemas = mapping(keywords.get("properties"))
    required = {name: None for name in listing(keywords.get("required")) if isinstance(name, str)}
    shapes = {name: read(schema) for name, schema in schemas.items()}
    others = _others(keywords, read, shapes)
    by_pattern = replace(others, additional=UNKNOWN)
    shapes = {name: intersect(shape, unlisted(by_pattern, name)) for name, shape in shapes.items()}
    for name in required:
        shapes.setdefault(name, unlisted(others, name))
    if names is not None:
        shapes, others = _restrict(shapes, others, read(names), mapping(names).get("pattern"))
    if any(shapes.get(name, NEVER) == NEVER for name in required):
        return NEVER
    properties = (
        Property(name, shape, name in required, describe(schemas.get(name), name)) for name, shape in shapes.items()
    )
    title = keywords.get("title")
    return replace(others, properties=tuple(properties), title=title if isinstance(title, str) else "")


def _others(keywords: dict[str, object], read: Callable[[object], Shape], listed: dict[str, Shape]) -> Object:
    """Shapes of properties by pattern, and of the rest. A pattern for a single name adds to the listed ones."""
    patterns: dict[KeyPattern, Shape] = {}
    alike: defaultdict[KeyPattern, list[Shape]] = defaultdict(list)
    for expression, schema in mapping(keywords.get("patternProperties")).items():
        key, shape = key_pattern(expression), read(schema)
        if isinstance(key, str):
            listed[key] = intersect(listed.get(key, UNKNOWN), shape)
        elif key.exact:
            patterns[key] = intersect(patterns.get(key, UNKNOWN), shape)
        else:
            patterns.setdefault(key, NEVER)
            alike[key].append(shape)
    patterns |= {key: union(shapes) for key, shapes in alike.items()}
    additional = read(keywords["additionalProperties"]) if "additionalProperties" in keywords else None
    return Object(patterns=few_patterns(patterns.items()), additional=additional)


def _restrict(
    shapes: dict[str, Shape], others: Object, names: Shape, expression: object
) -> tuple[dict[str, Shape], Object]:
    """Leaves only properties of certain names: listed by constants, or else matching a regular expression."""
    key = key_pattern(expression) if isinstance(expression, str) else ANY_KEY
    allowed = [key] if isinstance(key, str) else strings_of(names)
    if allowed is not None:
        return {name: shapes.get(name, unlisted(others, name)) for name in allowed}, Object(additional=NEVER)
    if isinstance(key, str) or key == ANY_KEY:
        return shapes, others
    values = (UNKNOWN if others.additional is None else others.additional, *(shape for _, shape in others.patterns))
    return shapes, Object(patterns=((key, union(values)),), additional=NEVER)

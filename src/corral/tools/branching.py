"""How often validating may look at the same value, as the schema tells: a hostile one makes that grow without end.

A validator follows every alternative. Where two of them lead to the same part of a value, and two more from there, the
work doubles with each level of the value.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from corral.types import JsonSchema

__all__ = ["Branching", "branching_of", "depth_of"]

_MOST = 10**9
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_ONE_IN_PLACE = ("else", "if", "not", "then")
_OF_OBJECTS = ("additionalProperties", "dependentSchemas", "patternProperties", "properties", "unevaluatedProperties")
_OF_ARRAYS = ("additionalItems", "contains", "items", "prefixItems", "unevaluatedItems")
_ELSEWHERE = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveRef")
"""By these a reference may lead to where its pointer does not."""


class Branching(NamedTuple):
    """Of a schema, at the place where it branches most. All counts stop at a thousand millions."""

    at_once: int
    """Schemas that apply to the same value."""
    ways: int
    """How many of them go on to the same part of it."""

    def visits(self, depth: int) -> int:
        """How often a part of a value may be looked at that is so many levels deep."""
        return min(self.at_once * max(self.ways, 1) ** min(depth, 64), _MOST)


def branching_of(document: JsonSchema) -> Branching:
    """That of a schema whose references are pointers into itself; any other may branch without end."""
    try:
        counted = _Counted(document)
        every = [counted.of(schema) for schema in _schemas(document)]
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        return Branching(_MOST, _MOST)
    return Branching(
        max((each.all for each in every), default=1),
        max((max(each.objects, each.arrays) for each in every), default=0),
    )


def depth_of(value: object) -> int:
    """How many levels of lists and objects are in it."""
    deepest, waiting = 0, [(value, 0)]
    while waiting:
        here, level = waiting.pop()
        members = cast("dict[object, object]", here).values() if isinstance(here, dict) else here
        if isinstance(here, dict | list | tuple):
            deepest = max(deepest, level + 1)
            waiting += [(each, level + 1) for each in cast("list[object]", members)]
    return deepest


class _Count(NamedTuple):
    """The schemas that apply where one does; how many of them look into members, and into items."""

    all: int
    objects: int
    arrays: int


class _Counted:
    def __init__(self, document: JsonSchema) -> None:
        self._document = document
        self._known: dict[int, _Count | None] = {}

    def of(self, schema: Any) -> _Count:
        """Raises ValueError if it applies to itself."""
        if not isinstance(schema, dict):
            return _Count(1, 0, 0)
        if id(cast("object", schema)) in self._known:
            known = self._known[id(cast("object", schema))]
            if known is None:
                raise ValueError("it applies to itself")
            return known
        self._known[id(cast("object", schema))] = None
        found = self._sum(cast("dict[str, Any]", schema))
        self._known[id(cast("object", schema))] = found
        return found

    def _sum(self, schema: dict[str, Any]) -> _Count:
        here = _Count(1, int(any(key in schema for key in _OF_OBJECTS)), int(any(key in schema for key in _OF_ARRAYS)))
        applied = [schema[key] for key in _ONE_IN_PLACE if key in schema]
        applied += [each for key in _IN_PLACE for each in schema.get(key, ())]
        applied += list(schema.get("dependentSchemas", {}).values())
        if isinstance(schema.get("$ref"), str):  # it may also be the name of a property
            applied.append(self._target(schema["$ref"]))
        counts = [here, *map(self.of, applied)]
        return _Count(*(min(sum(column), _MOST) for column in zip(*counts, strict=True)))

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return True  # it leads nowhere: nothing is fetched
        if reference != "#" and not reference.startswith("#/"):
            raise ValueError("it may lead anywhere")
        target: Any = self._document
        for token in reference.removeprefix("#").split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            target = target[int(name) if isinstance(target, list) else name]
        return target


def _schemas(document: JsonSchema) -> list[Any]:
    """All objects in the document, whether or not they are schemas. Raises ValueError for what moves references."""
    found: list[Any] = []
    waiting: list[Any] = [document]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            members = cast("dict[str, Any]", here)
            if members is not document and any(isinstance(members.get(key), str) for key in _ELSEWHERE):
                raise ValueError("references may lead elsewhere")
            found.append(members)
            waiting += members.values()
        elif isinstance(here, list):
            waiting += cast("list[Any]", here)
    return found

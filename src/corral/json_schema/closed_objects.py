"""Whether an object in a tool's input may have members that its schema does not list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

__all__ = ["is_closed", "open_objects", "resolved"]

_CLOSING = ("additionalProperties", "unevaluatedProperties")
_MAX_SCHEMAS = 500
_MAX_WALKED = 20_000


def is_closed(schema: Mapping[str, Any], path: Sequence[str | None]) -> bool:
    """Whether every object at a path must not have other members: names of members, None for any element of an array.

    False also where that is not known.
    """
    found: list[object] = [schema]
    for step in path:
        found = [inner for each in _alternatives(schema, found) for inner in _inside(each, step)]
    objects = [each for each in _alternatives(schema, found) if "properties" in each or each.get("type") == "object"]
    return bool(objects) and all(any(each.get(word) is False for word in _CLOSING) for each in objects)


def open_objects(schema: Mapping[str, Any]) -> set[frozenset[str]] | None:
    """The members, as sets of names, of the objects in a schema that may have others too. None: it is too large."""
    found: set[frozenset[str]] = set()
    waiting: list[object] = [schema]
    for _ in range(_MAX_WALKED):
        if not waiting:
            return found
        node = waiting.pop()
        if isinstance(node, Mapping):
            members = cast("Mapping[str, object]", node)
            waiting += members.values()
            parts = _alternatives(schema, [members], ("allOf",))
            is_open = all(each.get(word) is not False for each in parts for word in _CLOSING)
            listed = [cast("object", each["properties"]) for each in parts if "properties" in each]
            names = [
                name for each in listed if isinstance(each, Mapping) for name in cast("Mapping[str, object]", each)
            ]
            if is_open and listed:
                found.add(frozenset(names))
        elif isinstance(node, Sequence) and not isinstance(node, str):
            waiting += cast("Sequence[object]", node)
    return None


def _alternatives(
    root: Mapping[str, Any], schemas: Sequence[object], words: Sequence[str] = ("anyOf", "oneOf", "allOf")
) -> list[Mapping[str, Any]]:
    """The schemas, and all that they refer to or, by these words, are made of."""
    waiting, seen = list(schemas), list[Mapping[str, Any]]()
    known: set[int] = set()
    while waiting and len(seen) < _MAX_SCHEMAS:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(cast("object", schema)) in known:
            continue
        node = cast("Mapping[str, Any]", schema)
        known.add(id(node))
        seen.append(node)
        if isinstance(reference := node.get("$ref"), str):
            waiting.append(resolved(root, reference))
        for word in words:
            if isinstance(members := node.get(word), Sequence):
                waiting += cast("Sequence[object]", members)
    return seen


def _inside(schema: Mapping[str, Any], step: str | None) -> Iterator[object]:
    if step is None:
        yield schema.get("items")
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and step in properties:
        yield cast("object", properties[step])
    else:
        yield schema.get("additionalProperties")


def resolved(root: Mapping[str, Any], reference: str) -> object:
    """What a reference inside the document leads to (RFC 6901)."""
    if not reference.startswith("#"):
        return None
    found: object = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = cast("Mapping[str, object]", found).get(key) if isinstance(found, Mapping) else None
    return found

"""The parts of a schema, and its objects that may have members that it does not list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from corral.json_schema.keywords import pointer_tokens, value_at

__all__ = ["alternatives", "open_objects", "resolved"]

_CLOSING = ("additionalProperties", "unevaluatedProperties")
_MAX_SCHEMAS = 500
_MAX_WALKED = 20_000


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
            parts = alternatives(schema, [members], ("allOf",))
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


def alternatives(
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


def resolved(root: Mapping[str, Any], reference: str) -> object:
    """The target of a reference inside the document; None if there is none."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    try:
        return value_at(root, pointer_tokens(unquote(reference[1:])))
    except LookupError:
        return None

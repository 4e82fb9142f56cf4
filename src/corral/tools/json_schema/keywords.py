"""Keywords of JSON Schema by kind, walks over schemas, and JSON pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

Pointer: TypeAlias = tuple[str, ...]
"""Unescaped tokens of a JSON pointer from the root of the document."""

ONE_SCHEMA = (
    "additionalItems additionalProperties contains contentSchema else if items not propertyNames then "
    "unevaluatedItems unevaluatedProperties".split()
)
SCHEMA_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
"""Keywords with a list of schemas. Up to draft 2019-09, `items` can be such a list."""
SCHEMAS_BY_NAME = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_KEYWORDS = frozenset((*ONE_SCHEMA, *SCHEMA_LISTS, *SCHEMAS_BY_NAME))
_CLOSING = ("additionalProperties", "unevaluatedProperties")
_DEPENDENT = frozenset(
    "allOf anyOf oneOf not if then else dependentSchemas dependencies $dynamicRef $recursiveRef $id".split()
)
"""Keywords that can make one part of a value depend on another."""
_MAX_HOPS = 60
_MAX_SCHEMAS = 500
_MAX_WALKED = 20_000


def mapping(value: object) -> dict[str, object]:
    """Returns the value if it is a JSON object, else an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def listing(value: object) -> list[object]:
    """Returns the value if it is a JSON array, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def subschemas(schema: object) -> Iterator[tuple[Pointer, object]]:
    """Yields the schemas directly within a schema, with their pointers from there."""
    keywords = mapping(schema)
    present = _KEYWORDS.intersection(keywords)
    if not present:  # most schemas are leaves
        return
    for keyword in ONE_SCHEMA:
        if keyword in present and isinstance(keywords[keyword], dict):
            yield (keyword,), keywords[keyword]
    for keyword in SCHEMA_LISTS:
        if keyword in present:
            for position, member in enumerate(listing(keywords[keyword])):
                yield (keyword, str(position)), member
    for keyword in SCHEMAS_BY_NAME:
        if keyword in present:
            for name, member in mapping(keywords[keyword]).items():
                yield (keyword, name), member


def objects_within(value: object) -> Iterator[dict[str, object]]:
    """Yields all JSON objects within a value, including itself, whether they are schemas or not."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield (members := cast("dict[str, object]", here))
            waiting += members.values()
        elif isinstance(here, list):
            waiting += cast("list[object]", here)


def rewritten(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Returns a copy in which `change` has replaced a copy of each JSON object, inner ones first.

    Includes objects that are not schemas, because a reference can use any of them as one.
    """
    match value:
        case dict():
            members = cast("dict[str, Any]", value).items()
            return change({key: rewritten(each, change) for key, each in members})
        case list():
            return [rewritten(each, change) for each in cast("list[Any]", value)]
        case _:
            return value


def pointer_tokens(pointer: str) -> Pointer:
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


def value_at(document: Any, pointer: Iterable[str]) -> Any:
    """Returns the value at a pointer.

    Raises:
        LookupError: there is no such value.
    """
    for token in pointer:
        items = listing(document)
        if token in mapping(document):
            document = document[token]
        elif token.isascii() and token.isdecimal() and len(token) < 10 and int(token) < len(items):
            document = items[int(token)]
        else:
            raise LookupError(token)
    return document


def open_objects(schema: Mapping[str, Any]) -> set[frozenset[str]] | None:
    """Returns the member names of each open object in a schema; None if the schema is too large."""
    objects: set[frozenset[str]] = set()
    waiting: list[object] = [schema]
    for _ in range(_MAX_WALKED):
        if not waiting:
            return objects
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
                objects.add(frozenset(names))
        elif isinstance(node, Sequence) and not isinstance(node, str):
            waiting += cast("Sequence[object]", node)
    return None


def alternatives(
    root: Mapping[str, Any], schemas: Sequence[object], words: Sequence[str] = ("anyOf", "oneOf", "allOf")
) -> list[Mapping[str, Any]]:
    """Returns the schemas and, recursively, everything that they refer to or that these keywords contain."""
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


def is_null(schema: object) -> bool:
    """True for a schema that only null matches."""
    keywords = mapping(schema)
    return keywords.get("type") == "null" or ("const" in keywords and keywords["const"] is None)


def resolved(root: Mapping[str, Any], reference: str) -> object:
    """Returns the target of a reference inside the document; None if there is no target."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    try:
        return value_at(root, pointer_tokens(unquote(reference[1:])))
    except LookupError:
        return None


def unconditional(root: Mapping[str, Any], schema: object) -> Mapping[str, object] | None:
    """Returns the keywords for an object or array; None if one part of it can constrain another."""
    for _ in range(_MAX_HOPS):
        known = mapping(schema)
        choices = [each for each in listing(known.get("anyOf")) if mapping(each).get("type") != "null"]
        deciding = (_DEPENDENT | {"$ref", "properties", "items"}) & known.keys()
        if isinstance(reference := known.get("$ref"), str) and len(deciding) == 1:
            schema = resolved(root, reference)
        elif len(choices) == 1 and len(deciding) == 1:
            schema = choices[0]
        else:
            return None if (_DEPENDENT | {"$ref"}) & known.keys() else known
    return None


def part_of(root: Mapping[str, Any], steps: Iterable[str | None]) -> Mapping[str, object] | None:
    """Returns the keywords for a part of a value, by a path of keys (None for an item); None if that is uncertain."""
    schema: object = root
    for step in steps:
        known = unconditional(root, schema) or {}
        schema = known.get("items") if step is None else mapping(known.get("properties")).get(step)
    return unconditional(root, schema) if mapping(schema) else None

"""Keywords of JSON Schema by what they hold, walks over schemas, and JSON pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

__all__ = [
    "ONE_SCHEMA",
    "SCHEMAS_BY_NAME",
    "SCHEMA_LISTS",
    "Pointer",
    "listing",
    "mapping",
    "objects_within",
    "pointer_tokens",
    "rewritten",
    "subschemas",
    "value_at",
]

Pointer: TypeAlias = tuple[str, ...]
"""The unescaped tokens of a JSON pointer from the root of the document."""

ONE_SCHEMA = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
SCHEMA_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
"""Up to draft 2019-09 `items` may be a list."""
SCHEMAS_BY_NAME = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_KEYWORDS = frozenset((*ONE_SCHEMA, *SCHEMA_LISTS, *SCHEMAS_BY_NAME))


def mapping(value: object) -> dict[str, object]:
    """The value if it is a JSON object, else an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def listing(value: object) -> list[object]:
    """The value if it is a JSON array, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def subschemas(schema: object) -> Iterator[tuple[Pointer, object]]:
    """The schemas directly within a schema, with their pointers from it."""
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
    """All JSON objects within a value, itself included, whether they are schemas or not."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield (members := cast("dict[str, object]", here))
            waiting += members.values()
        elif isinstance(here, list):
            waiting += cast("list[object]", here)


def rewritten(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy in which each JSON object is replaced by what `change` makes of a copy of it, inner ones first.

    Objects that are no schemas are among them, because a reference may use any of them as one.
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
    """The value that a pointer leads to.

    Raises:
        LookupError: there is none.
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

"""Rewrites older and informal forms of JSON Schema as draft 2020-12, which is assumed without `$schema`.

MCP servers and OpenAPI documents use them. Older drafts have tuples as a list under `items`, and boolean exclusive
bounds. No draft has `nullable`, or constants of another type than their schema's (`type: string` with `enum: [1.5,
2.0]`, from YAML without quotes).
"""

from __future__ import annotations

import json
import math
from typing import Any, cast

from corral.tools.json_schema.keywords import SCHEMAS_BY_NAME

_TYPES: dict[str, tuple[type, ...]] = {"boolean": (bool,), "integer": (int,), "number": (int, float)}

_DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data instead of schemas."""
_DOCUMENT = frozenset({"$anchor", "$defs", "$id", "definitions"})
"""Keywords that have to stay where they are because references rely on them."""


def upgraded(schema: Any, *, has_draft: bool = False) -> Any:
    """Converts the schema to draft 2020-12. Parts that need no change are copied unchanged.

    With `has_draft`, the schema names its draft, so forms that belong to that draft are kept.
    """
    match schema:
        case dict():
            known = cast("dict[str, Any]", schema)
            forms = {key: _member(key, value, has_draft=has_draft) for key, value in known.items()}
            return _of_no_draft(forms if has_draft else _of_this_draft(forms))
        case list():
            return [upgraded(each, has_draft=has_draft) for each in cast("list[Any]", schema)]
        case _:
            return schema


def _member(keyword: str, value: Any, *, has_draft: bool) -> Any:
    if keyword in _DATA:
        return value
    if keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {name: upgraded(each, has_draft=has_draft) for name, each in members}
    return upgraded(value, has_draft=has_draft)


def _of_this_draft(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if schema.get(exclusive) is True and bound in schema:
            schema[exclusive] = schema.pop(bound)
        elif isinstance(schema.get(exclusive), bool):
            del schema[exclusive]
    return schema


def _of_no_draft(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("enum"), list) and isinstance(schema.get("type"), str):
        schema["enum"] = enumerated(schema)
    return _nullable(schema) if schema.pop("nullable", None) is True else schema


def enumerated(schema: dict[str, Any]) -> list[object]:
    """Returns a schema's `enum` with its constants converted to the schema's type."""
    kind, constants = schema.get("type"), cast("list[object]", schema["enum"])
    if kind == "string":
        read = [json.dumps(each) if isinstance(each, bool | int | float) else each for each in constants]
    elif isinstance(kind, str) and kind in _TYPES:
        read = [_of_text(each, _TYPES[kind]) if isinstance(each, str) else each for each in constants]
    else:
        return constants
    return constants if read == constants else [*{json.dumps(each): each for each in read}.values()]


def _of_text(text: str, types: tuple[type, ...]) -> object:
    """Parses a text as JSON if the result has one of these types; otherwise returns the text."""
    try:
        value: object = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    return value if type(value) in types and value not in (math.inf, -math.inf) else text


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str | list) and "const" not in schema:
        kinds = [kind] if isinstance(kind, str) else cast("list[str]", kind)
        schema["type"] = list(dict.fromkeys([*kinds, "null"]))
        if isinstance(schema.get("enum"), list):
            schema["enum"] = [*schema["enum"], None]
        return schema
    kept = {keyword: schema.pop(keyword) for keyword in _DOCUMENT & schema.keys()}
    return {**kept, "anyOf": [schema, {"type": "null"}]}

"""Older ways of writing JSON Schema, in the terms of draft 2020-12: a schema without `$schema` is read as that one.

MCP servers and OpenAPI 3.0 documents still carry them: tuples as a list under `items`, `nullable`, and boolean
exclusive bounds.
"""

from __future__ import annotations

from typing import Any, cast

from corral.json_schema.keywords import SCHEMAS_BY_NAME

__all__ = ["upgraded"]

_DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, not schemas."""
_DOCUMENT = frozenset({"$anchor", "$defs", "$id", "definitions"})
"""Keywords that references rely on to stay where they are."""


def upgraded(schema: Any) -> Any:
    """The same schema without older forms; a part without any is copied as it is."""
    match schema:
        case dict():
            known = cast("dict[str, Any]", schema)
            return _forms({key: _member(key, value) for key, value in known.items()})
        case list():
            return [upgraded(each) for each in cast("list[Any]", schema)]
        case _:
            return schema


def _member(keyword: str, value: Any) -> Any:
    if keyword in _DATA:
        return value
    if keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
        return {name: upgraded(each) for name, each in cast("dict[str, Any]", value).items()}
    return upgraded(value)


def _forms(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if schema.get(exclusive) is True and bound in schema:
            schema[exclusive] = schema.pop(bound)
        elif isinstance(schema.get(exclusive), bool):
            del schema[exclusive]
    return _nullable(schema) if schema.pop("nullable", None) is True else schema


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

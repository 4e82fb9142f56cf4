"""JSON Schemas of GraphQL types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.protocols.graphql.source.schema import Argument, Schema, TypeRef
from corral.types import JsonSchema

_TEXT: JsonSchema = {"type": "string"}
SCALARS: Mapping[str, JsonSchema] = {
    "Int": {"type": "integer"},
    "Float": {"type": "number"},
    "String": _TEXT,
    "Boolean": {"type": "boolean"},
    "ID": _TEXT,
    "Date": _TEXT,
    "DateTime": _TEXT,
    "Time": _TEXT,
    "URI": _TEXT,
    "URL": _TEXT,
    "UUID": _TEXT,
}
"""Scalars of GraphQL, and those of others that are texts by custom. All others may be anything."""


def leaf_schema(schema: Schema, name: str, scalars: Mapping[str, JsonSchema]) -> JsonSchema:
    """Returns the schema of a scalar or an enum."""
    found = schema.types.get(name)
    if found is not None and found.kind == "ENUM" and found.values:
        return {"enum": found.values, "title": name}
    known = scalars.get(name)
    if known is not None:
        return dict(known)
    return {"description": f"GraphQL scalar {name}"}


def wrapped(reference: TypeRef, inner: JsonSchema) -> JsonSchema:
    """Returns the schema of a type with its lists, each of which may be null unless it says otherwise."""
    return _wrapped(reference.wrappers, inner)


def _wrapped(wrappers: str, inner: JsonSchema) -> JsonSchema:
    required = wrappers.startswith("!")
    rest = wrappers.removeprefix("!")
    found = {"type": "array", "items": _wrapped(rest[1:], inner)} if rest else inner
    return found if required else _nullable(found)


def _nullable(schema: JsonSchema) -> JsonSchema:
    if not schema.keys() & {"type", "enum", "$ref", "anyOf"}:
        return schema  # it may be anything
    kind = schema.get("type")
    if isinstance(kind, list):
        return {**schema, "type": [*kind, "null"]}
    if isinstance(kind, str) and "enum" not in schema and kind not in ("array", "object"):
        return {**schema, "type": [kind, "null"]}
    if "anyOf" in schema and len(schema) == 1:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


class InputSchemas:
    """Schema of the arguments of one field, with the input types that they mention as definitions."""

    def __init__(self, schema: Schema, scalars: Mapping[str, JsonSchema]) -> None:
        self._schema = schema
        self._scalars = scalars
        self._definitions: dict[str, JsonSchema] = {}
        self._waiting: list[str] = []

    def of(self, arguments: tuple[Argument, ...], more: Mapping[str, JsonSchema]) -> JsonSchema:
        """Returns the schema of an object with these arguments, and optional members."""
        found = self._object(arguments)
        found["properties"] |= more
        while self._waiting:
            name = self._waiting.pop()
            kind = self._schema.types[name]
            self._definitions[name] = self._object(kind.inputs)
            if kind.description:
                self._definitions[name]["description"] = kind.description
        if self._definitions:
            found["$defs"] = self._definitions
        return found

    def _object(self, arguments: tuple[Argument, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {
            "type": "object",
            "properties": {each.name: self._argument(each) for each in arguments},
            "additionalProperties": False,
        }
        if required := [each.name for each in arguments if each.required]:
            found["required"] = required
        return found

    def _argument(self, argument: Argument) -> JsonSchema:
        name = argument.type.name
        kind = self._schema.types.get(name)
        if kind is not None and kind.kind == "INPUT_OBJECT":
            if name not in self._definitions:
                self._definitions[name] = {}
                self._waiting.append(name)
            inner: JsonSchema = {"$ref": f"#/$defs/{name}"}
        elif name == "ID":
            inner = {"type": ["string", "integer"]}
        else:
            inner = leaf_schema(self._schema, name, self._scalars)
        found = wrapped(argument.type, inner)
        default = "" if argument.default in (None, "null") else f"Default: {argument.default[:200]}"
        text = "\n".join(filter(None, (argument.description, default)))
        return {**found, "description": text} if text else found

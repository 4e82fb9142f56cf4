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
"""GraphQL's own scalars, and others that are strings by convention. All others accept anything."""


def leaf_schema(schema: Schema, name: str, scalars: Mapping[str, JsonSchema]) -> JsonSchema:
    """Returns the schema of a scalar or an enum."""
    kind = schema.types.get(name)
    if kind is not None and kind.kind == "ENUM" and kind.values:
        return {"enum": kind.values, "title": name}
    known = scalars.get(name)
    if known is not None:
        return dict(known)
    return {"description": f"GraphQL scalar {name}"}


def wrapped(reference: TypeRef, inner: JsonSchema) -> JsonSchema:
    """Adds the lists of a type to a schema; each is nullable unless the type excludes that."""
    return _wrapped(reference.wrappers, inner)


def _wrapped(wrappers: str, inner: JsonSchema) -> JsonSchema:
    required = wrappers.startswith("!")
    rest = wrappers.removeprefix("!")
    array = {"type": "array", "items": _wrapped(rest[1:], inner)} if rest else inner
    return array if required else _nullable(array)


def _nullable(schema: JsonSchema) -> JsonSchema:
    if not schema.keys() & {"type", "enum", "$ref", "anyOf"}:
        return schema  # it accepts anything
    kind = schema.get("type")
    if isinstance(kind, list):
        return {**schema, "type": [*kind, "null"]}
    if isinstance(kind, str) and "enum" not in schema and kind not in ("array", "object"):
        return {**schema, "type": [kind, "null"]}
    if "anyOf" in schema and len(schema) == 1:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


class InputSchemas:
    """Schema of the arguments of one field; the input types that they mention are definitions."""

    def __init__(self, schema: Schema, scalars: Mapping[str, JsonSchema]) -> None:
        self._schema = schema
        self._scalars = scalars
        self._definitions: dict[str, JsonSchema] = {}
        self._waiting: list[str] = []

    def of(self, arguments: tuple[Argument, ...], more: Mapping[str, JsonSchema]) -> JsonSchema:
        """Returns the schema of an object with these arguments, and optional members."""
        schema = self._object(arguments)
        schema["properties"] |= more
        while self._waiting:
            name = self._waiting.pop()
            kind = self._schema.types[name]
            self._definitions[name] = self._object(kind.inputs)
            if kind.description:
                self._definitions[name]["description"] = kind.description
        if self._definitions:
            schema["$defs"] = self._definitions
        return schema

    def _object(self, arguments: tuple[Argument, ...]) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {each.name: self._argument(each) for each in arguments},
            "additionalProperties": False,
        }
        if required := [each.name for each in arguments if each.required]:
            schema["required"] = required
        return schema

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
        schema = wrapped(argument.type, inner)
        default = "" if argument.default in (None, "null") else f"Default: {argument.default[:200]}"
        text = "\n".join(filter(None, (argument.description, default)))
        return {**schema, "description": text} if text else schema

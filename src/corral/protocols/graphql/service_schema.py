"""GraphQL schema, read from the result of an introspection query, and JSON Schemas of its types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json

from corral.errors import ConfigError
from corral.tools.json_schema.keywords import listing, mapping
from corral.types import JsonSchema

_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]{0,199}")
_MAX_TEXT = 2_000
_MAX_WRAPPERS = 8

Kind: TypeAlias = Literal["SCALAR", "ENUM", "OBJECT", "INTERFACE", "UNION", "INPUT_OBJECT"]
_KINDS = frozenset({"SCALAR", "ENUM", "OBJECT", "INTERFACE", "UNION", "INPUT_OBJECT"})
_REFERENCE = "kind name " + "ofType { kind name " * _MAX_WRAPPERS + "} " * _MAX_WRAPPERS
_VALUE = f"name description defaultValue type {{ {_REFERENCE}}}"
INTROSPECTION = (
    "query { __schema { queryType { name } mutationType { name } types { kind name description "
    f"fields(includeDeprecated: true) {{ name description isDeprecated deprecationReason args {{ {_VALUE} }} "
    f"type {{ {_REFERENCE}}} }} inputFields {{ {_VALUE} }} enumValues(includeDeprecated: true) {{ name }} "
    "possibleTypes { name } } } }"
)
"""Introspection query for `read_schema`. It requests only members that older services support too."""


@dataclass(frozen=True, slots=True)
class TypeRef:
    """Reference to a type, from a field or an argument."""

    name: str
    wrappers: str
    """Wrappers from the outside in, as `!` and `[`: `[String!]!` is `![!`."""

    @property
    def required(self) -> bool:
        return self.wrappers.startswith("!")

    @property
    def is_list(self) -> bool:
        return "[" in self.wrappers

    def __str__(self) -> str:
        text = self.name
        for wrapper in reversed(self.wrappers):
            text = f"{text}!" if wrapper == "!" else f"[{text}]"
        return text


@dataclass(frozen=True, slots=True)
class Argument:
    """Argument of a field, or field of an input type."""

    name: str
    type: TypeRef
    description: str
    default: str | None

    @property
    def required(self) -> bool:
        return self.type.required and self.default is None


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: TypeRef
    description: str
    deprecated: str | None
    """Reason for its deprecation."""
    arguments: tuple[Argument, ...]

    @property
    def needs_arguments(self) -> bool:
        return any(each.required for each in self.arguments)


@dataclass(frozen=True, slots=True)
class TypeDef:
    """Named type. Its members are read from the document when they are needed."""

    name: str
    kind: Kind
    raw: Mapping[str, Any]

    @property
    def is_leaf(self) -> bool:
        return self.kind in ("SCALAR", "ENUM")

    @property
    def description(self) -> str:
        return _text(self.raw.get("description"))

    @property
    def fields(self) -> dict[str, Field]:
        return {each.name: each for each in map(_field, _members(self.raw, "fields")) if each is not None}

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return _arguments(self.raw, "inputFields")

    @property
    def values(self) -> list[str]:
        return [each["name"] for each in _members(self.raw, "enumValues") if _is_name(each.get("name"))]

    @property
    def possible(self) -> list[str]:
        return [each["name"] for each in _members(self.raw, "possibleTypes") if _is_name(each.get("name"))]


@dataclass(frozen=True, slots=True)
class Schema:
    types: Mapping[str, TypeDef]
    query: str
    mutation: str | None

    def named(self, reference: TypeRef) -> TypeDef | None:
        """Returns the type that a reference names; None if it is unknown."""
        return self.types.get(reference.name)


def read_schema(document: bytes | Mapping[str, Any]) -> Schema:
    """Reads the result of an introspection query: `{"data": {"__schema": ...}}`, or a part of it.

    Raises:
        ConfigError: the document is not such a result.
    """
    try:
        root: object = from_json(document) if isinstance(document, bytes) else document
    except ValueError as error:
        raise ConfigError("the GraphQL schema is not JSON; pass the result of an introspection query") from error
    for key in ("data", "__schema"):
        root = mapping(root).get(key, root)
    query = _name_at(root, "queryType")
    if query is None:
        raise ConfigError("the GraphQL schema has no queryType; pass the result of an introspection query")
    types = {
        each["name"]: TypeDef(each["name"], each["kind"], each)
        for each in _members(root, "types")
        if _is_name(each.get("name")) and each.get("kind") in _KINDS
    }
    return Schema(types, query, _name_at(root, "mutationType"))


def _field(raw: Mapping[str, Any]) -> Field | None:
    kind = _reference(raw.get("type"))
    if kind is None or not _is_name(raw.get("name")) or str(raw["name"]).startswith("__"):
        return None
    reason = (_text(raw.get("deprecationReason")) or "no longer supported") if raw.get("isDeprecated") else None
    return Field(raw["name"], kind, _text(raw.get("description")), reason, _arguments(raw, "args"))


def _arguments(raw: Mapping[str, Any], key: str) -> tuple[Argument, ...]:
    return tuple(each for each in map(_argument, _members(raw, key)) if each is not None)


def _argument(raw: Mapping[str, Any]) -> Argument | None:
    kind = _reference(raw.get("type"))
    if kind is None or not _is_name(raw.get("name")):
        return None
    default = raw.get("defaultValue")
    return Argument(raw["name"], kind, _text(raw.get("description")), default if isinstance(default, str) else None)


def _reference(raw: object) -> TypeRef | None:
    wrappers = ""
    for _ in range(2 * _MAX_WRAPPERS):
        part = mapping(raw)
        kind, name = part.get("kind"), part.get("name")
        if kind not in ("NON_NULL", "LIST"):
            return TypeRef(name, wrappers) if isinstance(name, str) and _is_name(name) else None
        wrappers += "!" if kind == "NON_NULL" else "["
        raw = part.get("ofType")
    return None


def _members(raw: object, key: str) -> Iterator[dict[str, Any]]:
    return (mapping(each) for each in listing(mapping(raw).get(key)))


def _name_at(raw: object, key: str) -> str | None:
    name = mapping(mapping(raw).get(key)).get("name")
    return name if isinstance(name, str) and _is_name(name) else None


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _text(value: object) -> str:
    return value.strip()[:_MAX_TEXT] if isinstance(value, str) else ""


# --- JSON Schemas -------------------------------------------------------------------------------------------

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
"""GraphQL's own scalars, and others that are strings by convention. Any other scalar accepts anything."""


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
    """Wraps a schema in the lists of a type. Each level is nullable unless the type excludes that."""
    return _wrapped(reference.wrappers, inner)


def _wrapped(wrappers: str, inner: JsonSchema) -> JsonSchema:
    required = wrappers.startswith("!")
    rest = wrappers.removeprefix("!")
    array = {"type": "array", "items": _wrapped(rest[1:], inner)} if rest else inner
    return array if required else _nullable(array)


def _nullable(schema: JsonSchema) -> JsonSchema:
    if not schema.keys() & {"type", "enum", "$ref", "anyOf"}:
        return schema  # the schema accepts anything
    kind = schema.get("type")
    if isinstance(kind, list):
        return {**schema, "type": [*kind, "null"]}
    if isinstance(kind, str) and "enum" not in schema and kind not in ("array", "object"):
        return {**schema, "type": [kind, "null"]}
    if "anyOf" in schema and len(schema) == 1:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


class InputSchemas:
    """Schema of the arguments of one field. The input types that they mention are definitions."""

    def __init__(self, schema: Schema, scalars: Mapping[str, JsonSchema]) -> None:
        self._schema = schema
        self._scalars = scalars
        self._definitions: dict[str, JsonSchema] = {}
        self._waiting: list[str] = []

    def of(self, arguments: tuple[Argument, ...], more: Mapping[str, JsonSchema]) -> JsonSchema:
        """Returns the schema of an object with these arguments and optional members."""
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

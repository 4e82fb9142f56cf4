"""A GraphQL schema, read from the result of an introspection query. Unusable parts are omitted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json

from corral.errors import ConfigError
from corral.tools.json_schema.keywords import listing, mapping

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
"""Introspection query for `read_schema`. It requests only what older services support."""


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A reference to a type by a field or an argument."""

    name: str
    wrappers: str
    """`!` and `[` from the outside in: `[String!]!` is `![!`."""

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
    """An argument of a field, or a field of an input type."""

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
    """Reason of its deprecation."""
    arguments: tuple[Argument, ...]

    @property
    def needs_arguments(self) -> bool:
        return any(each.required for each in self.arguments)


@dataclass(frozen=True, slots=True)
class TypeDef:
    """A named type. Its members are read from the document when they are needed."""

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

"""Converts schema objects of a document to self-contained JSON Schema 2020-12, with references in `$defs`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from corral.sources.openapi.documents import DocumentNode, Unusable, child_pointer
from corral.tools.json_schema.keywords import ONE_SCHEMA, SCHEMA_LISTS, SCHEMAS_BY_NAME
from corral.tools.json_schema.older_drafts import upgraded
from corral.types import JsonSchema

_MAX_WEIGHT = 1_000
"""Maximum number of schemas that can apply to one value, because nested alternatives multiply."""
_MAX_HOPS = 8
_MAX_PARTS = 100
"""Maximum number of parts of a schema that are searched for hidden properties."""
_MAX_DESCRIPTION = 1_000

_MAPS = frozenset(SCHEMAS_BY_NAME) - {"$defs", "definitions", "dependencies"}
"""Keywords with schemas by name. Without definitions, which are only included if something refers to them."""
_HOLDING_SCHEMAS = _MAPS.union(ONE_SCHEMA, SCHEMA_LISTS)
_SAME_VALUE = frozenset("allOf anyOf dependentSchemas else if not oneOf then".split())
"""Keywords whose schemas describe the same value as the schema that contains them."""
_NUMBERS = frozenset({"maximum", "minimum", "multipleOf"})
_COUNTS = frozenset("maxContains maxItems maxLength maxProperties minContains minItems minLength minProperties".split())
_TEXTS = frozenset({"contentEncoding", "contentMediaType", "description", "format", "title"})
_FLAGS = frozenset({"deprecated", "nullable", "uniqueItems", "writeOnly", "readOnly"})
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_ANNOTATIONS = frozenset({"deprecated", "description", "nullable", "readOnly", "writeOnly", "x-nullable"})
"""Keywords that also apply next to a `$ref` in OpenAPI 3.0. The standard ignores them there, but authors use them."""

Schema: TypeAlias = dict[str, Any] | bool


@dataclass(slots=True)
class SchemaUse:
    """Schema, and the names in `$defs` to which it refers."""

    schema: Schema
    names: set[str] = field(default_factory=set[str])
    same_value: Counter[str] = field(default_factory=Counter[str])
    """Definitions that apply to the value itself, and how many times."""


class Schemas:
    """Schemas of a document for one direction: requests omit `readOnly` properties, responses omit `writeOnly` ones."""

    def __init__(self, root: dict[str, Any], *, in_requests: bool) -> None:
        self._root = DocumentNode(root, root)
        self._siblings_count = not str(root.get("openapi")).startswith("3.0")
        self._hiding = "readOnly" if in_requests else "writeOnly"
        self._names: dict[str, str] = {}
        """Names of definitions by the JSON pointer of their target."""
        self._pointers: dict[str, str] = {}
        """JSON pointers of definitions by name."""
        self._namesakes: Counter[str] = Counter()
        self._definitions: dict[str, SchemaUse] = {}
        self._waiting: list[str] = []
        self._wrong: dict[str, str] = {}
        """Reasons why definitions cannot be used."""

    def read(self, part: DocumentNode) -> SchemaUse:
        """Reads the schema at a node. Raises Unusable."""
        use = SchemaUse({})
        use.schema = upgraded(self._schema(part.value, part.pointer, use, same=True))
        return use

    def settle(self) -> None:
        """Reads all targets of references, and finds out which cannot be used."""
        while self._waiting:
            name = self._waiting.pop()
            try:
                self._definitions[name] = self.read(self._root.target(self._pointers[name]))
            except Unusable as problem:
                self._wrong[name] = str(problem)
                self._definitions[name] = SchemaUse(True)
        self._find_bombs()
        users: dict[str, list[str]] = {}
        for name, use in self._definitions.items():
            for each in use.names:
                users.setdefault(each, []).append(name)
        spreading = list(self._wrong)
        while spreading:
            wrong = spreading.pop()
            for name in users.get(wrong, ()):
                if name not in self._wrong:
                    self._wrong[name] = self._wrong[wrong]
                    spreading.append(name)

    def objection(self, use: SchemaUse) -> str | None:
        """Returns the reason why a schema cannot be used. Call `settle` first."""
        for name in sorted(use.names):
            if name in self._wrong:
                return self._wrong[name]
        return None

    def definitions(self, names: Iterable[str]) -> JsonSchema:
        """Returns `$defs` for these names and everything they refer to; an empty object if there are none."""
        needed: set[str] = set()
        coming = set(names)
        while coming:
            needed |= coming
            coming = set[str]().union(*(self._definitions[name].names for name in coming)) - needed
        return {"$defs": {name: self._definitions[name].schema for name in sorted(needed)}} if needed else {}

    def _find_bombs(self) -> None:
        """Finds definitions that apply to a value infinitely or too often, so that validation would not end."""
        weights: dict[str, int] = {}
        users: dict[str, list[str]] = {}
        open_: dict[str, int] = {}
        for name, use in self._definitions.items():
            open_[name] = len(use.same_value)
            for each in use.same_value:
                users.setdefault(each, []).append(name)
        ready = [name for name, left in open_.items() if not left]
        while ready:
            name = ready.pop()
            weights[name] = 1 + sum(weights[each] * times for each, times in self._definitions[name].same_value.items())
            if weights[name] > _MAX_WEIGHT:
                self._wrong.setdefault(name, f"{self._pointers[name][:300]}: its alternatives multiply")
                weights[name] = 1
            for user in users.get(name, ()):
                open_[user] -= 1
                if not open_[user]:
                    ready.append(user)
        for name in self._definitions.keys() - weights.keys():
            self._wrong.setdefault(name, f"{self._pointers[name][:300]}: refers to itself in a circle")

    # --- one schema

    def _schema(
        self, value: object, pointer: str, use: SchemaUse, *, same: bool, hidden: frozenset[str] = frozenset()
    ) -> Schema:
        """Converts a schema. `hidden` are properties that enclosing schemas of the same value have hidden."""
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            raise Unusable(f"{pointer[:300]}: is not a schema")
        keywords = cast("dict[str, Any]", value)
        schema: dict[str, Any] = {}
        if "$ref" in keywords:
            name = self._reference(keywords["$ref"], pointer)
            use.names.add(name)
            if same:
                use.same_value[name] += 1
            schema["$ref"] = f"#/$defs/{name}"
            if not self._siblings_count:
                keywords = {key: keywords[key] for key in _ANNOTATIONS & keywords.keys()}
        hidden |= self._hidden(keywords, set())
        for key, each in keywords.items():
            where = child_pointer(pointer, key)
            if key in _HOLDING_SCHEMAS:
                below = same and key in _SAME_VALUE
                passed = hidden if key == "allOf" else frozenset[str]()
                schema[key] = self._subschemas(key, each, where, use, same=below, hidden=passed)
            elif key == "required":
                names = [name for name in _texts(each, where) if name not in hidden]
                if names:
                    schema["required"] = list(dict.fromkeys(names))
            elif (plain := _plain(key, each, where)) is not None:
                schema[key] = plain
        if keywords.get("x-nullable") is True:  # the only form that Swagger 2.0 has
            schema["nullable"] = True
        if "const" in keywords:
            schema["const"] = keywords["const"]
        if "default" in keywords:
            schema["default"] = keywords["default"]
        if "discriminator" in keywords:
            self._discriminate(keywords, schema)
        return schema

    def _subschemas(
        self, key: str, value: object, pointer: str, use: SchemaUse, *, same: bool, hidden: frozenset[str]
    ) -> Any:
        def below(name: str, each: object) -> Schema:
            return self._schema(each, child_pointer(pointer, name), use, same=same, hidden=hidden)

        if key in SCHEMA_LISTS and (key not in ONE_SCHEMA or isinstance(value, list)):
            if not isinstance(value, list) or (not value and key != "prefixItems"):
                raise Unusable(f"{pointer[:300]}: is not a list of schemas")
            return [below(str(number), each) for number, each in enumerate(cast("list[object]", value))]
        if key in _MAPS:
            if not isinstance(value, dict):
                raise Unusable(f"{pointer[:300]}: is not an object")
            members = cast("dict[str, object]", value).items()
            if key == "properties":
                return {name: below(name, each) for name, each in members if not self._is_hidden(each)}
            return {name: below(name, each) for name, each in members}
        return self._schema(value, pointer, use, same=same)

    def _reference(self, reference: object, pointer: str) -> str:
        target = DocumentNode(self._root.root, {}, pointer).target(reference).pointer
        if target not in self._names:
            base = re.sub(r"[^\w.-]", "_", target.rpartition("/")[2], flags=re.ASCII)[:100] or "Schema"
            name = base
            while name in self._definitions:
                self._namesakes[base] += 1
                name = f"{base}_{self._namesakes[base] + 1}"
            self._names[target] = name
            self._pointers[name] = target
            self._definitions[name] = SchemaUse(True)
            self._waiting.append(name)
        return self._names[target]

    # --- readOnly and writeOnly

    def _hidden(self, schema: Mapping[str, Any], seen: set[int]) -> frozenset[str]:
        """Returns the names of properties that this direction omits, in the schema and all its parts."""
        names: set[str] = set()
        seen.add(id(schema))
        properties = schema.get("properties")
        if isinstance(properties, dict):
            names.update(name for name, each in cast("dict[str, object]", properties).items() if self._is_hidden(each))
        parts = schema.get("allOf")
        if isinstance(parts, list):
            for each in map(self._follow, cast("list[object]", parts)):
                if id(each) not in seen and len(seen) < _MAX_PARTS:
                    names |= self._hidden(each, seen)
        return frozenset(names)

    def _is_hidden(self, schema: object) -> bool:
        if not isinstance(schema, dict):
            return False
        keywords = cast("dict[str, Any]", schema)
        return keywords.get(self._hiding) is True or self._follow(keywords).get(self._hiding) is True

    def _follow(self, schema: object) -> dict[str, Any]:
        """Returns the schema at the end of a chain of references; empty if there is none."""
        for _ in range(_MAX_HOPS):
            if not isinstance(schema, dict):
                return {}
            keywords = cast("dict[str, Any]", schema)
            if "$ref" not in keywords:
                return keywords
            try:
                schema = self._root.target(keywords["$ref"]).value
            except Unusable:
                return {}
        return {}

    # --- discriminators

    def _discriminate(self, keywords: dict[str, Any], schema: dict[str, Any]) -> None:
        """Adds to each alternative the property values that select it, if the document maps them."""
        discriminator = keywords["discriminator"]
        if not isinstance(discriminator, dict):
            return
        known = cast("dict[str, Any]", discriminator)
        name, mapping = known.get("propertyName"), known.get("mapping")
        if not isinstance(name, str) or not isinstance(mapping, dict):
            return
        labels = self._labels(cast("dict[str, object]", mapping))
        alternatives: list[Schema] = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
        for alternative in alternatives:
            if isinstance(alternative, bool):
                continue
            reference: str = alternative.get("$ref", "")
            if reference in labels:
                alternative["properties"] = {name: {"enum": labels[reference]}}
                alternative["required"] = [name]

    def _labels(self, mapping: dict[str, object]) -> dict[str, list[str]]:
        """Returns labels by the reference into `$defs`. A mapping names a reference or a schema."""
        labels: dict[str, list[str]] = {}
        for label, target in mapping.items():
            if isinstance(target, str):
                reference = target if target.startswith("#") else f"#/components/schemas/{target}"
                if reference in self._names:
                    labels.setdefault(f"#/$defs/{self._names[reference]}", []).append(label)
        return labels


def _plain(key: str, value: Any, pointer: str) -> object:
    """Returns the value of a keyword that contains no schemas; None if the keyword is unknown."""
    if key == "type":
        kinds = [value] if isinstance(value, str) else _texts(value, pointer)
        if unknown := [kind for kind in kinds if kind not in _TYPES]:
            raise Unusable(f"{pointer[:300]}: {unknown[0][:50]!r} is not a type of JSON Schema")
        return value
    if key == "enum":
        return _require(value, isinstance(value, list) and value != [], pointer)
    if key == "pattern":
        return _require(value, isinstance(value, str), pointer)
    if key in _NUMBERS:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and (key != "multipleOf" or value > 0)
        return _require(value, fits, pointer)
    if key in ("exclusiveMaximum", "exclusiveMinimum"):
        return _require(value, isinstance(value, int | float), pointer)
    if key in _COUNTS:
        return _require(value, isinstance(value, int) and not isinstance(value, bool) and value >= 0, pointer)
    if key in _TEXTS:
        return _require(value, isinstance(value, str), pointer)[:_MAX_DESCRIPTION]
    if key in _FLAGS:
        return _require(value, isinstance(value, bool), pointer)
    if key == "dependentRequired" and isinstance(value, dict):
        return {name: _texts(each, pointer) for name, each in cast("dict[str, object]", value).items()}
    return None


def _require(value: Any, fits: bool, pointer: str) -> Any:
    if not fits:
        raise Unusable(f"{pointer[:300]}: {str(value)[:50]!r} is not a valid value of this keyword")
    return value


def _texts(value: object, pointer: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[object]", value)):
        raise Unusable(f"{pointer[:300]}: is not a list of names")
    return cast("list[str]", value)

"""Conditions of rules: a part of JSON Schema in which an absent or unsuitable value satisfies no condition.

Plain JSON Schema ignores a keyword that does not fit the type of a value, so `{"maximum": 500}` accepts a string, and
`{"not": {"maximum": 500}}` accepts it as well. Here a condition has three outcomes: true, false, and not applicable.
`not` keeps the third one. Conditions are compiled to schemas that accept exactly the values for which they are true.
`jsonschema-rs` evaluates these, patterns included, in linear time.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

from corral.arguments import did_you_mean
from corral.types import JsonSchema

_APPLIES_TO: Mapping[str, str] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "path_under"), "string"),
    **dict.fromkeys(("items", "contains", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("properties", "required", "minProperties", "maxProperties"), "object"),
}
"""Keywords, and the only type of value to which each applies."""
_KEYWORDS = (*_APPLIES_TO, "type", "const", "enum", "anyOf", "allOf", "not")
_TYPES: Mapping[type, str] = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
_DEEPEST = 16
_MOST_NODES = 2_000
_PATTERN_BYTES = 1_000_000
"""Maximum size of a compiled pattern."""
_SEGMENT = r"(?:[^./\\%\x00-\x1f][^/\\%\x00-\x1f]*|\.[^./\\%\x00-\x1f][^/\\%\x00-\x1f]*|\.\.[^/\\%\x00-\x1f]+)"
"""Segment of a path, other than `.` and `..`, that no tool can read as several segments."""


class Condition:
    """Condition on the fields of an input; all fields must be present and satisfy theirs.

    `excuses` says that a call is more allowed if the condition is true. Only then can it use `path_under`.

    Raises:
        ValueError: a keyword is unknown, or its value is invalid.
    """

    def __init__(self, fields: Mapping[str, Any], *, excuses: bool) -> None:
        self.fields = fields
        self._nodes = 0
        self._document = self._true({"properties": fields}, excuses=excuses, depth=0)
        _ = self._validator  # so that a wrong pattern is found now

    @cached_property
    def _validator(self) -> Any:
        import jsonschema_rs  # takes 0.1 s

        return jsonschema_rs.validator_for(
            self._document,
            validate_formats=False,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES),
        )

    def holds(self, document: object) -> bool:
        """True if the condition is true of this input, which is plain JSON."""
        return bool(self._validator.is_valid(document))

    def _true(self, schema: Mapping[str, Any], *, excuses: bool, depth: int) -> JsonSchema:
        """Returns the schema of values for which the condition is true."""
        self._count(schema, depth)
        body: JsonSchema = {}
        for keyword, value in schema.items():
            match keyword:
                case "properties":
                    body["required"] = [*{*body.get("required", ()), *value}]
                    body["properties"] = {
                        name: self._true(each, excuses=excuses, depth=depth + 1) for name, each in value.items()
                    }
                case "required":
                    body["required"] = [*{*body.get("required", ()), *value}]
                case "items" | "contains":
                    body[keyword] = self._true(value, excuses=excuses, depth=depth + 1)
                case "anyOf" | "allOf":
                    body[keyword] = [self._true(each, excuses=excuses, depth=depth + 1) for each in value]
                case "not":
                    body["not"] = self._true(value, excuses=not excuses, depth=depth + 1)
                case "path_under":
                    if not excuses:
                        raise ValueError(
                            "path_under can only excuse, because many paths lead to one file; use it in `unless`, or "
                            "in the `when` of a rule that allows"
                        )
                    body.setdefault("allOf", []).append({"pattern": _path_pattern(value)})
                case _:
                    body[keyword] = value
        return {"allOf": [_applicable(schema), body]}

    def _count(self, schema: Mapping[str, Any], depth: int) -> None:
        self._nodes += 1
        if not isinstance(cast("object", schema), dict):
            raise ValueError(f"{schema!r} is not a condition; write a table of JSON Schema keywords")
        if depth > _DEEPEST or self._nodes > _MOST_NODES:
            raise ValueError("the condition is too large or too deeply nested")
        for keyword, value in schema.items():
            if keyword not in _KEYWORDS:
                raise ValueError(
                    f"unknown keyword {keyword!r}; {did_you_mean(keyword, _KEYWORDS)}known: {', '.join(_KEYWORDS)}"
                )
            if keyword in ("anyOf", "allOf", "required", "enum") and not (isinstance(value, list) and value):
                raise ValueError(f"{keyword} must be a list that is not empty")
            if keyword == "properties" and not isinstance(value, dict):
                raise ValueError("properties must be a table")


def _applicable(schema: Mapping[str, Any]) -> JsonSchema:
    """Returns the schema of values to which a condition applies."""
    parts: list[JsonSchema] = []
    for keyword, value in schema.items():
        if keyword in _APPLIES_TO:
            parts.append({"type": _APPLIES_TO[keyword]})
        match keyword:
            case "type" if len(schema) > 1:
                parts.append({"type": value})
            case "const":
                parts.append({"type": _type_of(value)})
            case "enum":
                parts.append({"type": sorted({_type_of(each) for each in value})})
            case "properties":
                parts.append(
                    {"required": [*value], "properties": {name: _applicable(each) for name, each in value.items()}}
                )
            case "items" | "contains":
                parts.append({"items": _applicable(value)})
            case "allOf":
                parts.extend(map(_applicable, value))
            case "anyOf":
                parts.append({"anyOf": [*map(_applicable, value)]})
            case "not":
                parts.append(_applicable(value))
            case _:
                pass
    return {"allOf": parts} if parts else {}


def _type_of(value: object) -> str:
    return "null" if value is None else _TYPES.get(type(value), "object")


def _path_pattern(base: object) -> str:
    if (
        not isinstance(base, str)
        or not base
        or posixpath.normpath(base) != base
        or base.startswith("..")
        or "//" in base
    ):
        raise ValueError(f'path_under = {base!r} is not a normalized path, such as "/srv/files"')
    return f"^{re.escape(base.rstrip('/'))}(?:/{_SEGMENT})+/?$"

"""Conditions of rules: a part of JSON Schema in which an absent or unsuitable value satisfies no condition.

Plain JSON Schema ignores a keyword that does not fit the type of a value, so `{"maximum": 500}` accepts a string, and
`{"not": {"maximum": 500}}` accepts it as well. Here a condition has three outcomes: true, false, and not applicable.
`not` keeps the third one. Conditions are compiled to schemas that accept exactly the values for which they are true.
`jsonschema-rs` evaluates these, patterns included, in linear time.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_UPPER = frozenset({"maximum", "exclusiveMaximum"})
_BOUNDS = _UPPER | {"minimum", "exclusiveMinimum"}
_EXACT = 2**53
"""Maximum of the numbers that floats and integers both have."""
_DEEPEST = 16
_MOST_NODES = 2_000
_PATTERN_BYTES = 1_000_000
"""Maximum size of a compiled pattern."""
_SEGMENT = r"(?:[^./\\%\x00-\x1f][^/\\%\x00-\x1f]*|\.[^./\\%\x00-\x1f][^/\\%\x00-\x1f]*|\.\.[^/\\%\x00-\x1f]+)"
"""Segment of a path, other than `.` and `..`, that no tool can read as several segments."""


def compiled(schema: JsonSchema, pattern_bytes: int = _PATTERN_BYTES) -> Any:
    """Returns the validator of a schema whose compiled patterns have at most this size.

    Raises:
        ValueError: a pattern is invalid, or too large.
    """
    import jsonschema_rs  # takes 0.1 s

    options = jsonschema_rs.RegexOptions(size_limit=pattern_bytes)
    return jsonschema_rs.validator_for(schema, validate_formats=False, pattern_options=options)


class Condition:
    """Condition on the fields of an input; all fields must be present and satisfy theirs.

    `excuses` says that a call is more allowed if the condition is true. Only then can it use `path_under`.

    Raises:
        ValueError: a keyword is unknown, or its value is invalid.
    """

    def __init__(self, fields: Mapping[str, Any], *, excuses: bool) -> None:
        self.is_of_one = len(fields) == 1
        """True if it is about one field."""
        self._nodes = 0
        self.schema = self._true({"properties": fields}, excuses=excuses, depth=0)
        """Schema of the inputs for which it is true: `type`, `required` and `properties`."""
        self.holds: Callable[[object], bool] = compiled(self.schema).is_valid  # so that a wrong pattern is found now
        """True if the condition is true of this input, which is plain JSON."""

    def _true(self, schema: Mapping[str, Any], *, excuses: bool, depth: int) -> JsonSchema:
        """Returns the schema of values to which the condition applies and for which it is true."""
        self._count(schema, depth)
        body: JsonSchema = {}
        parts: list[JsonSchema] = []
        types = {_APPLIES_TO[keyword] for keyword in schema if keyword in _APPLIES_TO}
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
                    if keyword == "contains":
                        parts.append(_applicable({"contains": value}))
                case "anyOf" | "allOf":
                    parts.append({keyword: [self._true(each, excuses=excuses, depth=depth + 1) for each in value]})
                case "not":
                    body["not"] = self._true(value, excuses=not excuses, depth=depth + 1)
                    parts.append(_applicable(value))
                case "path_under":
                    if not excuses:
                        raise ValueError(
                            "path_under can only excuse, because many paths lead to one file; use it in `unless`, or "
                            "in the `when` of a rule that allows"
                        )
                    parts.append({"pattern": _path_pattern(value)})
                case "const":
                    body[keyword] = value
                    types.add(_type_of(value))
                case "type":
                    parts.append({"type": value})
                case _:
                    body[keyword] = value
        if len(types) == 1:
            body["type"] = types.pop()
        parts += [{"type": each} for each in sorted(types)]
        return {**body, "allOf": parts} if parts else body

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


def none_holds(rules: Sequence[tuple[Condition | None, Condition | None]], pattern_bytes: int) -> Any:
    """Returns a validator of inputs for which each rule's first condition (`when`) is false, or its second one
    (`unless`) is true; None stands for an absent one.

    Conditions on one field are judged together, so that it takes a tenth of the time of judging them one by one. It can
    refuse such an input, but never accepts any other.

    Raises:
        ValueError: a compiled pattern is larger than `pattern_bytes`.
    """
    unless_only = _by_field([unless for when, unless in rules if when is None and unless is not None])
    when_only = _by_field([when for when, unless in rules if unless is None and when is not None and when.is_of_one])
    both = [(when, unless) for when, unless in rules if when is not None and (unless or not when.is_of_one)]
    schema = _joined(unless_only, when_only)
    if both:
        each_false: list[JsonSchema] = [
            {"not": {"allOf": [when.schema, *([{"not": unless.schema}] if unless else ())]}} for when, unless in both
        ]
        ways: list[JsonSchema] = [{"allOf": each_false}]
        if all(when.is_of_one for when, _ in both):  # the first way is the fastest
            ways.insert(0, _joined({}, _by_field([when for when, _ in both])))
        schema["anyOf"] = ways
    return compiled(schema, pattern_bytes)


def _by_field(conditions: Iterable[Condition]) -> dict[str, list[JsonSchema]]:
    """Returns the different schemas of each field."""
    fields: dict[str, dict[str, JsonSchema]] = {}
    for condition in conditions:
        for name, schema in condition.schema["properties"].items():
            fields.setdefault(name, {})[str(schema)] = schema
    return {name: [*schemas.values()] for name, schemas in fields.items()}


def _joined(true: Mapping[str, Sequence[JsonSchema]], false: Mapping[str, Sequence[JsonSchema]]) -> JsonSchema:
    """Returns the schema of objects with the fields of `true`, which satisfy all its schemas, and none of `false`."""
    fields: JsonSchema = {}
    for name in {**true, **false}:
        parts = [*_merged(true.get(name, ()), of_any=False)]
        parts += [{"not": each} for each in _merged(false.get(name, ()), of_any=True)]
        fields[name] = {"allOf": parts}
    return {"type": "object", "required": [*true], "properties": fields}


def _merged(schemas: Sequence[JsonSchema], *, of_any: bool) -> Iterator[JsonSchema]:
    """Yields fewer schemas with the same meaning: with `of_any`, that one of them accepts a value, else that all do."""
    patterns: list[str] = []
    bounds: dict[str, float] = {}
    for schema in schemas:
        keywords = schema.keys() - {"type"}
        is_single = len(keywords) == 1 or not of_any
        if is_single and schema.get("type") == "number" and all(_is_bound(each, schema[each]) for each in keywords):
            for each in keywords:
                pick = max if (each in _UPPER) is of_any else min
                bounds[each] = pick(schema[each], bounds.get(each, schema[each]))
        # a comment in an extended pattern would hide what follows
        elif of_any and schema.keys() == {"pattern", "type"} and "#" not in schema["pattern"]:
            patterns.append(f"(?:{schema['pattern']})")
        else:
            yield schema
    if patterns:
        yield {"type": "string", "pattern": "|".join(patterns)}
    if of_any:
        yield from ({"type": "number", keyword: bound} for keyword, bound in bounds.items())
    elif bounds:
        yield {"type": "number", **bounds}


def _is_bound(keyword: str, value: object) -> bool:
    """True for an upper or lower bound that every number is compared with exactly."""
    return keyword in _BOUNDS and isinstance(value, int | float) and abs(value) <= _EXACT


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

"""JSON Schema documents as schemas of tools."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from corral.errors import ToolDefinitionError
from corral.tools.dialects import modernised
from corral.tools.plain import plain
from corral.tools.problems import MAX_PROBLEMS, UNEXPECTED, Path, Problem, SchemaMismatch, child, cut, either
from corral.tools.type_problems import MAX_READ
from corral.types import JsonSchema

__all__ = ["DocumentSchema"]

_MAX_TEXT_CHARACTERS = 200

_logger = logging.getLogger(__name__)


class DocumentSchema:
    """A JSON Schema document: draft 2020-12, with older forms understood, unless its `$schema` says otherwise.

    Nothing is ever fetched.

    Parts behind a `$ref` that leads nowhere accept anything. Bytes count as base64 text, NaN and infinities as
    numbers, dates and the like as the text they are sent as. Values deeper than about 250 levels are refused.

    Raises:
        ToolDefinitionError: the document is not a valid schema.
    """

    def __init__(self, document: JsonSchema, *, owner: str) -> None:
        try:
            self.json_schema: JsonSchema = _as_json(document)
        except (ValueError, PydanticSerializationError) as error:
            raise ToolDefinitionError(f"{owner} is not JSON, or too deeply nested: {error}") from error
        read_as = self.json_schema if "$schema" in self.json_schema else modernised(self.json_schema)
        self._validator = _build_validator(read_as, owner)

    def load(self, raw: object) -> object:
        self._check(raw)
        return raw

    def dump(self, value: object) -> object:
        data = plain(value)
        self._check(data)
        return data

    def _check(self, value: object) -> None:
        try:
            if self._fits(value):
                return
            errors: list[Any] = list(islice(self._validator.iter_errors(_as_json(_tamed(value))), MAX_READ))
        except (ValueError, RecursionError, PydanticSerializationError) as error:
            raise SchemaMismatch([Problem((), "too deeply nested, or not data")]) from error
        if errors:
            raise SchemaMismatch(_problems(errors, value))

    def _fits(self, value: object) -> bool:
        """Whether the value is valid as it is; False may also mean that the validator cannot read it."""
        try:
            return self._validator.is_valid(_as_json(value))
        except UnicodeEncodeError:
            return False


# The validator recurses without a bound of its own; this conversion refuses cycles and depth, in native code.
_as_json = partial(to_jsonable_python, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")

_HUGE = 2.0**52 - 0.5
"""Stands in for infinity: the largest number that is not an integer."""


def _tamed(value: object) -> object:
    """A copy with what the validator cannot read replaced: NaN and infinities, and surrogates without a partner."""
    match value:
        case float():
            return 0.5 if value != value else max(-_HUGE, min(value, _HUGE))
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            items = cast("dict[object, object]", value).items()
            return {_tamed(key): _tamed(each) for key, each in items}
        case list() | tuple() | set() | frozenset():
            return [_tamed(each) for each in cast("Iterable[object]", value)]
        case _:
            return value


def _build_validator(document: JsonSchema, owner: str) -> Any:
    import jsonschema_rs  # only tools declared by a JSON Schema need it

    missing: set[str] = set()

    def anything(uri: str) -> JsonSchema:
        missing.add(uri)
        return {}

    def build(schema: JsonSchema) -> Any:
        return jsonschema_rs.validator_for(schema, retriever=anything, validate_formats=False)

    def build_what_resolves() -> Any:
        known = {key: value for key, value in document.items() if key != "$schema"}
        base = "json-schema:///"
        resolver = jsonschema_rs.Registry([(base, known)], retriever=anything).resolver(base)
        for reference in set(_references(known)):
            try:
                resolver.lookup(reference)
            except jsonschema_rs.ReferencingError:
                missing.add(reference)
        return build(_without_references(known, missing))

    try:
        try:
            validator = build(document)
        except jsonschema_rs.ValidationError as error:
            if error.kind.name != "$ref":
                raise
            validator = build_what_resolves()
    except jsonschema_rs.ValidationError as error:
        where = "/".join(map(str, error.instance_path)) or "its root"
        raise ToolDefinitionError(f"{owner} is not a JSON Schema at {where}: {error.message[:300]}") from error
    if missing:
        _logger.warning("%s: what %s would allow is not known; accepting anything", owner, ", ".join(sorted(missing)))
    return validator


_REFERENCES = frozenset({"$ref", "$dynamicRef"})


def _references(schema: object) -> Iterator[str]:
    match schema:
        case dict():
            for key, value in cast("dict[str, object]", schema).items():
                if key in _REFERENCES and isinstance(value, str):
                    yield value
                else:
                    yield from _references(value)
        case list():
            for each in cast("list[object]", schema):
                yield from _references(each)
        case _:
            pass


def _without_references(schema: Any, missing: AbstractSet[str]) -> Any:
    match schema:
        case dict():
            return {
                key: _without_references(value, missing)
                for key, value in cast("dict[str, Any]", schema).items()
                if not (key in _REFERENCES and isinstance(value, str) and value in missing)
            }
        case list():
            return [_without_references(each, missing) for each in cast("list[Any]", schema)]
        case _:
            return schema


# --- what is wrong with a value -----------------------------------------------------------------------------

# keyword → text, filled in with the keyword's value
_KEYWORD_TEXTS = {
    "exclusiveMaximum": "expected less than {}",
    "exclusiveMinimum": "expected more than {}",
    "maxItems": "expected at most {} items",
    "maxLength": "expected at most {} characters",
    "maxProperties": "expected at most {} fields",
    "maximum": "expected at most {}",
    "minItems": "expected at least {} items",
    "minLength": "expected at least {} characters",
    "minProperties": "expected at least {} fields",
    "minimum": "expected at least {}",
    "multipleOf": "expected a multiple of {}",
    "oneOf": "fits several of the alternatives",
    "pattern": "expected a match of {}",
    "uniqueItems": "expected no item twice",
}


def _problems(errors: Iterable[Any], value: object) -> list[Problem]:
    """The problems of `value` from the `jsonschema_rs.ValidationError`s found in it or in its stand-in."""
    return [problem for error in errors for problem in _of_keyword(error, value)]


def _of_keyword(error: Any, value: object) -> Iterator[Problem]:
    path: Path = tuple(error.instance_path)
    keyword: str = error.kind.name
    wanted: Any = error.kind.value
    here = value
    for step in path:
        here = child(here, step)
    match keyword:
        case "required":
            yield Problem((*path, wanted), "field required")
        case "additionalProperties" | "unevaluatedProperties":
            for name in wanted:
                yield Problem((*path, name), UNEXPECTED)
        case "type":
            yield Problem(path, f"expected {' or '.join(wanted)}", value=here)
        case "enum":
            yield Problem(path, f"expected one of {', '.join(map(_json, wanted[:MAX_PROBLEMS]))}", value=here)
        case "const":
            yield Problem(path, f"expected {_json(wanted)}", value=here)
        case "anyOf" | "oneOf" if all(wanted):
            yield from _of_alternatives(wanted, path, value)
        case _:
            text = _KEYWORD_TEXTS[keyword].format(wanted) if keyword in _KEYWORD_TEXTS else f"violates {keyword}"
            yield Problem(path, cut(text, _MAX_TEXT_CHARACTERS), value=here)


def _of_alternatives(alternatives: list[list[Any]], path: Path, value: object) -> Iterator[Problem]:
    """What the alternative with the fewest problems wants; if all want another type, all those types."""
    right_type = [errors for errors in alternatives if errors and not _wrong_type(errors, path)]
    if right_type:
        yield from _problems(min(right_type, key=len), value)
    else:
        wrong = [error for errors in alternatives for error in _wrong_type(errors, path)]
        yield functools.reduce(either, _problems(wrong, value))


def _wrong_type(errors: list[Any], path: Path) -> list[Any]:
    return [error for error in errors if error.kind.name == "type" and tuple(error.instance_path) == path]


def _json(value: object) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str))

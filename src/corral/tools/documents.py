"""JSON Schema documents as schemas of tools."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from corral.errors import ToolDefinitionError
from corral.logs import get_logger
from corral.tools.branching import branching_of, depth_of
from corral.tools.dialects import modernised
from corral.tools.plain import plain
from corral.tools.problems import MAX_PROBLEMS, UNEXPECTED, Path, Problem, SchemaMismatch, child, cut, either, is_large
from corral.types import JsonSchema

__all__ = ["DocumentSchema"]

_MAX_TEXT_CHARACTERS = 200
_MAX_READ = 100
_MOST_VISITS = 1_000_000
"""By a foreign schema; each takes some 30 ns."""
_MOST_VISITS_TOLD = 3_000
"""By one that says what is wrong; each takes some 80 µs."""
_MAX_DESCENTS = 2

_logger = get_logger(__name__)


class DocumentSchema:
    """A JSON Schema document: draft 2020-12, with older forms understood, unless its `$schema` says otherwise.

    Nothing is ever fetched.

    A schema that is `foreign` comes from somebody who is not trusted: where validating by it may take for ever, as it
    branches and the value is deep, values are taken as they are.

    Parts behind a `$ref` that leads nowhere accept anything. Bytes count as base64 text, NaN and infinities as
    numbers, dates and the like as the text they are sent as. Values deeper than about 250 levels are refused.

    Raises:
        ToolDefinitionError: the document is not a valid schema.
    """

    def __init__(self, document: JsonSchema, *, owner: str, foreign: bool = False) -> None:
        try:
            self.json_schema: JsonSchema = _as_json(document)
        except (ValueError, PydanticSerializationError) as error:
            raise ToolDefinitionError(f"{owner} is not JSON, or too deeply nested: {error}") from error
        self._read_as = self.json_schema if "$schema" in self.json_schema else modernised(self.json_schema)
        self._validator, missing = _build_validator(self._read_as, owner)
        self._quick: _Quick | None = None
        self._branching = branching_of(self._read_as) if foreign else None
        if missing:
            unknown = ", ".join(sorted(missing))
            _logger.warning("%s: what %s would allow is not known; accepting anything", owner, unknown)

    def load(self, raw: object) -> object:
        self._check(raw)
        return raw

    def dump(self, value: object) -> object:
        data = plain(value)
        self._check(data)
        return data

    def _check(self, value: object) -> None:
        visits = 0 if self._branching is None else self._branching.visits(depth_of(value))
        if visits > _MOST_VISITS:
            return
        try:
            if self._fits(value):
                return
            if visits > _MOST_VISITS_TOLD:
                raise SchemaMismatch([Problem((), "is not valid; its schema branches too much to say where")])
            data = _as_json(_tamed(value))
            large = is_large(data)
            if large and self._validator.is_valid(data):
                return
            if large:
                problems = self._first_problems(data, value)
            else:
                problems = list(_problems(self._validator.iter_errors(data), value))
        except (ValueError, RecursionError, PydanticSerializationError) as error:
            raise SchemaMismatch([Problem((), "too deeply nested, or not data")]) from error
        if problems:
            raise SchemaMismatch(problems, complete=not large)

    def _fits(self, value: object) -> bool:
        """Whether the value is valid as it is; False may also mean that the validator cannot read it."""
        try:
            return self._validator.is_valid(_as_json(value))
        except UnicodeEncodeError:
            return False

    def _first_problems(self, data: object, value: object) -> list[Problem]:
        """Some of what is wrong with a large value, without listing the rest."""
        if self._quick is None:
            self._quick = _Quick(self._read_as)
        problems = list(islice(self._quick.problems(data, value), _MAX_READ))
        return problems or [Problem((), "is not valid, and too large to say where")]


# The validator recurses without a bound of its own; this conversion refuses cycles and depth, in native code.
_as_json = partial(to_jsonable_python, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")

_HUGE = 2.0**52 - 0.5
"""Stands in for infinity: the largest number that is not an integer."""


def _tamed(value: object) -> object:
    """A copy with what the validator cannot read replaced: NaN and infinities, and surrogates without a partner."""
    match value:
        case None | int():
            return value
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


def _build_validator(document: JsonSchema, owner: str) -> tuple[Any, set[str]]:
    """The validator, and the references that lead nowhere."""
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
    return validator, missing


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


def _within(value: object, path: Path) -> object:
    for step in path:
        value = child(value, step)
    return value


def _of_keyword(error: Any, value: object) -> Iterator[Problem]:
    path: Path = tuple(error.instance_path)
    keyword: str = error.kind.name
    wanted: Any = error.kind.value
    here = _within(value, path)
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


# --- what is wrong with a large value -----------------------------------------------------------------------

_STORE = "x-corral-alternatives"
_DOCUMENT = "json-schema:///document"


class _Quick:
    """Finds the first problem of a value without looking for the others.

    The validator can stop at the first error, but an error of `anyOf` or `oneOf` lists all that is wrong with each
    alternative. So here these become conditions, of which only the truth is asked, until one is found that is false.
    """

    def __init__(self, document: JsonSchema) -> None:
        self._alternatives: dict[str, dict[str, Any]] = {}
        store: dict[str, Any] = {}
        quick = _with_conditions(document, self._alternatives, store)
        self._exact = document | {_STORE: self._alternatives}
        self._quick = quick | {_STORE: store}

    def problems(self, data: object, value: object, at: str = "", descents: int = 0) -> Iterator[Problem]:
        """Of `value`, which is `data` as JSON, by what the JSON pointer `at` leads to. None if it cannot be said."""
        error = _first_error(self._quick, at, data)
        if error is None:
            return
        label = _label(error)
        if label is None:
            yield from _of_keyword(error, value)
            return
        path: Path = tuple(error.instance_path)
        for problem in self._of_alternatives(label, _within(data, path), _within(value, path), descents):
            yield problem._replace(path=(*path, *problem.path))

    def _of_alternatives(self, label: str, data: object, value: object, descents: int) -> Iterable[Problem]:
        at = f"/{_STORE}/{label}"
        if not is_large(data):
            return _problems(_part(self._exact, at).iter_errors(data), value)
        ((keyword, alternatives),) = self._alternatives[label].items()
        places = [f"{at}/{keyword}/{number}" for number in range(len(alternatives))]
        errors = {place: _first_error(self._quick, place, data) for place in places}
        if None in errors.values():
            return [Problem((), _KEYWORD_TEXTS["oneOf"] if keyword == "oneOf" else _NONE_FITS, value=value)]
        right_type = {place: error for place, error in errors.items() if not _wrong_type([error], ())}
        if not right_type:
            return [functools.reduce(either, _problems(errors.values(), value))]
        if descents == _MAX_DESCENTS:
            return [Problem((), _NONE_FITS, value=value)]
        best = min(right_type, key=lambda place: _is_of_another_kind(right_type[place]))
        return self.problems(data, value, best, descents + 1)


_NONE_FITS = "fits none of the alternatives"


def _with_conditions(schema: Any, alternatives: dict[str, dict[str, Any]], store: dict[str, Any]) -> Any:
    """A copy with each `anyOf` and `oneOf` as a condition that refers to `store`; `alternatives` has them as they were.

    A false condition shows as an error of `const`, whose value has its label.
    """
    match schema:
        case dict():
            copy: dict[str, Any] = {}
            conditions: list[JsonSchema] = []
            for key, part in cast("dict[str, Any]", schema).items():
                changed = _with_conditions(part, alternatives, store)
                if key in ("anyOf", "oneOf") and isinstance(part, list):
                    label = str(len(store))
                    alternatives[label], store[label] = {key: part}, {key: changed}
                    conditions.append({"if": {"$ref": f"#/{_STORE}/{label}"}, "else": {"const": {_STORE: label}}})
                else:
                    copy[key] = changed
            return copy | {"allOf": [*copy.get("allOf", ()), *conditions]} if conditions else copy
        case list():
            return [_with_conditions(part, alternatives, store) for part in cast("list[Any]", schema)]
        case _:
            return schema


def _part(document: JsonSchema, at: str) -> Any:
    """A validator for a part of a document; one that accepts everything if references in it lead nowhere."""
    import jsonschema_rs

    reference = {"$ref": f"{_DOCUMENT}#{at}"}
    if "$schema" in document:
        reference["$schema"] = document["$schema"]
    try:
        registry = jsonschema_rs.Registry([(_DOCUMENT, document)], retriever=lambda _: {})
        return jsonschema_rs.validator_for(reference, registry=registry, validate_formats=False)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return jsonschema_rs.validator_for({})


def _first_error(document: JsonSchema, at: str, data: object) -> Any:
    import jsonschema_rs

    try:
        _part(document, at).validate(data)
    except jsonschema_rs.ValidationError as error:
        return error
    return None


def _label(error: Any) -> str | None:
    """Of the condition that is false, if that is the error."""
    wanted: Any = error.kind.value if error.kind.name == "const" else None
    return cast("dict[str, str]", wanted).get(_STORE) if isinstance(wanted, dict) else None


def _is_of_another_kind(error: Any) -> bool:
    """Whether a tag says that another alternative is meant."""
    return error.kind.name in ("const", "enum") and _label(error) is None

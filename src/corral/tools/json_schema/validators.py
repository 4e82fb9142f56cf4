"""Validators of JSON Schema documents, and their descriptions of problems.

Functions for workers are at the end: a schema's alternatives, enums or patterns can make validation take forever.
"""

from __future__ import annotations

import functools
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from corral.errors import ToolDefinitionError
from corral.tools.json_schema.keywords import mapping, objects_within, rewritten
from corral.tools.json_schema.problems import (
    ABSENT,
    MAX_PROBLEMS,
    UNEXPECTED,
    Path,
    Problem,
    SchemaMismatch,
    child,
    cut,
    either,
    is_large,
)
from corral.types import JsonSchema

WORKER_IMPORTS = ("jsonschema_rs",)
"""Imported on demand: it takes 0.1 s, and only tools declared by a JSON Schema need it."""

_MAX_TEXT_CHARACTERS = 200
_MAX_READ = 100
_MAX_DESCENTS = 2
_PATTERN_BYTES = 100_000
"""Maximum size of a light compiled pattern. Compiling it takes at most 0.5 ms, and matching 3 µs per character."""
_MOST_PATTERNS = 64


class Validator:
    """Validates by a document: draft 2020-12, unless its `$schema` says otherwise. Nothing is ever fetched.

    Raises:
        ToolDefinitionError: the document is not a valid schema or, with `light`, has too many patterns or one that is
            slow to compile or match.
    """

    def __init__(self, document: JsonSchema, owner: str, *, light: bool = False) -> None:
        self._document = document
        if light and count_patterns(document) > _MOST_PATTERNS:
            raise ToolDefinitionError(f"{owner} has more than {_MOST_PATTERNS} patterns")
        self._native, self.missing = _build_validator(document, owner, light=light)
        self._quick: _Quick | None = None

    def accepts(self, value: object) -> bool:
        """True if the value is valid. False can also mean that the validator cannot read the value."""
        try:
            return self._native.is_valid(as_json(value))
        except (ValueError, RecursionError, PydanticSerializationError):
            return False

    def require(self, value: object) -> None:
        """Raises SchemaMismatch with the problems of a value. Returns if the validator merely could not read it."""
        try:
            data = as_json(_replace_unreadable(value))
            large = is_large(data)
            if large and self._native.is_valid(data):
                return
            if large:
                problems = self._first_problems(data, value)
            else:
                problems = list(_problems(self._native.iter_errors(data), value))
        except (ValueError, RecursionError, PydanticSerializationError) as error:
            raise SchemaMismatch([_NOT_DATA]) from error
        if problems:
            raise SchemaMismatch(problems, complete=not large)

    def _first_problems(self, data: object, value: object) -> list[Problem]:
        """Returns some problems of a large value, without looking for all of them."""
        if self._quick is None:
            self._quick = _Quick(self._document)
        problems = list(islice(self._quick.problems(data, value), _MAX_READ))
        return problems or [Problem((), "is not valid, and too large to locate the problem")]


_NOT_DATA = Problem((), "too deeply nested, or not data")

# The validator's recursion is unbounded. This conversion, in native code, refuses cycles and depth.
as_json = partial(to_jsonable_python, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")

_HUGE = 2.0**52 - 0.5
"""Replacement for infinity: the largest number that is not an integer."""


def _replace_unreadable(value: object) -> object:
    """Returns a copy without values that the validator cannot read: NaN, infinities and lone surrogates."""
    match value:
        case None | int():
            return value
        case float():
            return 0.5 if value != value else max(-_HUGE, min(value, _HUGE))
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            items = cast("dict[object, object]", value).items()
            return {_replace_unreadable(key): _replace_unreadable(each) for key, each in items}
        case list() | tuple() | set() | frozenset():
            return [_replace_unreadable(each) for each in cast("Iterable[object]", value)]
        case _:
            return value


def json_text(value: object) -> bytes:
    """Returns the value as compact JSON.

    Raises:
        SchemaMismatch: the value is nested too deeply, or is not data.
    """
    try:
        return to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")
    except (ValueError, RecursionError, PydanticSerializationError):
        pass  # such as for lone surrogates
    try:
        return json.dumps(value, default=as_json, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaMismatch([_NOT_DATA]) from error


def _build_validator(document: JsonSchema, owner: str, *, light: bool) -> tuple[Any, set[str]]:
    """Returns the validator, and the dangling references."""
    import jsonschema_rs

    missing: set[str] = set()
    patterns = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES) if light else None

    def anything(uri: str) -> JsonSchema:
        missing.add(uri)
        return {}

    def build(schema: JsonSchema) -> Any:
        return jsonschema_rs.validator_for(schema, retriever=anything, validate_formats=False, pattern_options=patterns)

    def build_what_resolves() -> Any:
        known = {key: value for key, value in document.items() if key != "$schema"}
        base = "json-schema:///"
        resolver = jsonschema_rs.Registry([(base, known)], retriever=anything).resolver(base)
        for reference in _references(known):
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


def count_patterns(schema: object) -> int:
    """Returns an upper bound of the number of regular expressions in a schema."""
    return sum(
        ("pattern" in members) + len(mapping(members.get("patternProperties"))) for members in objects_within(schema)
    )


def without_patterns(schema: Any, is_wrong: Callable[[str], bool] = bool) -> Any:
    """Returns a copy without the patterns that are invalid; by default, without all but the empty one."""

    def change(members: dict[str, Any]) -> dict[str, Any]:
        if isinstance(members.get("pattern"), str) and is_wrong(members["pattern"]):
            del members["pattern"]
        if isinstance(members.get("patternProperties"), dict):
            named = cast("dict[str, Any]", members["patternProperties"]).items()
            members["patternProperties"] = {name: each for name, each in named if not is_wrong(name)}
        return members

    return rewritten(schema, change)


def _references(schema: object) -> set[str]:
    return {
        reference
        for members in objects_within(schema)
        for keyword in ("$ref", "$dynamicRef")
        if isinstance(reference := members.get(keyword), str)
    }


def _without_references(schema: JsonSchema, missing: AbstractSet[str]) -> Any:
    def change(members: dict[str, Any]) -> dict[str, Any]:
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(reference := members.get(keyword), str) and reference in missing:
                del members[keyword]
        return members

    return rewritten(schema, change)


# --- problems of a value --------------------------------------------------------------------------------------

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
    """Converts the `jsonschema_rs.ValidationError`s for `value` or its replacement."""
    return [problem for error in errors for problem in _of_keyword(error, value)]


def _within(value: object, path: Path) -> object:
    for step in path:
        value = child(value, step)
    return value


def _of_keyword(error: Any, value: object) -> Iterator[Problem]:
    path: Path = tuple(error.instance_path)
    keyword: str = error.kind.name
    expected: Any = error.kind.value
    here = _within(value, path)
    match keyword:
        case "required":
            yield Problem((*path, expected), "field required")
        case "additionalProperties" | "unevaluatedProperties":
            for name in expected:
                yield Problem((*path, name), UNEXPECTED)
        case "type":
            yield Problem(path, f"expected {' or '.join(expected)}", value=here)
        case "enum":
            yield Problem(path, f"expected one of {', '.join(map(_json, expected[:MAX_PROBLEMS]))}", value=here)
        case "const":
            yield Problem(path, f"expected {_json(expected)}", value=here)
        case "anyOf" | "oneOf" if all(expected):
            yield from _of_alternatives(expected, path, value)
        case _:
            text = _KEYWORD_TEXTS[keyword].format(expected) if keyword in _KEYWORD_TEXTS else f"violates {keyword}"
            yield Problem(path, cut(text, _MAX_TEXT_CHARACTERS), value=here)


def _of_alternatives(alternatives: list[list[Any]], path: Path, value: object) -> Iterator[Problem]:
    """Describes the alternative with the fewest problems or, if all expect another type, all those types."""
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


# --- problems of a large value --------------------------------------------------------------------------------

_STORE = "x-corral-alternatives"
_DOCUMENT = "json-schema:///document"


class _Quick:
    """Finds the first problem in a value without looking for others.

    The validator can stop at the first error, but an error in `anyOf` or `oneOf` lists all errors of each alternative.
    So these keywords become conditions, which are just true or false, and only a false one is examined further.
    """

    def __init__(self, document: JsonSchema) -> None:
        self._alternatives: dict[str, dict[str, Any]] = {}
        store: dict[str, Any] = {}
        quick = _with_conditions(document, self._alternatives, store)
        self._exact = document | {_STORE: self._alternatives}
        self._quick = quick | {_STORE: store}

    def problems(self, data: object, value: object, at: str = "", descents: int = 0) -> Iterator[Problem]:
        """Yields problems of `value` (`data` as JSON) according to the schema at the JSON pointer `at`. May yield
        none."""
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
    """Returns a copy in which each `anyOf` and `oneOf` is a condition that refers to `store`. `alternatives` receives
    the originals.

    A false condition appears as an error of `const`, whose value is its label.
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
    """Returns a validator for a part of a document. It accepts everything if the part has dangling references."""
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
    """Returns the label of the false condition, if the error is that of one."""
    value: Any = error.kind.value if error.kind.name == "const" else None
    return cast("dict[str, str]", value).get(_STORE) if isinstance(value, dict) else None


def _is_of_another_kind(error: Any) -> bool:
    """True if a tag selects another alternative."""
    return error.kind.name in ("const", "enum") and _label(error) is None


# --- in workers ---------------------------------------------------------------------------------------------

_KEPT_BYTES = 4_000_000
"""Maximum total size of the documents whose validators a worker keeps. These take about 50 times as much memory."""

ProblemReport: TypeAlias = tuple[list[tuple[Path, str, str | None, bool]], bool]
"""Path, text and detail of each problem, with True if the value is shown; then True if these are all problems."""


class _Kept(NamedTuple):
    validator: Validator
    size: int


_kept: OrderedDict[bytes, _Kept] = OrderedDict()


def examine(digest: bytes, document: bytes | None, text: bytes, tell: bool) -> bool | ProblemReport | None:
    """Returns True if the value in a JSON text is valid, else a report (False without `tell`). Returns None if the
    document with this digest has to be sent.

    Unreadable patterns are ignored.

    Raises:
        ToolDefinitionError: the document is not a valid schema.
    """
    if digest not in _kept:
        if document is None:
            return None
        _kept[digest] = _Kept(_readable(from_json(document)), len(document))
        while len(_kept) > 1 and sum(each.size for each in _kept.values()) > _KEPT_BYTES:
            _kept.popitem(last=False)
    _kept.move_to_end(digest)
    validator = _kept[digest].validator
    value = _value_of(text)
    if validator.accepts(value):
        return True
    if not tell:
        return False
    try:
        validator.require(value)
    except SchemaMismatch as mismatch:
        return _report_of(mismatch)
    return True


def _report_of(mismatch: SchemaMismatch) -> ProblemReport:
    problems = [(each.path, each.text, each.detail, each.value is not ABSENT) for each in mismatch.problems[:_MAX_READ]]
    return problems, mismatch.complete and len(problems) == len(mismatch.problems)


def mismatch_of(report: ProblemReport, value: object) -> SchemaMismatch:
    """Converts a worker's report about the value."""
    problems, complete = report
    return SchemaMismatch(
        (
            Problem(path, text, detail, _within(value, path) if shown else ABSENT)
            for path, text, detail, shown in problems
        ),
        complete=complete,
    )


def _readable(document: JsonSchema) -> Validator:
    try:
        return Validator(document, "its schema")
    except ToolDefinitionError:
        return Validator(without_patterns(document, _is_no_pattern), "its schema")


def _is_no_pattern(pattern: str) -> bool:
    try:
        _ = Validator({"pattern": pattern}, "a pattern")
    except ToolDefinitionError:
        return True
    return False


def _value_of(text: bytes) -> object:
    try:
        return from_json(text)
    except ValueError:  # lone surrogates
        return json.loads(text)

"""Tool schemas made from JSON Schema documents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterator
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_json

from corral.concurrency.cached_property import cached_property
from corral.errors import ToolDefinitionError
from corral.jail.workers import WorkerError, run_in_worker
from corral.logs import get_logger
from corral.tools.json_schema.keywords import objects_within, pointer_tokens, value_at
from corral.tools.json_schema.older_drafts import upgraded
from corral.tools.json_schema.plain_data import to_plain_data
from corral.tools.json_schema.problems import Problem, SchemaMismatch
from corral.tools.json_schema.validators import (
    ProblemReport,
    Validator,
    as_json,
    count_patterns,
    examine,
    json_text,
    mismatch_of,
    without_patterns,
)
from corral.types import JsonSchema

UNBOUNDED = 10**12
"""Upper limit of all costs, which is 10,000 s."""

_MOST_SCHEMAS = 2_000
_MOST_STEPS = 20_000
"""Cost of one error: about 2 µs."""
_MOST_DEPTH = 64
_MOST_CONTAINERS = 1_000
_MOST_CHARACTERS = 100_000
"""Maximum size of a value whose depth is measured. Larger values are assumed to have the maximum depth."""
_DEAR = 1_000_000
"""Costs above this need not be exact."""

_READ = 30
"""Cost of each part of a value, whatever the schema."""
_VISIT = 2
_KEYWORD = 1
_FLOAT = 75
_MULTIPLE = 500
_FLOAT_OF_ENUM = 400
_DATA_NODE = 50
"""Cost of comparing with a part of `const`, or of a member of `enum`, that is an array or an object."""
_DEPENDENCY = 4
_UNIQUE = 50
_PATTERN = 300
"""Cost of each character, for the worst pattern that is allowed here."""
_CONTAINED = 3
_UNEVALUATED = 5
"""Number of further visits of alternatives for `unevaluated…` keywords."""

_IN_PLACE = ("allOf", "anyOf", "oneOf")
_ONE_IN_PLACE = ("else", "if", "not", "then")
_ELSEWHERE = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"})
"""Keywords that can make a reference lead elsewhere than its pointer, including `id` in old drafts."""


class ValidationCost:
    """Upper bounds for one schema; `UNBOUNDED` for a large schema, or one that refers to other documents."""

    def __init__(self, document: JsonSchema) -> None:
        self._steps = 0
        self._places: list[_Place] = []
        """Keywords to process before others that apply to the same part of a value."""
        self._each: list[int] = []
        """Maximum cost for one part of a value, by the depth of the value. The last entry is for all greater depths."""
        self._is_complete = True
        self._reads_text = False
        try:
            reader = _Reader(document)
            self._root = reader.read()
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            self._each = [UNBOUNDED]
        else:
            self._places = reader.places
            self._reads_text = reader.reads_text
            self._each = [self._root.cost]
            self._is_complete = False

    def of(self, text: bytes) -> int:
        """Returns the maximum cost of validating a value that is passed as compact JSON."""
        containers = text.count(b"[") + text.count(b"{")
        parts = text.count(b",") + containers + 1
        size = parts + len(text) if self._reads_text else parts
        each = self._at(min(containers, _MOST_DEPTH))
        if each * size > _DEAR and containers <= _MOST_CONTAINERS and len(text) <= _MOST_CHARACTERS:
            each = self._at(_depth_of(text))
        if each * size <= _DEAR and _has_huge_number(text):
            return UNBOUNDED
        return min(_READ * parts + each * size, UNBOUNDED)

    def _at(self, depth: int) -> int:
        while not self._is_complete and len(self._each) <= min(depth, _MOST_DEPTH):
            self._deepen()
        return self._each[min(depth, len(self._each) - 1)]

    def _deepen(self) -> None:
        """Adds one more level."""
        self._steps += sum(place.steps for place in self._places)
        if self._steps > _MOST_STEPS:
            self._each.append(UNBOUNDED)
            self._is_complete = True
            return
        before = [place.cost for place in self._places]
        for place in self._places:
            place.look_into_members()
        for place in self._places:
            place.cost = max(place.cost, place.objects, place.arrays)
        self._is_complete = before == [place.cost for place in self._places]
        self._each.append(self._root.cost)


class _Place:
    """Schema together with everything that applies to the same part of a value."""

    def __init__(self) -> None:
        self.cost = _VISIT
        """Cost for its part of a value, or for a part below it, at the depth reached so far."""
        self.per_key = self.per_item = 0
        """Additional cost for each member of an object or an array."""
        self.again = 1
        self.objects = self.arrays = 0
        self.in_place: list[_Place] = []
        self.named: list[_Place] = []
        self.others: list[_Place] = []
        self.positions: list[_Place] = []
        self.items: list[_Place] = []

    @property
    def steps(self) -> int:
        return 1 + sum(map(len, (self.in_place, self.named, self.others, self.positions, self.items)))

    def add_in_place(self) -> None:
        """Adds the costs of everything that applies to the same part, once these are known."""
        self.cost += self.again * sum(each.cost for each in self.in_place)

    def look_into_members(self) -> None:
        """Adds a cost without the members, because keywords for the same part have counted them already."""
        named = max((each.cost for each in self.named), default=0)
        others = sum(each.cost for each in self.others)
        self.objects = self.per_key + named + others + self.again * sum(each.objects for each in self.in_place)
        position = max((each.cost for each in self.positions), default=0)
        items = sum(each.cost for each in self.items)
        self.arrays = self.per_item + position + items + self.again * sum(each.arrays for each in self.in_place)
        self.objects, self.arrays = min(self.objects, UNBOUNDED), min(self.arrays, UNBOUNDED)


class _Reader:
    def __init__(self, document: JsonSchema) -> None:
        self.places: list[_Place] = []
        self.reads_text = False
        self._document = document
        self._known: dict[int, _Place] = {}
        self._waiting: list[tuple[_Place, dict[str, Any]]] = []
        self._open: set[int] = set()

    def read(self) -> _Place:
        """Reads the schema. If it has no upper bound, raises ValueError or the errors of operations on wrong types."""
        if _moves_references(self._document):
            raise ValueError("references may lead elsewhere")
        place = self._place(self._document)
        while self._waiting:
            self._members(*self._waiting.pop())
        return place

    def _place(self, schema: Any) -> _Place:
        """Reads a schema and everything else that applies to the same part of the value. Queues its members."""
        identity = id(cast("object", schema))
        if identity in self._known:
            return self._known[identity]
        if identity in self._open or len(self._known) + len(self._open) >= _MOST_SCHEMAS:
            raise ValueError("it applies to itself, or is large")
        self._open.add(identity)
        place = _Place()
        if isinstance(schema, dict):
            known = cast("dict[str, Any]", schema)
            self._weigh(place, known)
            place.in_place = [self._place(each) for each in self._applied(known)]
            place.add_in_place()
            self._waiting.append((place, known))
        self._open.discard(identity)
        self._known[identity] = place
        self.places.append(place)
        return place

    def _applied(self, schema: dict[str, Any]) -> Iterator[Any]:
        yield from (schema[key] for key in _ONE_IN_PLACE if key in schema)
        for key in _IN_PLACE:
            yield from schema.get(key, ())
        for key in ("dependentSchemas", "dependencies"):
            yield from (each for each in schema.get(key, {}).values() if not isinstance(each, list))
        if "$ref" in schema:
            yield self._target(schema["$ref"])

    def _weigh(self, place: _Place, schema: dict[str, Any]) -> None:
        """Adds the cost of the schema without its subschemas."""
        for key, value in schema.items():
            match key:
                case "const" | "enum":
                    place.cost += _comparison_cost([value] if key == "const" else value)
                case "multipleOf":
                    place.cost += _MULTIPLE
                case "pattern":
                    place.cost += _PATTERN
                    self.reads_text = True
                case "patternProperties":
                    place.per_key += _PATTERN * len(value)
                    self.reads_text = self.reads_text or bool(value)
                case "dependentRequired" | "dependentSchemas" | "dependencies":
                    place.cost += _DEPENDENCY * _size(value)
                case "uniqueItems":
                    place.per_item += _UNIQUE
                case "unevaluatedItems" | "unevaluatedProperties":
                    place.again = _UNEVALUATED
                case _:
                    place.cost += _bound(value)

    def _members(self, place: _Place, schema: dict[str, Any]) -> None:
        def one(key: str) -> list[_Place]:
            return [self._place(schema[key])] if key in schema else []

        def several(key: str) -> list[_Place]:
            return [self._place(each) for each in schema.get(key, {}).values()]

        place.named = several("properties")
        place.others = several("patternProperties")
        for key in ("additionalProperties", "unevaluatedProperties", "propertyNames"):
            place.others += one(key)
        items = schema.get("items", True)
        positions: list[Any] = [*schema.get("prefixItems", ()), *(items if isinstance(items, list) else ())]
        place.positions = [self._place(each) for each in positions]
        place.items = one("additionalItems") + one("unevaluatedItems") + _CONTAINED * one("contains")
        place.items += [] if isinstance(items, list) else [self._place(items)]

    def _target(self, reference: Any) -> Any:
        if (reference != "#" and not reference.startswith("#/")) or "%" in reference:
            raise ValueError("it may lead anywhere")
        return value_at(self._document, pointer_tokens(reference))


def _comparison_cost(members: list[Any]) -> int:
    """Returns the cost of finding a value among the members. The validator is fast if they all have one plain type."""
    kinds: set[type[object]] = {type(each) for each in members if each is not None}
    if kinds <= {bool} or (len(kinds) == 1 and kinds <= {str, int} and len(members) > 1):
        return _KEYWORD
    total = 0
    for each in members:
        if isinstance(each, dict | list):
            total += _DATA_NODE * _size(cast("object", each))
        else:
            total += _FLOAT_OF_ENUM if isinstance(each, float) else 10 * _KEYWORD
    return total


def _size(value: object) -> int:
    """Returns the number of parts."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, cast("dict[str, object]", value).values()))
    return 1 + sum(map(_size, cast("list[object]", value))) if isinstance(value, list) else 1


def _bound(value: object) -> int:
    """Returns the cost of a keyword, which grows with the size of a number in it."""
    if isinstance(value, int):
        return _KEYWORD + value.bit_length() // 64 * _FLOAT
    return _FLOAT if isinstance(value, float) else _KEYWORD


def _moves_references(document: JsonSchema) -> bool:
    """True if a reference may lead elsewhere than its pointer."""
    keywords = _ELSEWHERE | {"id"} if "$schema" in document else _ELSEWHERE
    return any(
        isinstance(members[key], str | bool)
        for members in objects_within(document)
        for key in keywords & members.keys()
    )


_DIGITS = bytes(48 if 48 <= each < 58 else 32 for each in range(256))
_HUGE_NUMBER = re.compile(rb"(?:^|[\[,:])-?\d{25}")


def _has_huge_number(text: bytes) -> bool:
    """True if there is a number with so many digits that calculating with it is slow."""
    return b"0" * 25 in text.translate(_DIGITS) and _HUGE_NUMBER.search(text) is not None


_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})


def _depth_of(text: bytes) -> int:
    """Returns the number of levels of nested lists and objects."""
    depth = deepest = 0
    for bracket in _TEXTS.sub(b"", text).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


_HERE = 1_000_000
"""Maximum cost of validating on the event loop, in units of about 10 ns."""
_TOLD_HERE = 5_000
"""Maximum cost of describing problems on the event loop, up to 80 µs each."""
_TOLD_AT_MOST = 200_000
"""Maximum cost of describing problems where some milliseconds are acceptable."""
_MAX_FOREIGN_BYTES = 100_000
"""Maximum size of foreign schemas that are read outside workers."""
_SECONDS = 0.5
_SECONDS_FOR_BYTE = 1e-6
"""Additional seconds if the worker has to build the validator first."""

_logger = get_logger(__name__)


class NotValidated(SchemaMismatch):
    """Validation took too much time or memory, so it is unknown whether the value is valid."""


class PendingValidation:
    """Value whose validation continues in a worker."""

    def __init__(self, schema: DocumentSchema, value: object, text: bytes, *, is_input: bool, is_wrong: bool) -> None:
        self._schema = schema
        self._value = value
        self._text = text
        self._is_input = is_input
        self._is_wrong = is_wrong
        """True if the value is known to be invalid, and only the problems are unknown."""

    def problems_here(self) -> list[Problem] | None:
        """Returns the problems of the value if no worker is needed for that; else None."""
        return self._schema.problems_here(self._value, self._text) if self._is_wrong else None

    async def get(self, owner: Hashable = None) -> object:
        """Waits for the worker and returns the value. Raises SchemaMismatch."""
        schema = self._schema
        try:
            if self._is_wrong or not await schema.accepts(self._text, owner):
                await schema.require(self._value, self._text, owner)
        except NotValidated as problem:
            if not self._is_input or not schema.foreign:
                raise
            schema.warn(problem)  # the tool validates the value itself
        return self._value


class DocumentSchema:
    """JSON Schema document: draft 2020-12, including older forms, unless its `$schema` says otherwise.

    Nothing is ever fetched. If the schema and the length of a value suggest that validation takes more than some
    milliseconds, it runs in a worker, and `load` and `dump` return a `PendingValidation`.

    A `foreign` schema is untrusted: patterns that can be slow are compiled only in workers, and unreadable ones are
    ignored. An input whose validation takes too long is accepted without it.

    The target of a dangling `$ref` accepts anything. Bytes count as base64 text, NaN and infinities as numbers, and
    dates and the like as the text that represents them. Values deeper than about 250 levels are refused.

    Raises:
        ToolDefinitionError: the document is not a valid schema.
    """

    runs_code = False

    def __init__(self, document: JsonSchema, *, owner: str, foreign: bool = False) -> None:
        self.foreign = foreign
        self._owner = owner
        self._has_warned = False
        try:
            is_large = foreign and len(to_json(document)) > _MAX_FOREIGN_BYTES
            self.json_schema: JsonSchema = document if is_large else as_json(document)
        except (ValueError, PydanticSerializationError) as error:
            raise ToolDefinitionError(f"{owner} is not JSON, or too deeply nested: {error}") from error
        self._read_as = upgraded(self.json_schema, has_draft="$schema" in self.json_schema)
        self._validator = None if is_large else self._build()
        """Validator; None if only workers have one."""

    def _build(self) -> Validator | None:
        """Makes the validator for the event loop, if all patterns are light. In any case, validates the schema
        itself."""
        document, has_patterns = self._read_as, count_patterns(self._read_as) > 0
        if has_patterns and self.foreign:
            document = without_patterns(document)
        validator = Validator(document, self._owner)
        if validator.missing:
            unknown = ", ".join(sorted(validator.missing))
            _logger.warning("%s: cannot resolve %s; accepting anything there", self._owner, unknown)
        if not has_patterns:
            return validator
        try:
            return Validator(self._read_as, self._owner, light=True)
        except ToolDefinitionError:
            return None

    @cached_property
    def _costs(self) -> ValidationCost:
        return ValidationCost(self._read_as)

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(to_json(self._read_as)).digest()

    def load(self, raw: object) -> object:
        return self._validate(raw, is_input=True)

    def dump(self, value: object) -> object:
        return self._validate(to_plain_data(value), is_input=False)

    def _validate(self, value: object, *, is_input: bool) -> object:
        text = json_text(value)
        validator, is_wrong = self._validator, False
        if validator is not None and (cost := self._costs.of(text)) <= _HERE:
            if validator.accepts(value):
                return value
            if cost <= _TOLD_HERE:
                validator.require(value)
                return value
            is_wrong = True
        return PendingValidation(self, value, text, is_input=is_input, is_wrong=is_wrong)

    def problems_here(self, value: object, text: bytes) -> list[Problem] | None:
        """Returns the problems of an invalid value and its JSON; None if finding them takes more than some
        milliseconds."""
        if self._validator is None or self._costs.of(text) > _TOLD_AT_MOST:
            return None
        try:
            self._validator.require(value)
        except SchemaMismatch as mismatch:
            return mismatch.problems
        return None

    # --- in a worker

    async def accepts(self, text: bytes, owner: Hashable) -> bool:
        """True if the value with this JSON is valid.

        Raises:
            NotValidated: validation takes too long, or too much memory.
        """
        try:
            return await self._ask(text, owner, tell=False) is True
        except (WorkerError, ToolDefinitionError) as error:
            raise NotValidated([Problem((), f"cannot be validated: {error}")]) from error

    async def require(self, value: object, text: bytes, owner: Hashable) -> None:
        """Raises SchemaMismatch with the problems of a value that the validator rejects."""
        try:
            report = await self._ask(text, owner, tell=True)
        except (WorkerError, ToolDefinitionError) as error:
            raise SchemaMismatch([Problem((), "is not valid, and locating the problem takes too long")]) from error
        if not isinstance(report, bool):
            raise mismatch_of(report, value)

    async def _ask(self, text: bytes, owner: Hashable, *, tell: bool) -> bool | ProblemReport:
        report = await run_in_worker(examine, self._digest, None, text, tell, seconds=_SECONDS, owner=owner)
        if report is None:
            document = to_json(self._read_as)
            seconds = _SECONDS + _SECONDS_FOR_BYTE * len(document)
            report = await run_in_worker(examine, self._digest, document, text, tell, seconds=seconds, owner=owner)
        assert report is not None
        return report

    def warn(self, problem: NotValidated) -> None:
        """Logs, once, that an input was not validated."""
        if not self._has_warned:
            self._has_warned = True
            _logger.warning("%s: an input was accepted without validation: it %s", self._owner, problem)

"""JSON Schema documents as schemas of tools."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

from pydantic_core import PydanticSerializationError, to_json

from corral.concurrency.cached_property import cached_property
from corral.errors import ToolDefinitionError
from corral.jail.workers import WorkerError, run_in_worker
from corral.logs import get_logger
from corral.tools.json_schema.complexity import ValidationCost
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

_HERE = 1_000_000
"""Maximum cost of validating on the event loop, in units of some 10 ns."""
_TOLD_HERE = 5_000
"""Maximum cost of describing problems on the event loop, which takes up to 80 µs for each."""
_TOLD_AT_MOST = 200_000
"""The same where it may take some milliseconds."""
_MAX_FOREIGN_BYTES = 100_000
"""Foreign schemas above this size are read by workers only."""
_SECONDS = 0.5
_SECONDS_FOR_BYTE = 1e-6
"""In addition, where the worker has to build the validator first."""

_logger = get_logger(__name__)


class NotValidated(SchemaMismatch):
    """Validation took too much time or memory, so it is not known if the value fits."""


class PendingValidation:
    """Value whose validation continues in a worker."""

    __slots__ = ("_is_input", "_is_wrong", "_schema", "_text", "_value")

    def __init__(self, schema: DocumentSchema, value: object, text: bytes, *, is_input: bool, is_wrong: bool) -> None:
        self._schema = schema
        self._value = value
        self._text = text
        self._is_input = is_input
        self._is_wrong = is_wrong
        """True if the value is known to be invalid, and only the problems are unknown."""

    def problems_here(self) -> list[Problem] | None:
        """The problems of the value, if telling takes no worker; None otherwise."""
        return self._schema.problems_here(self._value, self._text) if self._is_wrong else None

    async def get(self, tenant: Hashable = None) -> object:
        """The value. Raises SchemaMismatch."""
        schema = self._schema
        try:
            if self._is_wrong or not await schema.accepts(self._text, tenant):
                await schema.require(self._value, self._text, tenant)
        except NotValidated as problem:
            if not self._is_input or not schema.foreign:
                raise
            schema.warn(problem)  # its owner looks at it anyway
        return self._value


class DocumentSchema:
    """A JSON Schema document: draft 2020-12, with older forms understood, unless its `$schema` says otherwise.

    Nothing is ever fetched. What may take more than some milliseconds, as the schema and the length of a value tell, is
    validated in a worker: `load` and `dump` give a `PendingValidation` then.

    A schema that is `foreign` comes from somebody who is not trusted: only workers compile patterns of it that may take
    long, and patterns that cannot be read say nothing. An input is taken as it is if validating it takes too much.

    Parts behind a `$ref` that leads nowhere accept anything. Bytes count as base64 text, NaN and infinities as
    numbers, dates and the like as the text they are sent as. Values deeper than about 250 levels are refused.

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
        """None: only workers have one."""

    def _build(self) -> Validator | None:
        """Makes the validator for the event loop, if all patterns are light. Validates the schema in any case."""
        document, has_patterns = self._read_as, count_patterns(self._read_as) > 0
        if has_patterns and self.foreign:
            document = without_patterns(document)
        validator = Validator(document, self._owner)
        if validator.missing:
            unknown = ", ".join(sorted(validator.missing))
            _logger.warning("%s: what %s would allow is not known; accepting anything", self._owner, unknown)
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
        return self._checked(raw, is_input=True)

    def dump(self, value: object) -> object:
        return self._checked(to_plain_data(value), is_input=False)

    def _checked(self, value: object, *, is_input: bool) -> object:
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
        """The problems of an invalid value, whose JSON is given; None: telling takes more than some milliseconds."""
        if self._validator is None or self._costs.of(text) > _TOLD_AT_MOST:
            return None
        try:
            self._validator.require(value)
        except SchemaMismatch as mismatch:
            return mismatch.problems
        return None

    # --- in a worker

    async def accepts(self, text: bytes, tenant: Hashable) -> bool:
        """True if the value is valid whose JSON this is.

        Raises:
            NotValidated: that takes too long, or too much memory.
        """
        try:
            return await self._ask(text, tenant, tell=False) is True
        except (WorkerError, ToolDefinitionError) as error:
            raise NotValidated([Problem((), f"cannot be validated: {error}")]) from error

    async def require(self, value: object, text: bytes, tenant: Hashable) -> None:
        """Raises SchemaMismatch with the problems of a value that the validator does not accept."""
        try:
            told = await self._ask(text, tenant, tell=True)
        except (WorkerError, ToolDefinitionError) as error:
            raise SchemaMismatch([Problem((), "is not valid, and saying where takes too much")]) from error
        if not isinstance(told, bool):
            raise mismatch_of(told, value)

    async def _ask(self, text: bytes, tenant: Hashable, *, tell: bool) -> bool | ProblemReport:
        found = await run_in_worker(examine, self._digest, None, text, tell, seconds=_SECONDS, tenant=tenant)
        if found is None:
            document = to_json(self._read_as)
            seconds = _SECONDS + _SECONDS_FOR_BYTE * len(document)
            found = await run_in_worker(examine, self._digest, document, text, tell, seconds=seconds, tenant=tenant)
        assert found is not None
        return found

    def warn(self, problem: NotValidated) -> None:
        """Logs once that inputs are not validated."""
        if not self._has_warned:
            self._has_warned = True
            _logger.warning("%s: an input was taken without being validated: it %s", self._owner, problem)

"""Input and output schemas: from types, by means of pydantic, or from JSON Schema documents.

An input schema converts a program's input to a function's arguments; an output schema converts a function's result to
plain data (see `corral.tools.json_schema.plain_data`). Both are built once, when the tool is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaWarningKind
from typing_extensions import override

from corral.concurrency.garbage import gc_disabled
from corral.errors import ToolDefinitionError
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.tools.json_schema.keywords import mapping, part_of
from corral.tools.json_schema.plain_data import read_iterator, to_plain_container, to_plain_data, to_program_data
from corral.tools.json_schema.problems import ABSENT, LEAVES, Problem, SchemaMismatch
from corral.tools.json_schema.type_problems import TypeValidator
from corral.types import JsonSchema

_ANNOTATIONS = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description", "examples", "title"}
)
"""Keywords that allow every value."""


class InputSchema(Protocol):
    """Input of a tool."""

    @property
    def json_schema(self) -> JsonSchema | None:
        """JSON Schema; None if it accepts anything."""
        ...

    @property
    def runs_code(self) -> bool:
        """True if `load` calls functions of the tool's author."""
        ...

    def load(self, raw: object) -> Any:
        """Returns the validated input, or a `PendingValidation` if that takes long. Raises SchemaMismatch."""
        ...


class OutputSchema(Protocol):
    """Output of a tool."""

    @property
    def json_schema(self) -> JsonSchema | None:
        """JSON Schema; None if it returns anything."""
        ...

    def dump(self, value: object) -> object:
        """Returns the value as plain data, or a `PendingValidation` if that takes long.

        Raises SchemaMismatch; a hostile value can raise anything.
        """
        ...


# --- no schema ----------------------------------------------------------------------------------------------


class Anything:
    """Accepts and returns every value; models and dataclasses become dicts."""

    json_schema: None = None
    runs_code = False

    def load(self, raw: object) -> object:
        return raw

    def dump(self, value: object) -> object:
        return to_plain_data(value)


ANYTHING = Anything()


def says_nothing(schema: JsonSchema | None) -> bool:
    """True if the schema accepts every value."""
    return schema is None or _ANNOTATIONS.issuperset(schema)


def has_member(schema: JsonSchema | None, steps: Iterable[str | None], name: str) -> bool:
    """True if a part of a value, located by keys and items, is an object whose schema names a member."""
    part = None if schema is None else part_of(schema, steps)
    return part is not None and part.get("type", "object") == "object" and name in mapping(part.get("properties"))


# --- types --------------------------------------------------------------------------------------------------


class _WithoutTitles(GenerateJsonSchema):
    """Omits titles of fields, which repeat their names, and defaults that JSON cannot express.

    Members with a default are required in outputs, because results always include them.
    """

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    @override
    def decimal_schema(self, schema: Any) -> JsonSchema:
        written = super().decimal_schema(schema)
        return {"type": "string", "format": "decimal"} if written.get("type") == "string" else written

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    @override
    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"]) if self.mode == "serialization" else super().default_schema(schema)

    @override
    def field_is_required(self, field: Any, total: bool) -> bool:
        if self.mode == "serialization" and field["type"] in ("model-field", "dataclass-field"):
            return not (field.get("serialization_exclude") or field.get("serialization_exclude_if"))
        return super().field_is_required(field, total)


def json_schema_of(adapter: TypeAdapter[Any], mode: JsonSchemaMode) -> JsonSchema:
    """Returns the JSON Schema of a type. Raises pydantic's errors."""
    return adapter.json_schema(by_alias=True, mode=mode, schema_generator=_WithoutTitles)


class _TypeInput:
    """Input of any type that pydantic validates."""

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        self.json_schema = json_schema_of(adapter, "validation")
        self._validate = TypeValidator(adapter)

    @property
    def runs_code(self) -> bool:
        return self._validate.runs_code

    def load(self, raw: object) -> object:
        return self._validate(raw)


class ArgumentsInput:
    """Arguments of a function: an object with a field for each parameter.

    `model` is a pydantic model whose fields represent parameters under safe names. `parameters` maps fields to
    parameters. `load` returns a dict from parameter to value. `reserved` are parameters that a program must not set
    through `**keywords`.
    """

    def __init__(self, model: type[BaseModel], parameters: Mapping[str, str], reserved: Iterable[str]) -> None:
        adapter = TypeAdapter(model)
        self.json_schema = json_schema_of(adapter, "validation")
        self.json_schema.pop("title", None)
        self._validate = TypeValidator(adapter)
        self._parameters = tuple(parameters.items())
        self._reserved = frozenset(reserved)

    @property
    def runs_code(self) -> bool:
        return self._validate.runs_code

    def load(self, raw: object) -> dict[str, object]:
        model = self._validate(raw)
        values = model.__dict__
        arguments: dict[str, object] = {parameter: values[field] for field, parameter in self._parameters}
        if extra := model.__pydantic_extra__:
            if clashing := self._reserved & extra.keys():
                raise SchemaMismatch(Problem((name,), "unexpected field") for name in sorted(clashing))
            arguments.update(extra)
        return arguments


class TypeOutput:
    """Output of any type that pydantic validates. Valid results are converted to plain data.

    A value of another type is accepted if its plain data, which is all that programs receive, is valid: for example, a
    model where a dict is declared, or a date where a string is declared.
    """

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        self.json_schema = json_schema_of(adapter, "serialization")
        self._validate = TypeValidator(adapter)
        self._dump = adapter.serializer.to_python

    def dump(self, value: object) -> object:
        try:
            valid = self._validate(value, by_alias=True, by_name=True)
        except SchemaMismatch:
            valid = self._of_data(value)
            if valid is ABSENT:
                raise
        if type(valid) in LEAVES:
            return self._dump(valid, by_alias=True, warnings="error")
        with gc_disabled():
            return read_iterator(self._dump(valid, by_alias=True, warnings="error", fallback=to_plain_container))

    def _of_data(self, value: object) -> object:
        """Validates the plain data of an invalid value. Returns ABSENT if the data is invalid too."""
        with suppress(Exception):
            data = to_plain_data(value)
            before = value
            for form in (data, to_program_data(data)):
                if form != before:
                    with suppress(SchemaMismatch):
                        return self._validate(form, by_alias=True, by_name=True)
                before = form
        return ABSENT


# --- schemas from authors' declarations ------------------------------------------------------------------------


def input_schema_of(source: object, *, owner: str) -> InputSchema:
    """Makes an input schema from a JSON Schema document, a pydantic model or another type; None accepts anything."""
    return _schema_of(source, owner, _TypeInput)


def output_schema_of(source: object, *, owner: str) -> OutputSchema:
    """Makes an output schema from a JSON Schema document, a pydantic model or another type; None accepts anything."""
    return _schema_of(source, owner, TypeOutput)


S = TypeVar("S", _TypeInput, TypeOutput)


def _schema_of(source: Any, owner: str, of_type: Callable[[TypeAdapter[Any]], S]) -> Anything | DocumentSchema | S:
    if source is None:
        return ANYTHING
    if isinstance(source, dict):
        return DocumentSchema(cast("JsonSchema", source), owner=owner)
    try:
        return of_type(TypeAdapter[Any](source))
    except PydanticUserError as error:
        raise ToolDefinitionError(f"{owner} is a type without a JSON Schema: {error.message}") from error

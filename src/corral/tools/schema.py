"""Input and output schemas: from types, by means of pydantic, or from JSON Schema documents.

An input schema converts a program's input to a function's arguments; an output schema converts a function's result to
plain data (see `corral.tools.json_schema.plain_data`). Both are built once, when the tool is defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaWarningKind
from pydantic_core import CoreSchema, SchemaValidator
from typing_extensions import override

from corral.concurrency.cached_property import cached_property
from corral.concurrency.garbage import gc_disabled
from corral.errors import ToolDefinitionError
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.tools.json_schema.keywords import mapping, part_of
from corral.tools.json_schema.plain_data import read_iterator, to_plain_container, to_plain_data, to_program_data
from corral.tools.json_schema.problems import (
    ABSENT,
    LEAVES,
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

_LIBRARIES = sys.stdlib_module_names | {"pydantic", "pydantic_core", "annotated_types"}
_HOOKS = ("custom_init", "post_init")


class TypeValidator:
    """Validates as a pydantic type. Calling it returns the valid value, or raises SchemaMismatch.

    In a large value, each container is read up to its first invalid entry, and each object up to a hundred unexpected
    fields. The time for the following is not bounded here:

    - the author's validators, and the cost of valid values: unions try each variant on each item;
    - sets, and numbers as keys, whose hashes collide: 12,000 multiples of 2**61 - 1 take a second, and four times as
      many 16 times as long;
    - a hundred unexpected fields at each level of a recursive model that forbids them: 0.3 s at a depth of 200.
    """

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        self._adapter = adapter

    def __call__(self, value: object, *, by_alias: bool | None = None, by_name: bool | None = None) -> Any:
        if is_large(value):
            with gc_disabled():
                return self._validate(self._fail_fast, value, by_alias, by_name, most=_MAX_READ)
        return self._validate(self._adapter.validator, value, by_alias, by_name, most=None)

    def _validate(
        self, validator: Any, value: object, by_alias: bool | None, by_name: bool | None, *, most: int | None
    ) -> Any:
        try:
            return validator.validate_python(value, by_alias=by_alias, by_name=by_name)
        except ValidationError as error:
            raise SchemaMismatch(_problems(error, value, most), complete=most is None) from error

    @cached_property
    def runs_code(self) -> bool:
        """True if validation calls functions of the type's author."""
        return _runs_code(self._adapter.core_schema)

    @cached_property
    def _fail_fast(self) -> SchemaValidator:
        schema = cast("CoreSchema", _failing_fast(self._adapter.core_schema))
        try:
            # otherwise the prebuilt validators of model classes would replace their changed schemas
            return SchemaValidator(schema, _use_prebuilt=False)
        except TypeError:  # an older pydantic without this option
            return SchemaValidator(schema)


_CLASSES = frozenset({"model", "dataclass"})
_OBJECTS = frozenset({"model-fields", "typed-dict", "dataclass-args"})
_CONTAINERS = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_NO_SCHEMAS = frozenset({"cls", "config", "default", "expected", "metadata", "serialization"})
_OPAQUE = _NO_SCHEMAS - {"default"} | {"ref", "schema_ref"}


def _failing_fast(schema: object, *, forbids: bool = False) -> object:
    """Copies a core schema so that containers stop at the first invalid entry, and objects see few unexpected fields.

    With `forbids`, the schema has the fields of a class that forbids others.
    """
    match schema:
        case dict():
            parts = cast("dict[Any, object]", schema)
            kind = parts.get("type")
            if not isinstance(kind, str):  # names of fields
                return {key: _failing_fast(part) for key, part in parts.items()}
            config = parts.get("config")
            forbids = forbids or parts.get("extra_behavior", _extra_of(config)) == "forbid"
            inner = forbids and (kind in _CLASSES or kind.startswith("function-"))
            copy: dict[str, Any] = {
                key: part if key in _NO_SCHEMAS else _failing_fast(part, forbids=inner and key == "schema")
                for key, part in parts.items()
            }
            if kind in _CONTAINERS:
                copy["fail_fast"] = True
            return _seeing_few(copy) if forbids and kind in _OBJECTS else copy
        case list():
            return [_failing_fast(part) for part in cast("list[object]", schema)]
        case tuple():
            return tuple(_failing_fast(part) for part in cast("tuple[object, ...]", schema))
        case _:
            return schema


def _extra_of(config: object) -> object:
    return cast("dict[str, object]", config).get("extra_fields_behavior") if isinstance(config, dict) else None


def _seeing_few(schema: dict[str, Any]) -> dict[str, Any]:
    """Limits how many unexpected fields a schema of fields sees, because each one costs an error."""
    fields = cast("dict[str, Any] | list[dict[str, Any]]", schema["fields"])
    named = fields.items() if isinstance(fields, dict) else [(str(each["name"]), each) for each in fields]
    known = frozenset(name for key, field in named for name in (key, *_first_steps(field.get("validation_alias"))))

    def before(value: Any) -> Any:
        if type(value) is not dict:
            return value
        members = cast("dict[object, object]", value)
        if len(members) <= len(known) + _MAX_READ:
            return members
        others = islice((each for each in members if each not in known), _MAX_READ)
        return {each: members[each] for each in (*(each for each in known if each in members), *others)}

    wrapped: dict[str, Any] = {"type": "function-before", "function": {"type": "no-info", "function": before}}
    reference = {"ref": schema.pop("ref")} if "ref" in schema else {}
    return wrapped | reference | {"schema": schema}


def _first_steps(alias: str | list[Any] | None) -> Iterable[str]:
    """Returns the field names with which an alias can begin: it is a name, a path, or several paths."""
    if isinstance(alias, str):
        return [alias]
    paths = cast("list[list[Any]]", alias if alias and isinstance(alias[0], list) else [alias or []])
    return [str(path[0]) for path in paths if path]


def _runs_code(schema: object) -> bool:
    """True if a core schema calls functions that do not belong to a library."""
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        match part:
            case dict():
                known = cast("dict[Any, object]", part)
                is_schema = isinstance(known.get("type"), str)
                if is_schema and any(known.get(each) for each in _HOOKS):
                    return True
                waiting += [each for key, each in known.items() if not is_schema or key not in _OPAQUE]
            case list() | tuple():
                waiting += cast("list[object] | tuple[object, ...]", part)
            case _:
                is_own = callable(part) and not isinstance(part, type)
                if is_own and (getattr(part, "__module__", None) or "").partition(".")[0] not in _LIBRARIES:
                    return True
    return False


_ENDINGS = "type parsing parsing_size from_float from_datetime_parsing from_datetime_inexact from_date_parsing"


def _families(**nouns: str) -> dict[str, str]:
    """Makes texts by error type: `noun="one two"` gives all pydantic error types of these families "expected noun"."""
    return {
        f"{family}_{ending}": f"expected {noun.replace('_', ' ')}"
        for noun, families in nouns.items()
        for family in families.split()
        for ending in _ENDINGS.split()
    }


# https://docs.pydantic.dev/latest/errors/validation_errors/: error type → text, filled in from the error's context
_PYDANTIC_TEXTS = {
    **_families(
        integer="int",
        number="float",
        string="string string_sub",
        boolean="bool",
        bytes="bytes",
        array="list tuple named_tuple set frozen_set iterable",
        object="dict mapping model model_attributes dataclass",
        date="date",
        date_and_time="datetime",
        time="time",
        duration="time_delta",
        decimal_number="decimal",
        UUID="uuid",
        URL="url",
    ),
    **dict.fromkeys(("missing", "missing_argument", "missing_keyword_only_argument"), "field required"),
    "extra_forbidden": UNEXPECTED,
    "unexpected_keyword_argument": UNEXPECTED,
    "unexpected_positional_argument": "unexpected item",
    "multiple_argument_values": "given twice",
    "none_required": "expected null",
    "finite_number": "expected a finite number",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "multiple_of": "expected a multiple of {multiple_of}",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "string_pattern_mismatch": "expected a match of {pattern}",
    "too_short": "expected at least {min_length} items",
    "too_long": "expected at most {max_length} items",
    "union_tag_invalid": "expected {discriminator} to be one of {expected_tags}",
    "union_tag_not_found": "expected {discriminator} to say which variant it is",
    "recursion_loop": "contains itself, or is nested too deeply",
    "recursion_depth_exceeded": "is nested too deeply",
}


_MAX_READ = 100
"""Maximum number of problems read from a large value: a program can send 65,000 unexpected fields, but twenty are
shown."""

# for these, the path ends in a field and the value does not matter
_ABOUT_THE_FIELD = frozenset(
    {"missing", "missing_argument", "missing_keyword_only_argument", "extra_forbidden", "unexpected_keyword_argument"}
)


def _problems(error: ValidationError, value: object, most: int | None) -> list[Problem]:
    """Reads pydantic's errors for `value`. A union becomes one problem, that of the variant that fits best."""
    problems: dict[Path, Problem] = {}
    for line in error.errors(include_url=False)[:most]:
        kind = line["type"]
        known = _PYDANTIC_TEXTS.get(kind)
        path = _data_path(line["loc"], value, keep_last=kind in _ABOUT_THE_FIELD)
        problem = Problem(
            path,
            text=known.format_map(line.get("ctx", {})) if known else "is not valid",
            detail=None if known else _detail(line["msg"]),
            value=ABSENT if kind in _ABOUT_THE_FIELD else line["input"],
        )
        problems[path] = either(problems[path], problem) if path in problems else problem
    inner = {path[:length] for path in problems for length in range(len(path))}
    return [problem for path, problem in problems.items() if path not in inner]


def _detail(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return cut(message.replace("Input should", "should", 1), 500)


def _data_path(location: Path, value: object, *, keep_last: bool) -> Path:
    """Returns `location` without the labels that pydantic adds for variants of unions and for validators."""
    path: list[str | int] = []
    for position, step in enumerate(location):
        inside = child(value, step)
        if inside is not ABSENT or isinstance(step, int) or (keep_last and position == len(location) - 1):
            path.append(step)
            value = inside
    return tuple(path)


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

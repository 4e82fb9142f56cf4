"""What is wrong with a large value is told without finding all of it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import AfterValidator, AliasChoices, AliasPath, BaseModel, Field, TypeAdapter, ValidationError

from corral.errors import InvalidArguments
from corral.tools import Tool, define_tool, tool
from corral.tools.json_schema import document_schema
from corral.tools.json_schema.problems import SchemaMismatch
from corral.tools.json_schema.validators import Validator
from corral.tools.schema import TypeValidator
from corral.types import JsonSchema


def problems(called: Tool, raw: object) -> str:
    with pytest.raises(InvalidArguments) as raised:
        anyio.run(called.parse_input, raw)
    told = str(raised.value)
    assert len(told) < 3000
    return told.removeprefix(f'tool "{called.label}": ')


def echo(value: Any) -> Any:
    return value


def taking(schema: JsonSchema) -> Tool:
    return define_tool(name="f", input_schema=schema, execute=echo)


class Item(BaseModel, extra="forbid"):
    name: str
    tags: list[int] = []


class Metadata(BaseModel):
    metadata: dict[str, Item] = {}
    default: tuple[Item, ...] = ()


class TestTypes:
    def test_validation_of_a_large_list_stops_at_the_first_wrong_item(self) -> None:
        seen: list[int] = []

        def counted(number: int) -> int:
            seen.append(number)
            if number == 5:
                raise ValueError("five is not allowed")
            return number

        @tool
        def f(xs: list[Annotated[int, AfterValidator(counted)]]) -> None: ...

        told = problems(f, {"xs": [*range(6)] * 40_000})
        assert told == "at least 1 problem: xs[5]: five is not allowed, got number 5"
        assert seen == [0, 1, 2, 3, 4, 5]

    def test_so_it_does_within_models_unions_and_mappings(self) -> None:
        @tool
        def f(a: dict[str, list[Item] | int], b: Metadata) -> None: ...

        good = {"name": "x"}
        assert problems(f, {"a": {"k": [good] * 5000 + [{}] * 50_000}, "b": {}}) == (
            "at least 1 problem: a.k[5000].name: field required"
        )
        assert problems(f, {"a": {"k": [good, {"name": "x", "tags": ["y"] * 50_000}]}, "b": {}}) == (
            'at least 1 problem: a.k[1].tags[0]: expected integer, got string "y"'
        )
        wrong: dict[str, Any] = {"metadata": {f"k{i}": 3 for i in range(30_000)}, "default": [good, *[{}] * 30_000]}
        assert problems(f, {"a": {}, "b": wrong}) == (
            "at least 2 problems: b.metadata.k0: expected object, got number 3; b.default[1].name: field required"
        )

    def test_a_large_valid_value_arrives_as_a_small_one_does(self) -> None:
        @tool
        def f(items: list[Item], numbers: set[int], fallback: Literal["list"] = "list") -> None: ...

        raw = {"items": [{"name": "x", "tags": ["1"]}] * 5000, "numbers": [1, "2"] * 5000}
        assert anyio.run(f.parse_input, raw).value == {
            "items": [Item(name="x", tags=[1])] * 5000,
            "numbers": {1, 2},
            "fallback": "list",
        }

    def test_twenty_of_many_unexpected_fields_are_shown(self) -> None:
        @tool
        def f(recipient: str) -> None: ...

        told = problems(f, {f"recipien{i}": 1 for i in range(60_000)})
        assert told.startswith("at least 100 problems: recipient: field required; recipien0: unexpected field; did ")
        assert told.count("unexpected field") == 19
        assert told.endswith("; and more")

    def test_few_of_many_unexpected_fields_make_errors_and_known_ones_are_all_read(self) -> None:
        class Closed(BaseModel, extra="forbid"):
            number: int = Field(validation_alias=AliasChoices("no", AliasPath("numbers", 0)))
            inner: Closed | None = None

        many = dict.fromkeys(map(str, range(9_000)), 0)
        closed = TypeValidator(TypeAdapter(Closed))
        with pytest.raises(SchemaMismatch) as raised:
            closed({**many, "inner": {**many, "no": 1}, "numbers": [2]})
        cause = raised.value.__cause__
        assert isinstance(cause, ValidationError)
        assert cause.error_count() == 200
        assert closed({"no": 1, "inner": {"numbers": ["2"] + [0] * 9_000}}).inner.number == 2

    def test_texts_are_made_of_the_problems_that_are_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @tool
        def f(recipient: str) -> None: ...

        compared: list[str] = []

        def counted(word: str, *_: Any, **__: Any) -> list[str]:
            compared.append(word)
            return []

        monkeypatch.setattr("difflib.get_close_matches", counted)
        assert problems(f, {f"x{i}": 1 for i in range(1000)}).startswith("1001 problems: ")
        assert len(compared) == 19

    def test_a_result_is_held_to_the_same_bounds(self) -> None:
        seen: list[object] = []

        def counted(value: object) -> object:
            seen.append(value)
            raise ValueError

        def f() -> Any: ...

        f.__annotations__ = {"return": list[Annotated[int, AfterValidator(counted)]]}
        with pytest.raises(Exception, match="at least 1 problem"):
            anyio.run(tool(validate_output="strict")(f).dump_output, [1] * 100_000)
        assert len(seen) == 1


ITEM: JsonSchema = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "additionalProperties": False,
}
DOCUMENT: JsonSchema = {
    "$defs": {"item": ITEM, "anything": {"anyOf": [{"$ref": "#/$defs/item"}, {"type": "integer", "minimum": 3}]}},
    "type": "object",
    "properties": {
        "mixed": {"type": "array", "items": {"$ref": "#/$defs/anything"}},
        "items": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/item"}}]},
        "text": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "both": {"oneOf": [{"type": "array"}, {"maxItems": 1_000_000}]},
        "tagged": {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": kind}, "xs": {"items": {"type": wanted}}}}
                for kind, wanted in [("numbers", "integer"), ("texts", "string")]
            ]
        },
    },
}

# what is wrong in each is so large that finding all of it takes more than ten seconds
LARGE: list[tuple[Any, str]] = [
    ({"mixed": [{}] * 300_000}, "at least 1 problem: mixed[0].name: field required"),
    ({"mixed": [7] * 5000 + [{"nam": 1}]}, "at least 2 problems: "),
    ({"mixed": [7] * 5000 + ["x"]}, 'at least 1 problem: mixed[5000]: expected object or integer, got string "x"'),
    ({"items": [{"name": "x"}] * 9 + [{"name": 1}] * 60_000}, "at least 1 problem: items[9].name: expected string, go"),
    ({"text": [1] * 300_000}, "at least 1 problem: text: expected string or integer, got array"),
    ({"both": [1] * 300_000}, "at least 1 problem: both: fits several of the alternatives, got array"),
    (
        {"tagged": {"kind": "texts", "xs": [1] * 300_000}},
        "at least 1 problem: tagged.xs[0]: expected string, got number 1",
    ),
    ({"mixed": [{"name": "x", "kids": [{}] * 300_000}]}, "at least 1 problem: mixed[0].kids[0].name: field required"),
]


class TestDocuments:
    @pytest.mark.parametrize(
        ("raw", "told"),
        [
            pytest.param(
                *case,
                marks=[pytest.mark.matrix("other alternatives of the same schema are in the gate")]
                if number in (1, 2, 5, 7)
                else [],
            )
            for number, case in enumerate(LARGE)
        ],
    )
    def test_the_first_problem_of_a_large_value_is_found_in_its_alternatives(
        self, raw: object, told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(document_schema, "_SECONDS", 5.0)  # a slow machine takes nearly half a second for some
        assert problems(taking(DOCUMENT), raw).startswith(told)

    def test_the_problems_of_a_large_value_are_never_all_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        validator = Validator(DOCUMENT, "x")
        monkeypatch.setattr(validator, "_native", _WithoutLists(validator))
        with pytest.raises(SchemaMismatch, match=re.escape(LARGE[0][1])):
            validator.require(LARGE[0][0])

    def test_one_of_many_unexpected_fields_is_shown_or_twenty_where_the_validator_names_all(self) -> None:
        raw = {f"x{i}": 1 for i in range(60_000)}
        closed = taking({"properties": {"name": {}}, "additionalProperties": False})
        assert problems(closed, raw) == "at least 1 problem: x0: unexpected field"
        told = problems(taking({"properties": {"name": {}}, "unevaluatedProperties": False}), raw)
        assert told.startswith("at least 100 problems: ")
        assert told.count("unexpected field") == 20
        assert told.endswith("; and more")

    def test_a_large_value_that_fits_passes_whatever_the_validator_cannot_read_in_it(self) -> None:
        called = taking({"items": {"anyOf": [{"type": "number"}, {"type": "string"}]}})
        anyio.run(called.parse_input, [float("nan"), "\ud800", 1] * 5000)
        assert problems(called, [float("nan")] * 5000 + [None]) == (
            "at least 1 problem: [5000]: expected number or string, got null"
        )

    @pytest.mark.parametrize(
        "schema",
        [
            {"items": {"anyOf": [{"$ref": "#/nowhere"}, {"type": "string"}], "type": "string"}},
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            },
        ],
    )
    def test_where_the_place_cannot_be_found_it_says_so(self, schema: JsonSchema) -> None:
        assert "is not valid" in problems(taking(schema), [1] * 300_000)


class _WithoutLists:
    """A validator that refuses to list errors."""

    def __init__(self, validator: Any) -> None:
        self.is_valid = validator._native.is_valid

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from PIL import Image
from pydantic import BaseModel

from corral.errors import InvalidArguments, InvalidToolOutput, ToolDefinitionError
from corral.tools import Tool, ToolCall, define_tool, tool
from corral.types import ExecutionContext, JsonSchema

OBJECT: JsonSchema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "count": {"type": "number", "maximum": 10},
        "kind": {"enum": ["a", "b"]},
        "target": {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
            ]
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}


def echo(value: Any) -> Any:
    return value


def echo_with_context(value: Any, context: ExecutionContext) -> Any:
    return value


def taking(schema: Any) -> Tool:
    return define_tool(name="f", input_schema=schema, execute=echo)


def returning(schema: Any) -> Tool:
    return define_tool(name="f", output_schema=schema, execute=echo)


def problems(called: Tool, raw: object) -> str:
    with pytest.raises(InvalidArguments) as raised:
        anyio.run(called.parse_input, raw)
    return str(raised.value)


def run(called: Tool, raw: object) -> object:
    return anyio.run(called.execute, anyio.run(called.parse_input, raw), ToolCall(ExecutionContext(user_id="ada")))


class TestExecute:
    def test_it_receives_the_validated_dict_and_the_context(self) -> None:
        async def execute(value: Any, context: ExecutionContext) -> Any:
            return value, context.user_id

        assert run(define_tool(name="f", input_schema=OBJECT, execute=execute), {"name": "xy"}) == (
            {"name": "xy"},
            "ada",
        )

    def test_it_receives_a_model_where_the_schema_is_one(self) -> None:
        class Point(BaseModel):
            x: int

        point = define_tool(name="f", input_schema=Point, output_schema=Point, execute=echo_with_context)
        assert run(point, {"x": "3"}) == Point(x=3)
        assert anyio.run(point.dump_output, Point(x=3)) == {"x": 3}
        assert problems(point, {}) == 'tool "f": x: field required'

    def test_it_may_take_the_input_alone_and_anything(self) -> None:
        anything = define_tool(name="f", execute=echo)
        assert anything.input_schema is None
        assert run(anything, 3) == 3

    def test_the_decorator_takes_schemas_too(self) -> None:
        @tool(input_schema=OBJECT, output_schema={"type": "string"})
        async def greet(value: dict[str, Any], context: ExecutionContext) -> object:
            """Greets."""
            return f"{value['name']} {context.user_id}"

        assert greet.description == "Greets."
        assert greet.input_schema == OBJECT
        assert greet.output_schema == {"type": "string"}
        assert run(greet, {"name": "hello"}) == "hello ada"


class TestDocuments:
    def test_every_problem_is_named_with_its_path(self) -> None:
        raw = {"nam": "x", "count": "1", "kind": "c", "target": {"id": "x"}}
        heading, _, told = problems(taking(OBJECT), raw).partition("problems: ")
        assert heading == 'tool "f": 5 '
        assert set(told.split("; ")) == {
            "name: field required",
            'count: expected number, got string "1"',
            'kind: expected one of "a", "b", got string "c"',
            'target.id: expected integer, got string "x"',
            "nam: unexpected field",
            "did you mean name?",
        }

    def test_alternatives_of_another_type_are_one_problem(self) -> None:
        assert problems(taking(OBJECT), {"name": "xy", "target": 3}) == (
            'tool "f": target: expected string or object, got number 3'
        )
        several = taking({"oneOf": [{"type": "integer"}, {"minimum": 2}]})
        assert problems(several, 3) == 'tool "f": fits several of the alternatives, got number 3'

    def test_bounds_are_named(self) -> None:
        told = problems(taking(OBJECT), {"name": "x", "count": 11})
        assert "count: expected at most 10, got number 11" in told
        assert 'name: expected at least 2 characters, got string "x"' in told

    def test_results_are_checked_without_showing_them(self) -> None:
        typed = returning({"type": "object", "properties": {"key": {"type": "integer"}}})
        assert anyio.run(typed.dump_output, {"key": 1}) == {"key": 1}
        with pytest.raises(InvalidToolOutput, match=r"^tool \"f\" ran, but .* withheld: key: expected integer$"):
            anyio.run(replace(typed, validate_output="strict").dump_output, {"key": "hunter2"})
        with pytest.raises(InvalidToolOutput, match="type object is not data"):
            anyio.run(typed.dump_output, object())

    def test_what_is_no_data_is_found_in_a_result(self) -> None:
        @dataclass
        class Order:
            lines: list[object]

        for result in ({"order": {"lines": [1, object()]}}, {"order": Order([1, object()])}):
            with pytest.raises(
                InvalidToolOutput, match=r"withheld: order\.lines\[1\]: a value of type object is not data"
            ):
                anyio.run(returning(None).dump_output, result)

    def test_a_picture_is_the_bytes_of_a_png(self) -> None:
        for mode in ("RGB", "CMYK", "L"):
            image: Any = anyio.run(returning(None).dump_output, {"plot": Image.new(mode, (2, 2))})
            assert image["plot"].startswith(b"\x89PNG")

    def test_a_model_may_be_returned_for_a_document(self) -> None:
        class Key(BaseModel):
            key: int

        assert anyio.run(returning({"type": "object", "required": ["key"]}).dump_output, Key(key=1)) == {"key": 1}

    def test_changing_the_document_later_changes_nothing(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        changed = taking(schema)
        schema["properties"] = {}
        assert changed.input_schema == {"type": "object", "properties": {"a": {"type": "integer"}}}

    def test_older_drafts_are_understood(self) -> None:
        old = taking({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]})
        assert "[0]: expected string" in problems(old, [1])

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "objekt"},
            {"properties": {"a": {"minimum": "x"}}},
            {"pattern": "("},
            {"$ref": 3},
            {"enum": {object()}},
        ],
    )
    def test_what_is_no_schema_is_an_error_of_the_definition(self, schema: JsonSchema) -> None:
        with pytest.raises(ToolDefinitionError, match="tool 'f': input_schema is not"):
            taking(schema)

    def test_a_document_in_a_circle_or_too_deep_is_an_error_of_the_definition(self) -> None:
        circle: JsonSchema = {}
        circle["not"] = circle
        deep: JsonSchema = {}
        for _ in range(5000):
            deep = {"not": deep}
        for schema in (circle, deep):
            with pytest.raises(ToolDefinitionError):
                taking(schema)


class TestReferences:
    @pytest.mark.parametrize(
        "reference",
        [
            "#/$defs/Missing",
            "#missing",
            "http://localhost:1/schema.json",
            "http://localhost:1/s#/a",
            "file:///etc/hostname",
        ],
    )
    def test_a_reference_that_leads_nowhere_accepts_anything_and_is_logged(
        self, reference: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        schema: JsonSchema = {
            "properties": {"a": {"$ref": reference}, "b": {"type": "integer"}, "$ref": {"type": "null"}}
        }
        with caplog.at_level(logging.WARNING):
            loose = taking(schema)
        assert [reference in record.getMessage() for record in caplog.records] == [True]
        assert loose.input_schema == schema
        assert anyio.run(loose.parse_input, {"a": object.__name__, "b": 1}).value == {"a": "object", "b": 1}
        assert problems(loose, {"a": 1, "b": "x", "$ref": 1}).count("expected") == 2

    def test_an_unknown_dialect_is_read_as_the_default(self, caplog: pytest.LogCaptureFixture) -> None:
        assert "expected integer" in problems(taking({"$schema": "http://localhost:1/mine", "type": "integer"}), "x")
        assert "http://localhost:1/mine" in caplog.text

    @pytest.mark.parametrize(
        "schema",
        [
            {"$ref": "#"},
            {"anyOf": [{"$ref": "#"}]},
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        ],
    )
    def test_circular_references_end(self, schema: JsonSchema) -> None:
        anyio.run(taking(schema).parse_input, {"a": 1})

    def test_recursive_schemas_and_relative_identifiers_work(self) -> None:
        tree = taking(
            {"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "type": "object"}}, "$ref": "#/$defs/n"}
        )
        assert problems(tree, {"n": {"n": 3}}) == 'tool "f": n.n: expected object, got number 3'
        named = taking(
            {
                "$id": "http://x.y/r.json",
                "$defs": {"a": {"type": "string"}},
                "properties": {"a": {"$ref": "r.json#/$defs/a"}},
            }
        )
        assert "a: expected string" in problems(named, {"a": 1})


class TestValuesThatJsonDoesNotKnow:
    def test_bytes_pass_for_strings(self) -> None:
        upload = taking({"type": "object", "properties": {"file": {"type": "string", "format": "binary"}, "any": {}}})
        raw = {"file": b"\xff\x00", "any": [b"\xff"]}
        assert anyio.run(upload.parse_input, raw).value is raw
        assert "expected number" in problems(taking({"type": "number"}), b"x")

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**70, -0.0, 10**400])
    def test_every_number_is_a_number(self, value: float) -> None:
        assert anyio.run(taking({"type": "number"}).parse_input, value).value is value
        assert anyio.run(taking({}).parse_input, [value]).value == [value]

    def test_nan_and_infinity_are_no_integers_and_keep_to_bounds(self) -> None:
        assert problems(taking({"type": "integer"}), math.nan) == 'tool "f": expected integer, got number NaN'
        assert "expected integer" in problems(taking({"type": "integer"}), math.inf)
        assert "at most 10" in problems(taking({"type": "number", "maximum": 10}), math.inf)

    def test_lone_surrogates_do_no_harm(self) -> None:
        raw = {"a": "\ud800", "\udfff": 1}
        assert anyio.run(taking({"properties": {"a": {"type": "string"}}}).parse_input, raw).value is raw
        assert problems(taking({"type": "number"}), "\ud800").encode()

    def test_dates_and_sets_in_results_are_checked_as_what_is_sent(self) -> None:
        assert anyio.run(returning({"type": "array", "maxItems": 2}).dump_output, {1, 2}) == {1, 2}

    def test_deep_and_circular_values_are_refused(self) -> None:
        tree = {"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"n": deep}
        assert problems(taking(tree), deep) == 'tool "f": too deeply nested, or not data'
        circle: dict[str, Any] = {}
        circle["n"] = circle
        assert problems(taking(tree), circle) == 'tool "f": too deeply nested, or not data'
        with pytest.raises(InvalidToolOutput):
            anyio.run(replace(returning(tree), validate_output="strict").dump_output, circle)

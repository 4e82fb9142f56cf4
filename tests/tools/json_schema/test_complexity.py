"""Neither a schema of somebody who is not trusted nor a value can make validation take for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import jsonschema_rs
import pytest
from pydantic_core import to_json

from corral.errors import InvalidArguments, InvalidToolOutput, ToolDefinitionError
from corral.tools import Tool, define_tool
from corral.tools.json_schema import document_schema, validators
from corral.tools.json_schema.document_schema import UNBOUNDED, DocumentSchema, PendingValidation, ValidationCost
from corral.tools.json_schema.problems import SchemaMismatch
from corral.types import JsonSchema


def chain(levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    definitions: dict[str, Any] = {
        f"l{level}": {"anyOf": [{"$ref": f"#/$defs/l{level + 1}"}, {"$ref": f"#/$defs/l{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/l0", "$defs": {**definitions, f"l{levels}": {"type": "string"}}}


def unevaluated(levels: int) -> dict[str, Any]:
    """Each level looks at the one within it again."""
    schema: dict[str, Any] = {"properties": {"b": True}}
    for _ in range(levels):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    return schema


TREE: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["c"]},
    ]
}


def nested(levels: int, last: object) -> object:
    for _ in range(levels):
        last = {"a": last}
    return last


def echo(value: Any) -> Any:
    return value


def each(schema: object) -> dict[str, Any]:
    return {"type": "array", "items": schema}


LARGE_NUMBER = 10**4000
OBJECTS = [{"a": number} for number in range(9_000)]
HOSTILE: dict[str, tuple[dict[str, Any], object]] = {
    "alternatives": (chain(40), {"a": 5}),
    "a tree": (TREE, nested(100, {})),
    "anchors": ({"allOf": [{"$anchor": "x"}, {"$ref": "#x"}, {"$ref": "#x"}], **TREE}, nested(60, {})),
    "lists": (
        {"items": {"oneOf": [{"$ref": "#"}, {"$ref": "#"}, {"items": {"$ref": "#"}}]}},
        [[[[[[[[[[[[[[[[[[[[[[[[[[5]]]]]]]]]]]]]]]]]]]]]]]]]],
    ),
    "an empty reference": ({"anyOf": [{"properties": {"a": {"$ref": ""}}}] * 2}, nested(100, {})),
    "an enum of objects": (each({"enum": OBJECTS}), [OBJECTS[-1]] * 5_000),
    "an enum of fractions": (each({"enum": [number + 0.5 for number in range(2_000)]}), [1999.5] * 500),
    "unevaluated properties": (each(unevaluated(16)), [{"b": 1}] * 100),
    "dependencies": (each({"dependentRequired": {f"p{number}": ["q"] for number in range(7_000)}}), [{}] * 50_000),
    "patterns of names": (each({"patternProperties": {f"x{n}?y": True for n in range(5_000)}}), [{"k": 1}] * 20_000),
    "a pattern that tries": ({"pattern": "(?=a)(.*a){20}$"}, "a" * 400_000 + "!"),
    "numbers": ({"allOf": [{"minimum": -number} for number in range(1_500)]}, LARGE_NUMBER),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_may_take_long_is_left_to_a_worker(name: str) -> None:
    schema, value = HOSTILE[name]
    try:
        document = DocumentSchema(schema, owner="x", foreign=True)
    except ToolDefinitionError:
        return  # it is refused
    assert type(document.dump(value)) is PendingValidation


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_schema, "_SECONDS", 0.05)  # it takes many
    schema, value = HOSTILE["an enum of objects"]
    foreign = DocumentSchema(schema, owner="x", foreign=True)
    own = DocumentSchema(schema, owner="x")

    async def given_up(pending: object) -> object:
        assert isinstance(pending, PendingValidation)
        return await pending.get()

    assert anyio.run(given_up, foreign.load(value)) is value, "its owner validates it anyway"
    with pytest.raises(SchemaMismatch, match="cannot be validated"):
        anyio.run(given_up, own.load(value))
    tool = define_tool(name="f", output_schema=schema, execute=echo)
    remarks: list[str] = []
    assert anyio.run(tool.dump_output, value, remarks.append) == value
    assert remarks[0].startswith(
        "f may have returned a value that does not match its output schema: cannot be validated"
    )


ORDINARY: list[tuple[dict[str, Any], object, object]] = [
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "x"}, {"a": 1}),
    (
        {"oneOf": [{"properties": {"k": {"const": n}, "v": {"type": "string"}}} for n in range(30)]},
        {"k": 3, "v": "x"},
        {"k": 3, "v": 4},
    ),
    (
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                }
            },
            "$ref": "#/$defs/node",
        },
        {"next": {"next": {"next": {"next": {"next": None}}}}},
        {"next": {"next": {"next": {"next": {"next": 5}}}}},
    ),
    (
        {"type": ["array", "object"], "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}},
        [[[[[[]]]]]],
        [[[[[[5]]]]]],
    ),
    (
        each({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]+-[0-9]+$"}}}),
        [{"id": "a-1"}] * 20,
        [{"id": "a1"}],
    ),
    (
        each({"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(20)}}),
        [{f"p{number}": number for number in range(20)} for _ in range(500)],
        [{"p1": "x"}],
    ),
]


@pytest.mark.parametrize(("schema", "right", "wrong"), ORDINARY)
def test_what_is_ordinary_is_validated_at_once(schema: dict[str, Any], right: object, wrong: object) -> None:
    document = DocumentSchema(schema, owner="x", foreign=True)
    assert document.load(right) is right
    with pytest.raises(SchemaMismatch):
        document.load(wrong)


def seconds_of(work: Callable[[], object]) -> float:
    """The processor time of this thread that work takes."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def test_the_validator_takes_no_longer_than_is_said() -> None:
    """A unit is some 10 ns, as an addition in Python takes. There is room for ten times as much on any machine."""
    measured: list[tuple[dict[str, Any], object]] = [
        (each({"enum": OBJECTS[:100]}), [OBJECTS[99]] * 500),
        (each({"enum": [number + 0.5 for number in range(100)]}), [99.5] * 100),
        (each(unevaluated(6)), [{"b": 1}] * 300),
        (each({"multipleOf": 0.01}), [*range(5_000)]),
        (each({"dependentRequired": {f"p{number}": ["q"] for number in range(100)}}), [{}] * 3_000),
        (TREE, nested(12, {})),
    ]
    addition = seconds_of(lambda: sum(range(1_000_000))) / 1_000_000
    for schema, value in measured:
        validator = jsonschema_rs.validator_for(schema)
        taken = seconds_of(partial(validator.is_valid, value))
        assert taken < 10 * addition * ValidationCost(schema).of(to_json(value)), schema


def test_costs_grow_with_what_multiplies() -> None:
    two, four = (ValidationCost(TREE).of(to_json(nested(levels, {}))) for levels in (2, 4))
    assert 2 * two < four < 40 * two
    assert ValidationCost(TREE).of(to_json(nested(40, {}))) == UNBOUNDED
    assert ValidationCost(TREE).of(b'{"a":{"a":"]]]]"}}') == ValidationCost(TREE).of(b'{"a":{"a":"xxxx"}}')
    deep = ValidationCost(TREE)
    shallow = deep.of(b'{"a":{}}')
    deep.of(to_json(nested(20, {})))
    assert deep.of(b'{"a":{}}') == shallow, "a deep value does not make others dear"


class TestInAWorker:
    """A schema that is too dear here says there what it would say here."""

    SCHEMA = each({"type": "object", "properties": {"k": {"enum": OBJECTS[:300]}, "n": {"type": "integer"}}})

    def tool(self, **more: Any) -> Tool[..., Any]:
        return define_tool(
            name="f",
            input_schema={"type": "object", "properties": {"items": self.SCHEMA}},
            output_schema=self.SCHEMA,
            execute=echo,
            **more,
        )

    def test_an_input_is_validated(self) -> None:
        called, right = self.tool(), {"items": [{"k": {"a": 1}, "n": 1}] * 300}
        assert isinstance(called.input.load(right), PendingValidation)
        assert anyio.run(called.parse_input, right).value is right
        with pytest.raises(InvalidArguments, match=r'"f": items\[5\]\.n: expected integer, got string "x"'):
            anyio.run(called.parse_input, {"items": [*right["items"][:5], {"n": "x"}, *right["items"]]})

    def test_an_output_is_validated(self) -> None:
        value = [{"k": {"a": 1}, "n": 1}] * 300
        assert anyio.run(self.tool(validate_output="strict").dump_output, value) == value
        with pytest.raises(InvalidToolOutput, match=r"\[300\]\.k: expected one of"):
            anyio.run(self.tool(validate_output="strict").dump_output, [*value, {"k": {"b": 1}}])
        remarks: list[str] = []
        assert anyio.run(self.tool().dump_output, [*value, {"n": "x"}], remarks.append)
        assert "returned a value that does not match its output schema" in remarks[0]

    def test_a_pattern_that_cannot_be_read_says_nothing(self) -> None:
        schema = {"properties": {"a": {"pattern": "(?<=x"}, "b": {"pattern": "^(?!x)", "type": "string"}}}
        document = DocumentSchema(schema, owner="x", foreign=True)

        async def loaded(value: object) -> object:
            pending = document.load(value)
            assert isinstance(pending, PendingValidation)
            return await pending.get()

        assert anyio.run(loaded, {"a": "?", "b": "y"})
        with pytest.raises(SchemaMismatch, match="b: expected a match of"):
            anyio.run(loaded, {"a": "?", "b": "xy"})


@pytest.mark.parametrize("count", [3, 300])
def test_no_pattern_of_somebody_elses_is_compiled_that_may_take_long(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, compiled_without_bounds = validators._build_validator, list[int]()  # pyright: ignore[reportPrivateUsage]

    def spy(document: JsonSchema, owner: str, *, light: bool) -> tuple[Any, set[str]]:
        compiled_without_bounds.extend([] if light else [validators.count_patterns(document)])
        return built(document, owner, light=light)

    monkeypatch.setattr(validators, "_build_validator", spy)
    heavy = {"properties": {f"p{number}": {"pattern": f"\\p{{L}}{{200}}{number}"} for number in range(count)}}
    document = DocumentSchema(heavy, owner="x", foreign=True)
    assert compiled_without_bounds == [0]
    assert type(document.load({"p0": "a"})) is PendingValidation, "none is compiled within bounds either"


def test_what_a_host_has_written_is_refused_where_it_is_wrong() -> None:
    with pytest.raises(ToolDefinitionError, match="pattern"):
        DocumentSchema({"pattern": "("}, owner="x")
    with pytest.raises(ToolDefinitionError, match="not a JSON Schema at type"):
        DocumentSchema({"type": "text", "pattern": "("}, owner="x", foreign=True)

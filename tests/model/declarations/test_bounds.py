"""Schemas that are deep, huge or hostile: declared in little time, or in part unknown, but never an exception."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from corral.model.printing.schema_weight import MAX_WEIGHT, reachable_weight
from corral.types import JsonSchema
from tests.model.declarations import checker
from tests.model.declarations.compiler import Shape, declare, type_errors

STRING: JsonSchema = {"type": "string"}
MAX_CHARACTERS = 100_000
LARGE: JsonSchema = {"properties": {f"p{number}": STRING for number in range(MAX_WEIGHT)}}


def properties(**schemas: Any) -> JsonSchema:
    return {"type": "object", "properties": schemas, "required": list(schemas)}


def closed(**schemas: Any) -> JsonSchema:
    return properties(**schemas) | {"additionalProperties": False}


def ref(name: object) -> JsonSchema:
    return {"$ref": f"#/$defs/{name}"}


def nested(levels: int, around: str) -> JsonSchema:
    schema: Any = STRING
    for _ in range(levels):
        match around:
            case "anyOf" | "allOf" | "prefixItems":
                schema = {around: [schema]}
            case "items" | "additionalProperties":
                schema = {around: schema}
            case _:
                schema = properties(n=schema)
    return schema


def laughing(count: int, repeat: Callable[[JsonSchema], JsonSchema], last: JsonSchema) -> JsonSchema:
    """Each definition mentions the next one several times."""
    definitions: dict[str, Any] = {f"A{i}": repeat(ref(f"A{i + 1}")) for i in range(count)}
    return ref("A0") | {"$defs": definitions | {f"A{count}": last}}


def two_ways(position: int) -> JsonSchema:
    return {"oneOf": [properties(**{f"a{position}": STRING}), properties(**{f"b{position}": STRING})]}


def many_kinds(prefix: str) -> JsonSchema:
    tuples = [{"type": "array", "prefixItems": [{"const": f"{prefix}{i}"}]} for i in range(300)]
    return {"anyOf": [*tuples, *(properties(**{f"{prefix}{i}": STRING}) for i in range(300))]}


def a_list_in_a_list(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def a_schema_within_itself() -> JsonSchema:
    schema: JsonSchema = {"type": "object", "properties": {}}
    schema["properties"]["me"] = schema
    return schema


CONDITIONS = [
    {"if": {"properties": {"k": {"const": k}}}, "then": {"required": [k], "properties": {k: STRING}}}
    for k in (f"k{i}" for i in range(40))
]
HOSTILE: dict[str, JsonSchema] = {
    **{f"500 levels of {each}": nested(500, each) for each in ("properties", "items", "anyOf", "allOf", "prefixItems")},
    "5000 levels of maps": nested(5000, "additionalProperties"),
    "a deep constant": {"const": a_list_in_a_list(3000)},
    "a deep default": properties(a={"default": a_list_in_a_list(3000)}),
    "laughing properties": laughing(100, lambda after: closed(left=after, right=after), STRING),
    "laughing allOf": laughing(25, lambda after: {"allOf": [after] * 3}, closed(a=STRING)),
    "laughing anyOf": laughing(60, lambda after: {"anyOf": [after, properties(k=after)]}, STRING),
    "laughing mergers": {
        "allOf": [ref("A0"), ref("B0")],
        "$defs": {
            f"{side}{i}": closed(left=ref(f"{side}{i + 1}"), right=ref(f"{side}{i + 1}"))
            for side in "AB"
            for i in range(40)
        },
    },
    "allOf of oneOf": {"type": "object", "allOf": [two_ways(i) for i in range(40)]},
    "allOf of oneOf, typed": {"additionalProperties": STRING, "allOf": [two_ways(i) for i in range(40)]},
    "allOf of oneOf, named": {"allOf": [ref(i) for i in range(40)], "$defs": {str(i): two_ways(i) for i in range(40)}},
    "many conditions": properties(k={"enum": [f"k{i}" for i in range(40)]}) | {"allOf": CONDITIONS},
    "a chain of names": laughing(3000, lambda after: after, STRING),
    "a hub": ref("H")
    | {"$defs": {"H": {"anyOf": [ref(i) for i in range(900)]}} | {str(i): ref("H") for i in range(900)}},
    "a union of many": {"anyOf": [closed(**{f"p{i}": STRING}) for i in range(400)]},
    "two unions of many kinds": {"allOf": [many_kinds("a"), many_kinds("b")]},
    "a schema within itself": a_schema_within_itself(),
    "huge numbers": {"enum": [10**5000, -(10**400)], "minimum": 10**5000, "default": 10**5000},
    "not JSON": {"properties": {"a": {"default": object(), "enum": [object(), (1, 2)], "const": {1: 2}}, 3: STRING}},
}


def test_hostile_schemas_are_declared_in_few_words() -> None:
    lengths = {name: len(declare(tool=Shape(input_schema=schema))) for name, schema in HOSTILE.items()}
    assert {name: length for name, length in lengths.items() if length >= MAX_CHARACTERS} == {}


def test_hostile_schemas_are_declared_in_few_words_of_python() -> None:
    for name, schema in HOSTILE.items():
        stubs = checker.declare(tool=Shape(input_schema=schema, output_schema=schema))
        assert len(stubs) < MAX_CHARACTERS, name
        ast.parse(stubs, filename=name)


def test_declarations_of_hostile_schemas_compile() -> None:
    tools = {f"t{position}": Shape(input_schema=schema) for position, schema in enumerate(HOSTILE.values())}
    assert type_errors(declare(**tools)) == {}


@pytest.mark.parametrize(("levels", "is_known"), [(55, True), (65, False)])
def test_what_is_below_sixty_levels_is_unknown(levels: int, is_known: bool) -> None:
    text = declare(tool=Shape(input_schema=nested(levels, "properties")))
    assert ("n: string" in text) is is_known
    assert ("n: unknown" in text) is not is_known


def test_depth_is_counted_from_the_nearest_definition() -> None:
    schema = nested(40, "properties")
    schema["properties"]["n"]["properties"]["deep"] = ref("Deep")
    text = declare(tool=Shape(input_schema=schema | {"$defs": {"Deep": nested(50, "properties")}}))
    assert text.count("n: string") == 1
    assert "unknown" not in text.replace("Promise<unknown>", "")


def test_large_schemas_are_declared_in_full() -> None:
    names = [f"p{i}" for i in range(5000)]
    schema = properties(**dict.fromkeys(names, STRING), choice={"type": "string", "enum": names})
    text = declare(tool=Shape(input_schema=schema))
    assert text.count(": string;") == 5000
    assert text.count('"p') == 5000
    assert checker.declare(tool=Shape(input_schema=schema)).count("p4999") == 2


def test_a_caller_deep_in_the_stack_gets_declarations_too() -> None:
    def deeper(frames: int) -> str:
        return deeper(frames - 1) if frames else declare(tool=Shape(input_schema=nested(500, "properties")))

    assert "unknown" in deeper(300)


def test_intersections_that_breed_intersections_are_worked_out_a_few_times_only() -> None:
    """What `a` leads to is all that `a` of any definition met so far leads to: there are a million combinations."""

    def definition(number: int) -> JsonSchema:
        after = ref(min(number + 1, 20))
        return properties(a={"allOf": [ref(0), ref(1)]} if number == 0 else after, b=after if number else ref(0))

    schema = ref(0) | {"$defs": {str(number): definition(number) for number in range(21)}}
    stubs = checker.declare(tool=Shape(input_schema=schema))
    assert 100 < stubs.count("TypedDict") < 300
    assert len(stubs) < MAX_CHARACTERS


@pytest.mark.parametrize(
    ("reference", "definitions", "is_heavy"),
    [
        ({"$ref": "#/$defs/large"}, {"large": LARGE}, True),
        ({"$ref": "#/%24defs/large"}, {"large": LARGE}, True),
        ({"$ref": "#/$defs/outer/inner"}, {"outer": {"inner": LARGE}}, True),
        ({"$ref": "#/$defs"}, LARGE, True),
        ({"$ref": "#named"}, {"large": {"$anchor": "named", **LARGE}}, True),
        ({"$dynamicRef": "#named"}, {"large": {"$dynamicAnchor": "named", **LARGE}}, True),
        ({"$ref": "other"}, {"large": {"$id": "other", **LARGE}}, True),
        ({"$ref": "#/$defs/small"}, {"large": LARGE, "small": {"$ref": "#"}}, False),
    ],
)
def test_a_schema_is_as_heavy_as_what_its_references_lead_to(
    reference: JsonSchema, definitions: JsonSchema, is_heavy: bool
) -> None:
    for schema in ({**reference, "$defs": definitions}, {"$defs": definitions, "items": reference}):
        assert (reachable_weight(schema) > MAX_WEIGHT) is is_heavy

"""What a schema accepts, its Python type accepts; what a schema refuses, its type refuses. A type checker judges."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from corral.types import JsonSchema
from tests.checking.corpora import EACH_OR_SOME
from tests.model.declarations.checker import judge
from tests.model.declarations.compiler import wrong
from tests.model.declarations.test_bounds import HOSTILE
from tests.model.declarations.test_models import MODELS
from tests.model.declarations.test_schemas import TABLE

NUMBER = {"type": "number"}
STRING = {"type": "string"}


def case(schema: Any, valid: list[Any], invalid: list[Any]) -> dict[str, Any]:
    return {"schema": schema, "valid": valid, "invalid": invalid}


def of(name: str, **schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas, "required": [name]}


OWN = {
    "integers": case(of("n", n={"type": "integer"}), [{"n": 1}], [{"n": 1.5}, {"n": "1"}]),
    "integers and some number": case(
        of("n", n={"anyOf": [{"type": "integer"}, {"const": 1.5}]}), [{"n": 1}, {"n": 1.5}], [{"n": "1"}]
    ),
    "integers of numbers": case(
        of("n", n={"allOf": [{"type": ["number", "string"]}, {"type": ["string", "integer"]}]}),
        [{"n": 1}, {"n": "a"}],
        [{"n": 1.5}],
    ),
    "constants of integers": case(
        of("n", n={"allOf": [{"type": "integer"}, {"enum": [1, 2, 2.5]}]}), [{"n": 1}, {"n": 2}], [{"n": 2.5}, {"n": 3}]
    ),
    "names of types": case(
        of("v", v=of("str", str=NUMBER, list={"type": "array", "items": STRING}, NotRequired=STRING, x=STRING)),
        [{"v": {"str": 1, "list": ["a"], "NotRequired": "a", "x": "a"}}],
        [{"v": {"str": "a"}}, {"v": {"str": 1, "list": [1]}}, {"v": {"str": 1, "x": 1}}],
    ),
    "names that are no identifiers": case(
        of("a-b", **{"a-b": NUMBER, "class": STRING, "__a": STRING, "ﬁ": NUMBER}),
        [{"a-b": 1}, {"a-b": 1, "class": "a", "__a": "a", "ﬁ": 1}],
        [{"a-b": "a"}, {"a-b": 1, "class": 1}, {"a-b": 1, "__a": 1}, {"a-b": 1, "fi": 1}, {}],
    ),
    "lengths of tuples": case(
        of("v", v={"prefixItems": [STRING, NUMBER, STRING], "items": False, "minItems": 1, "type": "array"}),
        [{"v": ["a"]}, {"v": ["a", 1]}, {"v": ["a", 1, "b"]}],
        [{"v": []}, {"v": ["a", "b"]}, {"v": ["a", 1, "b", 2]}],
    ),
    "many lengths of tuples": case(
        of("v", v={"prefixItems": [STRING, *[NUMBER] * 9], "items": {"type": "null"}, "minItems": 1, "type": "array"}),
        [{"v": ["a"]}, {"v": ["a", 1, 2]}, {"v": ["a", *range(9), None]}],
        [{"v": []}, {"v": [1]}, {"v": ["a", "b"]}],
    ),
    "no items": case(of("v", v={"type": "array", "maxItems": 0}), [{"v": []}], [{"v": [1]}]),
    "members of several": case(
        of("v", v={"anyOf": [of("a", a=STRING), of("b", b=NUMBER), of("c", c=STRING)]}),
        [{"v": {"a": "x"}}, {"v": {"a": "x", "b": 1}}, {"v": {"a": "x", "b": 1, "c": "x"}}],
        [{"v": {}}, {"v": {"a": "x", "d": 1}}],
    ),
    "a definition merged with itself": case(
        of("v", v={"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]})
        | {
            "$defs": {
                "A": {"properties": {"next": {"$ref": "#/$defs/A"}, "a": STRING}},
                "B": {"properties": {"next": {"$ref": "#/$defs/B"}, "b": STRING}, "required": ["b"]},
            }
        },
        [{"v": {"a": "x", "b": "x", "next": {"a": "x", "b": "x", "next": {"b": "x"}}}}],
        [{"v": {"b": "x", "next": {"a": "x"}}}, {"v": {"b": "x", "next": {"b": "x", "next": {"b": 1}}}}],
    ),
    "many members": case(
        of("v", v={"oneOf": [of(f"p{i}", **{f"p{i}": NUMBER}) for i in range(80)]}),
        [{"v": {"p0": 1}}, {"v": {"p79": 1}}],
        [{"v": {"p79": "a"}}, {"v": {"p80": 1}}, {"v": {}}],
    ),
    "an input that is closed and empty": case({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}, 1]),
}

DEEP = ("500 levels of items", "500 levels of prefixItems", "laughing mergers", "a schema within itself")
CASES: dict[str, tuple[JsonSchema, list[Any], list[Any]]] = {
    **{name: (each["schema"], each["valid"], each["invalid"]) for name, each in (TABLE | OWN).items()},
    **{
        f"pydantic: {name}": (TypeAdapter[Any](model).json_schema(), valid, invalid)
        for name, (model, valid, invalid) in MODELS.items()
    },
    **{f"hostile: {name}": (HOSTILE[name], [], []) for name in DEEP},
}

BOOLEANS = "a bool is an int, which is a float"
PATTERNS = "a type cannot have keys by their beginning or end"
FRACTIONS = "`Literal` has no numbers with a fraction, or beyond 1e21"
ACCEPTED: dict[str, dict[str, list[Any]]] = {
    BOOLEANS: {
        "tg-anyof": [{"v": True}],
        "tg-array-of-union": [{"v": [True]}],
        "allOf tuples": [{"v": ["a", True]}],
        "addl typed optional conflict": [{"v": {"k": True}}],
        "unevaluated typed": [{"v": {"a": "x", "k": True}}],
        "unevaluated typed ref": [{"v": {"a": "x", "k": True}}],
        "prototype names addl": [{"k": True}],
        "allOf types": [{"v": True}],
        "zod object": [{"name": "n", "meta": {"a": True}, "shape": {"t": "circle", "r": 1}}],
        "pydantic: extra properties": [{"name": "a", "n": True}],
        "pattern complex addl": [{"v": {"x-a": True}}],
        "patterns nested": [{"v": {"x-a": True}}],
        "pattern + addl typed": [{"v": {"b": True}}],
        "patterns overlapping in allOf": [{"v": {"x-a": True}}],
    },
    PATTERNS: {
        "pattern suffix": [{"v": {"other": 1}}],
        "pattern + props": [{"v": {"name": "a", "c": 1}}],
        "pattern + addl true": [{"v": {"x-a": 1}}],
        "pattern + addl typed": [{"v": {"x-a": 1}}],
        "pattern digits": [{"v": {"a": 1}}],
        "patterns two": [{"v": {"s_a": 1}}, {"v": {"n_a": "x"}}],
        "patterns nested": [{"v": {"x-y-a": "s"}}],
        "names pattern": [{"v": {"y": 1}}],
        "patterns overlapping in allOf": [{"v": {"b": "s"}}],
    },
    FRACTIONS: {"const number": [{"v": 1.5}], "enum big numbers": [{"v": 5}]},
}
"""Invalid arguments that no type of Python tells from valid ones, by the reason."""


def accepted_although_invalid(name: str) -> list[Any]:
    return [value for cases in ACCEPTED.values() for value in cases.get(name, ())]


@EACH_OR_SOME
def test_a_type_accepts_valid_values_and_no_others(step: int) -> None:
    cases = dict([*CASES.items()][::step])
    arguments = [[*valid, *invalid] for _, valid, invalid in cases.values()]
    verdicts = judge([schema for schema, _, _ in cases.values()], arguments)
    misjudged: dict[str, Any] = {}
    for (name, (_, valid, _)), given, verdict in zip(cases.items(), arguments, verdicts, strict=True):
        found = wrong(verdict, given, len(valid))
        if set(found) != set(map(json.dumps, accepted_although_invalid(name))):
            misjudged[name] = found
    assert misjudged == {}

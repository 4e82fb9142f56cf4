"""Tools declared with the forms of older drafts and of OpenAPI validate as those forms mean."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

from corral import define_tool
from corral.errors import CorralError, InvalidArguments
from corral.tools.json_schema.older_drafts import upgraded
from tests.conftest import cases


async def _echo(value: Any) -> Any:
    return value


def accepts(schema: dict[str, Any], value: object) -> bool:
    try:
        anyio.run(define_tool(name="t", input_schema=schema, execute=_echo).parse_input, value)
    except InvalidArguments:
        return False
    return True


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", 1]),
        ({"items": [{"type": "string"}], "additionalItems": {"type": "number"}}, ["a", 1], ["a", "b"]),
        ({"type": "string", "nullable": True}, None, 1),
        ({"type": "string", "enum": ["a"], "nullable": True}, None, "b"),
        ({"enum": ["a"], "nullable": True}, None, "b"),
        ({"$ref": "#/$defs/A", "nullable": True, "$defs": {"A": {"type": "integer"}}}, None, "b"),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": False}, 1, 0),
        (
            {"properties": {"nullable": True, "items": {"type": "string"}}, "type": "object"},
            {"items": "x"},
            {"items": 1},
        ),
        ({"type": "string", "nullable": True, "$schema": "http://json-schema.org/draft-07/schema#"}, None, 1),
        ({"type": "string", "enum": [1.5, True]}, "1.5", 1.5),
        ({"type": "integer", "enum": ["1", "x", "1.5", 1]}, 1, "1"),
        ({"type": "boolean", "enum": ["true"]}, True, "true"),
        ({"type": "number", "enum": ["true", "1e999", "1.5"]}, 1.5, "true"),
        ({"const": {"nullable": True, "type": "x"}}, {"nullable": True, "type": "x"}, None),
    ],
)
def test_another_form_means_what_it_was_meant_to(schema: dict[str, Any], good: object, bad: object) -> None:
    assert accepts(schema, good)
    assert not accepts(schema, bad)


def test_a_modern_schema_is_left_as_it_is() -> None:
    for case in cases("js-peers.json", "typegen"):
        if case["id"] not in {"tg-tuple-draft07", "tg-nullable-enum"}:
            assert upgraded(case["input"]["json_schema"]) == case["input"]["json_schema"]


@pytest.mark.anyio
async def test_what_the_declarations_promise_is_what_validation_accepts() -> None:
    changed, accepted = list[tuple[str, object]](), list[tuple[str, object]]()
    for case in cases("js-peers.json", "typegen"):
        schema, id = case["input"]["json_schema"], case["id"]
        tool = define_tool(name="t", input_schema=schema, output_schema=schema, execute=_echo)
        for value in case["expect"]["values_that_must_type_check"]:
            if id != "tg-if-then-else":  # which types cannot express, and validation can
                given = await tool.parse_input(value)
                changed += [(id, value)] * (await tool.dump_output(given.value) != value)
        for value in case["expect"]["values_that_must_not_type_check"]:
            with suppress(CorralError):
                accepted.append((id, (await tool.parse_input(value)).value))
    assert (changed, accepted) == ([], [])

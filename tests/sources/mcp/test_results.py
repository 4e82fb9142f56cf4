"""What a call's result becomes for a program."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from corral.errors import ToolError
from corral.sources.mcp.tool_results import Unwrapping
from corral.tools import define_tool
from tests.conftest import cases

PEERS = [case for case in cases("js-peers.json", "frontdoor") if case["id"].startswith("fd-mcp-")]
EXPECTED: dict[str, Any] = {
    "fd-mcp-structured": {"a": 1},
    "fd-mcp-multi-text": "a\nb",
    "fd-mcp-mixed": {
        "content": [{"type": "text", "text": "x"}, {"type": "image", "data": "..", "mimeType": "image/png"}]
    },
    "fd-mcp-json-string-number": "007",
}
WRAPPED = {"type": "object", "properties": {"result": {"type": "integer", "title": "Result"}}, "required": ["result"]}


def unwrapped(result: dict[str, Any], schema: dict[str, Any] | None = None) -> object:
    return Unwrapping(schema, owner="the MCP server 's': t")({"content": [], **result})


def of_text(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts]}


@pytest.mark.parametrize("case", PEERS, ids=lambda case: case["id"])
def test_a_result_is_unwrapped_as_by_others(case: dict[str, Any]) -> None:
    assert unwrapped(case["input"]) == EXPECTED.pop(case["id"])


def test_all_of_the_cases_are_judged() -> None:
    assert {case["id"] for case in PEERS} >= {"fd-mcp-structured", "fd-mcp-mixed"}
    assert not EXPECTED.keys() - {case["id"] for case in PEERS}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", "12"),
        ("007", "007"),
        ("NaN", "NaN"),
        ("true", "true"),
        ("null", "null"),
        ('"quoted"', '"quoted"'),
        (" [1.5]\n", [1.5]),
        ('{"a": [1]}', {"a": [1]}),
        ("{'a': 1}", "{'a': 1}"),
        ("", ""),
        ("[" * 10_000, "[" * 10_000),
        ("plain text", "plain text"),
        ("\ud800", "\ud800"),
    ],
)
def test_a_text_is_json_if_it_reads_as_an_object_or_a_list(text: str, value: object) -> None:
    def execute(given: object) -> object:
        return given

    undeclared = define_tool(name="t", execute=execute)
    assert repr(anyio.run(undeclared.dump_output, unwrapped(of_text(text)))) == repr(value)


def test_nothing_is_none() -> None:
    assert unwrapped({}) is None


def test_structured_content_comes_before_text() -> None:
    assert unwrapped({**of_text("text"), "structuredContent": {"result": 1}}) == {"result": 1}


def test_a_wrapped_result_is_unwrapped_and_so_is_its_schema() -> None:
    assert unwrapped({"structuredContent": {"result": 1}}, WRAPPED) == 1
    assert Unwrapping(WRAPPED, owner="").schema == {"type": "integer"}


def test_definitions_go_with_the_schema() -> None:
    items = {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    schema = {**WRAPPED, "properties": {"result": items}, "$defs": {"Item": {"type": "string"}}}
    assert Unwrapping(schema, owner="").schema == {**items, "$defs": {"Item": {"type": "string"}}}


@pytest.mark.parametrize(
    "change",
    [
        {"required": []},
        {"properties": {"result": {}, "other": {}}},
        {"properties": {"result": {"$ref": "#"}}},
        {"properties": {"result": {"items": {"$ref": "#/properties/result"}}}},
    ],
)
def test_an_object_that_only_looks_wrapped_is_left_alone(change: dict[str, Any]) -> None:
    schema = WRAPPED | change
    assert Unwrapping(schema, owner="").schema == schema
    assert unwrapped({"structuredContent": {"result": 1}}, schema) == {"result": 1}


def test_what_a_schema_is_about_is_looked_for_where_it_is_not_and_else_all_is_delivered() -> None:
    assert unwrapped(of_text('{"result": 1}'), WRAPPED) == 1
    assert unwrapped(of_text("1"), WRAPPED) == "1"
    assert unwrapped({"structuredContent": {"other": 1}}, WRAPPED) == {"other": 1}


def test_an_error_without_a_text_is_one_all_the_same() -> None:
    with pytest.raises(ToolError, match="the MCP server 's': t failed, and does not say why"):
        unwrapped({"isError": True})

"""What a call's result becomes for a program."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

from corral.errors import ToolError
from corral.sources.mcp.tool_results import Unwrapping, oddity
from corral.sources.mcp.transports import readable
from corral.tools import define_tool
from tests.conftest import cases
from tests.work import examples

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
    with pytest.raises(ToolError, match="the MCP server 's': t failed without a message"):
        unwrapped({"isError": True})


def test_an_error_without_a_text_is_what_else_it_says() -> None:
    with pytest.raises(ToolError, match=r'^{"error": "quota"}$'):
        unwrapped({"isError": True, "structuredContent": {"error": "quota"}})
    with pytest.raises(ToolError, match=r'^no\n{"retry": 30}$'):
        unwrapped({**of_text("no"), "isError": "true", "structuredContent": {"retry": 30}})
    with pytest.raises(ToolError, match=r'^{"retry": 30}$'):
        unwrapped({**of_text('{"retry": 30}'), "isError": True, "structuredContent": {"retry": 30}})


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": None, "structuredContent": {"a": 1}, "isError": None, "_meta": []}, {"a": 1}),
        ({"structuredContent": [1]}, [1]),
        ({"structuredContent": [], "content": [{"type": "text", "text": "none"}]}, "none"),
        ({"temperature": 3}, {"temperature": 3}),
        ({}, None),
        ([1], [1]),
        ({"content": "text"}, "text"),
        ({"content": {"type": "text", "text": "text"}}, "text"),
        ({"content": [{"text": "text"}]}, "text"),
        (
            {"content": ["a", {"type": "ui_card", "card": {"a": None}, "title": None}]},
            {"content": [{"type": "text", "text": "a"}, {"type": "ui_card", "card": {"a": None}}]},
        ),
        ({"content": [{"type": "image", "data": "aa"}]}, {"content": [{"type": "image", "data": "aa"}]}),
        (
            {"content": [{"type": "resource_link", "uri": "a:b", "annotations": {"priority": 7}}]},
            {"content": [{"type": "resource_link", "uri": "a:b", "annotations": {"priority": 7}}]},
        ),
    ],
)
def test_a_result_that_the_protocol_does_not_allow_is_delivered(result: Any, value: object) -> None:
    assert Unwrapping(None, owner="t")(result) == value


def test_an_empty_object_as_php_writes_it_is_one_where_that_is_declared() -> None:
    assert unwrapped({"structuredContent": []}, {"type": "object"}) == {}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=5,
)
BLOCKS = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["text", "image", "other"]) | JSON, "text": JSON, "data": JSON}
)
RESULTS: st.SearchStrategy[Any] = JSON | st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(BLOCKS | JSON, max_size=3) | JSON,
        "structuredContent": JSON,
        "isError": JSON,
        "_meta": JSON,
        "more": JSON,
    },
)
SCHEMAS = st.sampled_from([None, WRAPPED, {"type": "object"}])


def discarded(level: int, text: str) -> None:
    pass


@settings(max_examples=examples(50))
@given(RESULTS, SCHEMAS)
def test_no_result_is_lost(result: object, schema: dict[str, Any] | None) -> None:
    oddity(result)
    members = cast("dict[str, Any]", result) if isinstance(result, dict) else {"content": result}
    call = partial(Unwrapping(schema, owner="t"), cast("object", result))
    if str(members.get("isError")).lower() == "true":
        with pytest.raises(ToolError, match=r"\S"):
            call()
    elif members.get("structuredContent") or members.get("content"):
        assert call() is not None or "structuredContent" in members


@settings(max_examples=examples(50))
@given(RESULTS, st.text(st.characters(categories=["Cs", "L"]), max_size=5), st.binary(max_size=3))
def test_a_message_with_any_result_and_text_can_be_read(result: Any, text: str, data: bytes) -> None:
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"a": result, "b": text, "c": "@"}}).encode()
    found = readable(message.replace(b"@", data.translate(None, b'"\\')), discarded)
    read = jsonrpc_message_adapter.validate_json(found)
    assert isinstance(read, JSONRPCResponse)
    assert read.result["a"] == result
    assert read.result["b"] == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

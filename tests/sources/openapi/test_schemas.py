"""Schemas of a document are those of 2020-12, stand by themselves, and mean what they meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from corral import Corral, define_tool
from corral.errors import InvalidArguments, InvalidToolOutput
from corral.model import declare_python, declare_typescript
from corral.sources.openapi import OpenApi
from corral.tools import ToolRegistry
from tests.conftest import cases
from tests.sources.openapi.service import Answer, Service, calling, document, operation
from tests.work import calls_of

pytestmark = pytest.mark.anyio


def sending(schema: Any, version: str = "3.0.3", /, **schemas: Any) -> OpenApi:
    """A source with one operation, whose body and whose result are of this schema."""
    content = {"content": {"application/json": {"schema": schema}}}
    paths = operation(method="post", requestBody={**content, "required": True}, responses={"200": content})
    return OpenApi(None, document(paths, version=version, schemas=schemas), base_url="http://localhost")


def tool_of(source: OpenApi) -> Any:
    assert source.skipped == []
    [tool] = source.tools
    return tool


def takes(tool: Any, value: Any) -> bool:
    try:
        anyio.run(tool.parse_input, {"body": value})
    except InvalidArguments:
        return False
    return True


def gives(tool: Any, value: Any) -> bool:
    try:
        anyio.run(replace(tool, validate_output="strict").dump_output, value)
    except InvalidToolOutput:
        return False
    return True


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, [None, "a"], [1]),
        ({"type": "string", "enum": ["a"], "nullable": True}, [None, "a"], ["b"]),
        ({"allOf": [{"type": "string"}], "nullable": True}, [None, "a"], [1]),
        ({"$ref": "#/components/schemas/Text", "nullable": True}, [None, "a"], [1]),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": False}, [1], [2]),
        ({"type": "integer", "format": "int64", "example": "x", "x-more": {"type": "string"}}, [1], ["a"]),
        ({"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Text"}}, [{"a": "b"}], [{"a": 1}]),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Text"}, "maxItems": 1}, [["a"]], [[1], ["a", "b"]]),
        ({"type": "object", "properties": {"$ref": {"type": "string"}}}, [{"$ref": "a"}], [{"$ref": 1}]),
        ({"type": "string", "pattern": "^(?>a)[$"}, ["anything"], [1]),
        ({"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/Count"}]}, ["a", 1], [1.5]),
        ({"$ref": "#/components/schemas/Holder/properties/inner"}, [1], ["a"]),
    ],
)
def test_a_schema_of_30_means_what_it_means_there(schema: Any, good: list[Any], bad: list[Any]) -> None:
    count = {"type": "integer"}
    tool = tool_of(sending(schema, Text={"type": "string"}, Count=count, Holder={"properties": {"inner": count}}))
    assert [takes(tool, value) and gives(tool, value) for value in good] == [True] * len(good)
    assert [takes(tool, value) or gives(tool, value) for value in bad] == [False] * len(bad)
    text = str([tool.input_schema, tool.output_schema])
    assert "nullable" not in text
    assert "components" not in text
    assert "x-more" not in text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"]}, [None, "a"], [1]),
        ({"const": "a"}, ["a"], ["b"]),
        ({"$ref": "#/components/schemas/Text", "maxLength": 1}, ["a"], ["ab", 1]),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, [["a"]], [["a", 1], [1]]),
        ({"type": "number", "exclusiveMinimum": 1}, [2], [1]),
        ({"if": {"type": "string"}, "then": {"maxLength": 1}}, ["a", 1], ["ab"]),
        (True, [1, None], []),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, [{"b": 1}], [{"a": 1}]),
    ],
)
def test_a_schema_of_31_means_what_it_means_there(schema: Any, good: list[Any], bad: list[Any]) -> None:
    tool = tool_of(sending(schema, "3.1.0", Text={"type": "string"}))
    assert [takes(tool, value) and gives(tool, value) for value in good] == [True] * len(good)
    assert [takes(tool, value) or gives(tool, value) for value in bad] == [False] * len(bad)


def test_beside_a_reference_only_31_reads_on() -> None:
    schema = {"$ref": "#/components/schemas/Text", "maxLength": 1, "description": "short"}
    old, new = (tool_of(sending(schema, version, Text={"type": "string"})) for version in ("3.0.0", "3.1.0"))
    assert takes(old, "ab")
    assert not takes(new, "ab")
    assert old.input_schema["properties"]["body"] == {"$ref": "#/$defs/Text", "description": "short"}


def test_what_is_read_only_is_not_asked_for_and_what_is_write_only_does_not_come() -> None:
    base = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "made": {"$ref": "#/components/schemas/Made"},
            "name": {"type": "string"},
            "password": {"type": "string", "writeOnly": True},
        },
        "required": ["id", "made", "name", "password"],
    }
    user = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}]}
    tool = tool_of(
        sending({"$ref": "#/components/schemas/User"}, User=user, Base=base, Made={"type": "string", "readOnly": True})
    )
    assert takes(tool, {"name": "n", "password": "p"})
    assert not takes(tool, {"name": "n"})
    assert gives(tool, {"id": 1, "made": "now", "name": "n"})
    assert not gives(tool, {"name": "n", "made": "now"})
    declared = declare_typescript(ToolRegistry(tool).snapshot())
    assert declared.count("password") == 1
    assert declared.count("id: number") == 1


def test_a_discriminator_says_which_variant_a_value_is_of() -> None:
    variants = {
        name: {"type": "object", "properties": {"kind": {"type": "string"}, "n": {}}, "required": ["kind"]}
        for name in ("Cat", "Dog")
    }
    mapping = {"cat": "#/components/schemas/Cat", "kitten": "Cat", "dog": "#/components/schemas/Dog"}
    pet = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": mapping},
    }
    tool = tool_of(sending({"$ref": "#/components/schemas/Pet"}, Pet=pet, **variants))
    for kind, fits in (("cat", True), ("kitten", True), ("dog", True), ("cow", False)):
        assert takes(tool, {"kind": kind}) is fits
    declared = declare_typescript(ToolRegistry(tool).snapshot())
    assert '"cat" | "kitten"' in declared


def test_recursive_schemas_end_and_stay_small() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#/components/schemas/Tree"}, "up": {"$ref": "#/components/schemas/Node"}},
    }
    node = {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}
    tool = tool_of(sending({"$ref": "#/components/schemas/Tree"}, Tree=tree, Node=node))
    assert takes(tool, {"left": {"left": {"up": [{}]}}})
    assert not takes(tool, {"left": {"left": {"up": {}}}})
    assert set(tool.input_schema["$defs"]) == {"Tree", "Node"}
    assert "left?: Tree" in declare_typescript(ToolRegistry(tool).snapshot())
    assert "class Tree" in declare_python(ToolRegistry(tool).snapshot())


def test_a_tool_carries_only_the_definitions_that_it_needs() -> None:
    tool = tool_of(
        sending({"$ref": "#/components/schemas/A"}, A={"items": {"$ref": "#/components/schemas/B"}}, B={}, C={})
    )
    assert set(tool.input_schema["$defs"]) == {"A", "B"}


def test_definitions_of_the_same_last_name_are_told_apart() -> None:
    properties = {
        "a": {"$ref": "#/components/schemas/Id"},
        "b": {"$ref": "#/components/schemas/Other/properties/Id"},
    }
    tool = tool_of(
        sending({"properties": properties}, Id={"type": "string"}, Other={"properties": {"Id": {"type": "integer"}}})
    )
    assert takes(tool, {"a": "x", "b": 1})
    assert not takes(tool, {"a": 1})
    assert not takes(tool, {"b": "x"})


def test_names_of_schemas_may_have_any_characters() -> None:
    tool = tool_of(sending({"$ref": "#/components/schemas/a~1b%20%C3%A9"}, **{"a/b é": {"type": "integer"}}))
    assert takes(tool, 1)
    assert not takes(tool, "a")


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("https://example.com/schema.json", "which is not in this document; bundle it into one document"),
        ("other.yaml#/Pet", "which is not in this document"),
        ("file:///etc/passwd", "which is not in this document"),
        ("#/components/schemas/Missing", "refers to #/components/schemas/Missing, which does not exist"),
        ("#/components/schemas/Self", "refers to itself in a circle"),
        ("#/components/schemas/One", "refers to itself in a circle"),
        ("#/components/schemas/All", "refers to itself in a circle"),
        ("#anchor", "which is not in this document"),
        (7, "refers to 7, which is not in this document"),
        ("#/openapi", "#/openapi: is not a schema"),
    ],
)
def test_a_reference_that_leads_nowhere_skips_the_operation(reference: Any, reason: str) -> None:
    source = sending(
        {"properties": {"x": {"$ref": reference}}},
        Self={"$ref": "#/components/schemas/Self"},
        One={"$ref": "#/components/schemas/Two"},
        Two={"$ref": "#/components/schemas/One"},
        All={"allOf": [{"anyOf": [{"$ref": "#/components/schemas/All"}]}]},
    )
    [skipped] = source.skipped
    assert skipped.operation == "POST /things"
    assert reason in skipped.reason
    assert skipped.reason.startswith("#/")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "file"},
        {"type": {"a": 1}},
        {"properties": []},
        {"required": True},
        {"required": [1]},
        {"enum": "a"},
        {"items": 5},
        {"allOf": {}},
        {"anyOf": []},
        {"minimum": "1"},
        {"maxLength": -1},
        {"multipleOf": 0},
        {"description": ["a"]},
        {"nullable": "yes"},
        {"properties": {"a": None}},
        "text",
        [],
    ],
)
def test_a_schema_of_wrong_types_skips_the_operation_and_says_where(schema: Any) -> None:
    [skipped] = sending({"properties": {"x": schema}}).skipped
    assert "/content/application~1json/schema/properties/x" in skipped.reason


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_a_bomb_of_references_is_skipped(keyword: str) -> None:
    bomb = {f"A{n}": {keyword: [{"$ref": f"#/components/schemas/A{n + 1}"}] * 2} for n in range(60)}
    [skipped] = sending({"$ref": "#/components/schemas/A0"}, **bomb, A60={"type": "object"}).skipped
    assert "its alternatives multiply" in skipped.reason


def test_long_chains_and_wide_schemas_are_read_in_no_time() -> None:
    chain = {f"C{n}": {"items": {"$ref": f"#/components/schemas/C{n + 1}"}} for n in range(1_000)}
    wide = {"allOf": [{"$ref": f"#/components/schemas/C{n}"} for n in range(300)] * 20}

    def read() -> None:
        source = sending({"properties": {"a": {"$ref": "#/components/schemas/C0"}, "b": wide}}, **chain, C1000={})
        assert source.skipped == []
        assert len(tool_of(source).input_schema["$defs"]) == 1_001

    assert calls_of(read) < 3_500_000


# --- cases


@pytest.mark.parametrize(
    "case",
    [each for each in cases("js-peers.json", "frontdoor") if "openapi" in each["id"]],
    ids=lambda case: case["id"],
)
async def test_cases_of_the_front_door(case: dict[str, Any], service: Service) -> None:
    match case["id"]:
        case "fd-openapi-body-ref":
            body = case["input"]["requestBody"]
            for required in (True, False):
                said = {"required": required, "content": {"application/json": {"schema": body}}}
                issue = {"type": "object", "properties": {"title": {"type": "string"}}}
                source = OpenApi(
                    None,
                    document(operation(method="post", requestBody=said), schemas={"Issue": issue}),
                    base_url=service.url,
                )
                declared = declare_typescript(ToolRegistry(tool_of(source)).snapshot())
                assert f"body{'' if required else '?'}: Issue" in declared
                assert "title?: string" in declared
        case "fd-openapi-path-level-params":
            item: Any = {
                **case["input"]["pathItem"],
                **operation()["/things"],
                "put": {"operationId": "put", "responses": {}},
            }
            async with calling(service, document({"/x/{owner}": item})) as call:
                for name in ("call", "put"):
                    await call(name, owner="me")
                    assert service.last.target == "/x/me"
        case "fd-openapi-same-name-params":
            said: Any = [{"schema": {}, "required": True, **each} for each in case["input"]["parameters"]]
            async with calling(service, document(operation(*said, path="/x/{id}"))) as call:
                await call(id="a", query_id="b")
            assert service.last.target == "/x/a?id=b"
        case "fd-openapi-circular":
            node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
            assert "next?: Node" in declare_typescript(
                ToolRegistry(tool_of(sending({"$ref": "#/components/schemas/Node"}, Node=node))).snapshot()
            )
        case "fd-openapi-headers-out":
            responses: Any = {"200": {"headers": {"Link": {}}, "content": {"application/json": {}}}}
            service.answers.append(Answer.of([], 200, link="<next>"))
            async with calling(service, document(operation(responses=responses))) as call:
                assert await call() == {"data": [], "headers": {"link": "<next>"}}
        case unknown:
            raise AssertionError(unknown)


def test_a_tool_like_one_written_by_hand() -> None:
    said = tool_of(sending({"type": "string"}))
    by_hand = define_tool(name="call", input_schema=said.input_schema, output_schema={"type": "string"}, execute=print)
    assert (said.input_schema, said.output_schema) == (by_hand.input_schema, by_hand.output_schema)


def test_warnings_about_tools_make_no_schemas() -> None:
    source = sending({"type": "object", "properties": {"id": {"type": "integer"}}})
    registry = ToolRegistry()
    registry.exchange((), source.tools, namespace="api")
    shown = define_tool(name="shown", description="Shown.", execute=print)
    Corral(registry, check=False).model.catalog(tools=[shown])
    assert not any(tool.has_schemas for tool in source.tools)
    assert all(tool.input_schema and tool.output_schema and tool.has_schemas for tool in source.tools)

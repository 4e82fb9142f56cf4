"""The `.proto` of tools: the real compiler takes it, and its types are those of reflection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

from corral import define_tool
from corral.protocols.grpc.tool_schema import ToolSchema, proto_text
from corral.tools import ToolRegistry
from tests.protocols.grpc.serving import more_tools

SCHEMAS: dict[str, Any] = {
    "names": {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": 'On "two"\nlines */ //'}
            for name in ("a-b", "a_b", "aB", "1", "größe", "message", "optional", "_x", 'quote"\\', "$ref", " ")
        },
    },
    "recursive": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}, "json": {"$ref": "#/$defs/json"}},
        "$defs": {
            "tree": {"type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
            "json": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"$ref": "#/$defs/json"}}]},
        },
    },
    "itself": {"type": "object", "properties": {"inner": {"$ref": "#"}}},
    "maps": {
        "type": "object",
        "properties": {
            "a": {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
            "b_c": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"const": "y"}}}},
        },
        "required": ["a", "b_c"],
    },
    "same entries": {
        "type": "object",
        "properties": {name: {"type": "object", "additionalProperties": {"type": "integer"}} for name in ("a_b", "aB")},
        "required": ["a_b", "aB"],
    },
    "union": {"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
    "open": {"type": "object"},
    "broken reference": {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    "no name": {"type": "object", "properties": {"": {"type": "string"}}},
}


async def execute(input: Any) -> Any:
    return input


def registry() -> ToolRegistry:
    given = [
        define_tool(name=name, namespace="odd", input_schema=schema, output_schema=schema, execute=execute)
        for name, schema in SCHEMAS.items()
    ]
    return ToolRegistry(*more_tools(), *given)


def test_the_compiler_takes_it(tmp_path: Path) -> None:
    schema = ToolSchema(registry().snapshot())
    text = proto_text(schema.file)
    (tmp_path / "tools.proto").write_text(text)
    out = tmp_path / "out.pb"
    include = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{tmp_path}", f"-I{include}", f"--descriptor_set_out={out}", "tools.proto"]
    compiler: Any = protoc
    assert compiler.main([*arguments, f"--python_out={tmp_path}", "--include_source_info"]) == 0
    [compiled] = FileDescriptorSet.FromString(out.read_bytes()).file
    ours = schema.file
    assert [each.name for each in compiled.service] == [each.name for each in ours.service]
    assert compiled.service == ours.service
    for theirs, made in zip(compiled.message_type, ours.message_type, strict=True):
        assert fields(theirs) == fields(made)
    comments = {each.leading_comments for each in ours.source_code_info.location}
    assert comments <= {each.leading_comments for each in compiled.source_code_info.location}


def fields(message: Any, path: str = "") -> dict[str, tuple[Any, ...]]:
    """What the wire and JSON know of a message's fields, and of those within it."""
    here = f"{path}.{message.name}"
    found = {
        f"{here}.{each.name}": (each.number, each.type, each.label, each.json_name, each.proto3_optional)
        for each in message.field
    }
    for nested in message.nested_type:
        found |= fields(nested, here)
    return found


@pytest.mark.parametrize("count", [0, 30])
def test_numbers_do_not_depend_on_other_fields(count: int) -> None:
    def numbers(properties: dict[str, Any]) -> dict[str, int]:
        schema = {"type": "object", "properties": properties}
        given = define_tool(name="t", input_schema=schema, execute=execute)
        [message, _] = ToolSchema(ToolRegistry(given).snapshot()).file.message_type
        return {each.json_name: each.number for each in message.field}

    more: dict[str, Any] = {f"p{number}": {"type": "string"} for number in range(count)}
    assert numbers({"a": {"type": "string"}, **more})["a"] == numbers({**more, "a": {"type": "string"}})["a"] == 2313302

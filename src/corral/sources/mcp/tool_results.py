"""The result of an MCP tool's call as the value that a program receives."""

from __future__ import annotations

import json
from typing import cast

from mcp_types import CallToolResult, TextContent

from corral.errors import ToolError
from corral.json_schema.plain_data import json_value
from corral.json_schema.problems import cut
from corral.types import JsonSchema

__all__ = ["Unwrapping"]

_MAX_ERROR_CHARACTERS = 2_000
_WRAPPER = "result"
"""Servers that return something other than an object put it under this name, and say so in the output schema."""


class Unwrapping:
    """The way to unwrap the results of one tool, and the schema of the value, or None if the server gives none."""

    def __init__(self, output_schema: JsonSchema | None, *, owner: str) -> None:
        self._owner = owner
        self._declared = output_schema is not None
        self._wraps = output_schema is not None and _wraps(output_schema)
        self.schema = _inner(output_schema) if output_schema is not None and self._wraps else output_schema

    def __call__(self, result: CallToolResult) -> object:
        """The value; with a schema, what the schema is about, as far as that is there.

        Raises:
            ToolError: the server says that the call failed.
        """
        if result.is_error:
            raise ToolError(
                cut(_joined(result), _MAX_ERROR_CHARACTERS) or f"{self._owner} failed, and does not say why"
            )
        value: object = result.structured_content
        if value is None and not (self._declared and "structured_content" in result.model_fields_set):
            value = _unstructured(result)
            if not self._declared or not isinstance(value, str):
                return value
            read = json_value(value)  # servers should say the same as text
            value = cast("object", read) if isinstance(read, dict) else value
        if self._wraps and isinstance(value, dict) and _WRAPPER in value:
            return cast("dict[str, object]", value)[_WRAPPER]
        return cast("object", value)


def _unstructured(result: CallToolResult) -> object:
    """The text; or else all of the content as it is."""
    if not result.content:
        return None
    if all(isinstance(each, TextContent) for each in result.content):
        return _joined(result)
    content = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.content]
    return {"content": content}


def _joined(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


def _wraps(schema: JsonSchema) -> bool:
    """True for a schema of an object with only a required "result", which no part of it refers back to."""
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and isinstance(properties, dict)
        and [*cast("dict[str, object]", properties)] == [_WRAPPER]
        and schema.get("required") == [_WRAPPER]
        and not any(reference in json.dumps(schema) for reference in ('"#"', '"#/properties'))
    )


def _inner(schema: JsonSchema) -> JsonSchema | None:
    inner: object = schema["properties"][_WRAPPER]
    if not isinstance(inner, dict):
        return None
    shared = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    inner = {key: value for key, value in cast("JsonSchema", inner).items() if key != "title"}
    return {**inner, **shared} or None

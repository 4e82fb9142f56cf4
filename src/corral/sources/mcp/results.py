"""What a call of an MCP tool gives, as the value that a program receives."""

from __future__ import annotations

import json
from typing import Any, cast

from mcp_types import CallToolResult, TextContent
from pydantic_core import from_json

from corral.errors import InvalidToolOutput, ToolError
from corral.tools.problems import cut
from corral.types import JsonSchema

__all__ = ["Unwrapping"]

_MAX_ERROR_CHARACTERS = 2_000
_WRAPPER = "result"
"""Servers that return something other than an object put it under this name, and say so in the output schema."""


class Unwrapping:
    """How the results of one tool are unwrapped, and the schema of what comes out, or None if the server gives none."""

    def __init__(self, output_schema: JsonSchema | None, *, owner: str) -> None:
        self._owner = owner
        self._declared = output_schema is not None
        self._wraps = output_schema is not None and _wraps(output_schema)
        self.schema = _inner(output_schema) if output_schema is not None and self._wraps else output_schema

    def __call__(self, result: CallToolResult) -> object:
        """The value; with a schema, that is what the schema is about, and texts are not looked at.

        Raises:
            ToolError: the server says that the call failed.
            InvalidToolOutput: the value that the schema is about is not there.
        """
        if result.is_error:
            raise ToolError(
                cut(_joined(result), _MAX_ERROR_CHARACTERS) or f"{self._owner} failed, and does not say why"
            )
        if not self._declared:
            return _undeclared(result)
        value: object = result.structured_content
        if value is None and "structured_content" not in result.model_fields_set:
            raise InvalidToolOutput(f"{self._owner} has an output schema, but sent no structured content")
        if not self._wraps:
            return value
        members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        if _WRAPPER not in members:
            raise InvalidToolOutput(
                f'{self._owner} sent structured content without "{_WRAPPER}", against its own schema'
            )
        return members[_WRAPPER]


def _undeclared(result: CallToolResult) -> object:
    """Structured content; or else the text, read as JSON if it is that; or else all of the content as it is."""
    if result.structured_content is not None:
        return result.structured_content
    if not result.content:
        return None
    if all(isinstance(each, TextContent) for each in result.content):
        return _read(_joined(result))
    content = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.content]
    return {"content": content}


def _joined(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


def _read(text: str) -> object:
    """A number only if writing it gives the same text: "007", "1.50" and what no float can hold stay texts."""
    try:
        value: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        return text
    return text if isinstance(value, int | float) and json.dumps(value) != text.strip() else value


def _wraps(schema: JsonSchema) -> bool:
    """Whether the schema is of an object with nothing but a required "result", to which no part of it refers back."""
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

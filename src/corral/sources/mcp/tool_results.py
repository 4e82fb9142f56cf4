"""Converts the result of an MCP tool's call to the value that a program receives."""

from __future__ import annotations

import json
from typing import Any, cast

from mcp_types import CallToolResult, InputRequiredResult

from corral.errors import ToolError
from corral.rendering.masking import Mask
from corral.sources.mcp.transports import RAW
from corral.tools.json_schema.plain_data import json_value
from corral.tools.json_schema.problems import cut
from corral.types import JsonSchema

_MAX_ERROR_CHARACTERS = 2_000
_NO_MASK = Mask(())
_WRAPPER = "result"
"""Member in which servers wrap results that are not objects. They declare that in the output schema."""
_ENVELOPE = frozenset({"_meta", "content", "isError", "resultType", "structuredContent"})
_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})


def as_sent(result: CallToolResult | InputRequiredResult) -> object:
    """Returns a result as the server sent it: JSON of any kind."""
    if isinstance(result, InputRequiredResult):
        return {"resultType": result.result_type}
    if RAW in (result.meta or {}):
        return cast("dict[str, object]", result.meta)[RAW]
    content = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.content]
    structured = result.structured_content
    more = {"structuredContent": structured} if "structured_content" in result.model_fields_set else {}
    return {"content": content, "isError": result.is_error, **more}


def failure(result: object, owner: str, mask: Mask = _NO_MASK) -> ToolError | None:
    """Returns the error of a result that reports a failed call, with its whole text."""
    if not isinstance(result, dict):
        return None
    members = cast("dict[str, Any]", result)
    if str(members.get("isError")).lower() != "true":
        return None
    blocks = _blocks(members)
    texts = [text for each in blocks if (text := _text(each)) is not None]
    structured: object = members.get("structuredContent") or (None if texts else blocks) or None
    if structured is not None and all(json_value(text) != structured for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False))
    text = shown("\n".join(texts), mask, _MAX_ERROR_CHARACTERS)
    return ToolError(text or f"{owner} failed without a message")


def shown(text: str, mask: Mask, characters: int) -> str:
    """Shortens a text from elsewhere, without secrets. Only its beginning is searched for them."""
    return cut(mask.text(text[: 10 * characters]), characters)


def oddity(result: object) -> str | None:
    """Returns the first violation of MCP in those parts of a result that are read."""
    content: object = cast("dict[str, object]", result).get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return "no list of content"
    for block in cast("list[object]", content):
        kind = cast("dict[str, object]", block).get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in _BLOCKS:
            return f"a block of type {cut(kind)!r}" if isinstance(kind, str) else "a block without a type"
    return None


class Unwrapping:
    """Unwraps the results of one tool. `schema` describes the value; None if the server declares none.

    Results are read as leniently as possible: content that violates MCP is still data.
    """

    def __init__(self, output_schema: JsonSchema | None, *, owner: str) -> None:
        self._owner = owner
        self._declared = output_schema is not None
        self._wraps = output_schema is not None and _wraps(output_schema)
        self._is_object = (output_schema or {}).get("type") == "object"
        self.schema = _inner(output_schema) if output_schema is not None and self._wraps else output_schema

    def __call__(self, result: object) -> object:
        """Returns the value: with a schema, the part of the result that it describes, if there is one.

        Raises:
            ToolError: the server reports that the call failed.
        """
        if error := failure(result, self._owner):
            raise error
        if not isinstance(result, dict):
            return result
        members = cast("dict[str, Any]", result)
        value: object = members.get("structuredContent")
        if value == []:  # an empty object, as PHP writes it
            value = {} if self._is_object else None if _blocks(members) else value
        if value is None and not (self._declared and "structuredContent" in members):
            value = _unstructured(members)
            if not self._declared or not isinstance(value, str):
                return value
            read = json_value(value)  # servers should also send it as text
            value = cast("object", read) if isinstance(read, dict) else value
        if self._wraps and isinstance(value, dict) and _WRAPPER in value:
            return cast("dict[str, object]", value)[_WRAPPER]
        return cast("object", value)


def _blocks(members: dict[str, Any]) -> list[object]:
    content: object = members.get("content")
    return cast("list[object]", content if isinstance(content, list) else [] if content is None else [content])


def _text(block: object) -> str | None:
    match block:
        case str():
            return block
        case {"text": str(text)} if cast("dict[str, object]", block).get("type", "text") == "text":
            return text
        case _:
            return None


def _unstructured(members: dict[str, Any]) -> object:
    """Returns the text; failing that, all content without nulls; failing that, all other members."""
    blocks = _blocks(members)
    if not blocks:
        return {name: value for name, value in members.items() if name not in _ENVELOPE} or None
    texts = [text for each in blocks if (text := _text(each)) is not None]
    if len(texts) == len(blocks):
        return "\n".join(texts)
    return {"content": [_without_nulls(each) for each in blocks]}


def _without_nulls(block: object) -> object:
    match block:
        case str():
            return {"type": "text", "text": block}
        case dict():
            return {name: value for name, value in cast("dict[str, object]", block).items() if value is not None}
        case _:
            return block


def _wraps(schema: JsonSchema) -> bool:
    """True for the schema of an object with only a required "result", and without references to the whole schema."""
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

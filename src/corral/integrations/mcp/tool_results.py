"""Converts a program's result to the result of an MCP tool: text, structured content and images."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, get_args

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import TypeAdapter, ValidationError

from corral import ExecutionResult
from corral.errors import CorralError
from corral.rendering.images import Picture, pictures_in, without_pictures
from corral.rendering.preview import json_text
from corral.results import Diagnostic
from corral.types import ExecutionError, JsonSchema, Language, Status

_ERROR: JsonSchema = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "name": {"type": "string"},
        "message": {"type": "string"},
        "line": {"type": "integer"},
        "column": {"type": "integer"},
    },
    "required": ["code", "name", "message"],
}
OUTPUT_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "status": {"enum": list(get_args(Status))},
        "value": {"description": "What the program returned."},
        "console": {"type": "string"},
        "checked": {"type": "boolean"},
        "error": _ERROR,
        "tool_calls": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "ms": {"type": "number"}, "error": _ERROR},
                "required": ["name"],
            },
        },
    },
    "required": ["status", "value", "console", "checked", "tool_calls"],
}

_MOST_BLOCKS = 100
_MOST_LOOKED_AT = 1_000
"""Maximum number of list members that are tested for being content blocks."""
_BLOCK_TYPES = ("image", "audio", "resource", "resource_link")  # not a set: a program's `type` can be unhashable
_block: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)


def program_result(result: ExecutionResult) -> CallToolResult:
    """Converts a result to text, structured content, and the pictures and other content blocks in its value.

    The text also states, even after success, why an expected type check did not happen.
    """
    result = replace(result, diagnostics=tuple(map(_shown, result.diagnostics)))
    rest, blocks = _taken_out(result.value, lambda block, number: {"type": block.type, "content": number})
    before = len(blocks)
    value, pictures = pictures_in(rest, lambda _, number: {"type": "image", "content": before + number})
    shown = result.model_text(transform=lambda value: _taken_out(value, _in_text)[0]) if blocks else result.model_text()
    images = [ImageContent(data=each.base64, mime_type=each.media_type) for each in pictures]
    structured: dict[str, Any] = {
        "status": result.status,
        "value": json.loads(json_text(value)),
        "console": without_pictures(result.console),
        "checked": result.checked,
        "tool_calls": [
            _without_none(name=each.name, ms=each.duration_ms, error=_error(each.error)) for each in result.tool_calls
        ],
    }
    if result.error is not None:
        structured["error"] = _error(result.error)
    return CallToolResult(
        content=[TextContent(text=shown), *blocks, *images], structured_content=structured, is_error=not result.success
    )


def _shown(remark: Diagnostic) -> Diagnostic:
    return replace(remark, show="always") if remark.code == "unchecked" else remark


def text_result(result: ExecutionResult) -> CallToolResult:
    """Converts a result to text only."""
    return CallToolResult(content=[TextContent(text=result.model_text())], is_error=not result.success)


def failed(error: CorralError, language: Language) -> ExecutionResult:
    """Makes the result for a program that could not be started."""
    shown = ExecutionError(code=error.code, name=type(error).__name__, message=str(error))
    return ExecutionResult(execution_id="", status="failed", language=language, error=shown)


def _error(error: Any) -> dict[str, Any] | None:
    if error is None:
        return None
    place = {name: getattr(error, name, None) for name in ("line", "column")}
    return _without_none(code=error.code, name=error.name, message=error.message, **place)


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _taken_out(value: Any, marker: Callable[[ContentBlock, int], object]) -> tuple[Any, list[ContentBlock]]:
    """Returns the value with a marker in place of each content block, and the blocks.

    A block is the value itself or a member of a list, which is the value or, as in results of MCP tools, its `content`.
    """
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if isinstance(members.get("content"), list):
            content, blocks = _taken_out(members["content"], marker)
            return ({**members, "content": content}, blocks) if blocks else (members, [])
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    blocks: list[ContentBlock] = []
    kept: list[Any] = []
    for each in items[:_MOST_LOOKED_AT]:
        block = _as_block(each) if len(blocks) < _MOST_BLOCKS else None
        if block is None:
            kept.append(each)
        else:
            blocks.append(block)
            kept.append(marker(block, len(blocks)))  # the text is the first
    return ([*kept, *items[_MOST_LOOKED_AT:]] if isinstance(value, list) else kept[0], blocks)


def _in_text(block: ContentBlock, number: int) -> object:
    if isinstance(block, ImageContent):
        return str(Picture(b64decode(block.data), block.mime_type))
    return {"type": block.type, "content": number}


def _as_block(value: Any) -> ContentBlock | None:
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("type") not in _BLOCK_TYPES:
        return None
    try:
        block = _block.validate_python(json.loads(json_text(value)))
        match block:
            case ImageContent(data=data) | AudioContent(data=data):
                b64decode(data, validate=True)
            case EmbeddedResource(resource=BlobResourceContents(blob=data)):
                b64decode(data, validate=True)
            case EmbeddedResource() | ResourceLink():
                pass
            case _:
                return None
    except (ValidationError, NotBase64, ValueError):
        return None
    return block

"""Weights of schemas, and outlines of tools whose schemas are too large: for a language server to check with every
program, or for an event loop to read for a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

from corral.logs import get_logger
from corral.model.printing.signatures import ToolOutline, ToolShape
from corral.tools import Tool
from corral.tools.json_schema.keywords import Pointer, mapping, pointer_tokens
from corral.types import JsonSchema, ToolName

logger = get_logger("corral.checking")

MAX_WEIGHT = 20_000
"""Maximum weight of one tool. ty takes 0.2 s for a union of that weight, and minutes for one of four times the
weight."""
_CHARS = 50
"""Number of characters of a string that weigh as much as a member."""
_MAX_NAMES = 200
_DEFINITIONS = ("$defs", "definitions")
_PARENTS = {(each,) for each in _DEFINITIONS}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def weight(tool: Tool) -> int:
    """Returns the weight of a tool's schemas."""
    return reachable_weight(tool.input_schema) + reachable_weight(tool.output_schema)


def affordable(tools: Mapping[ToolName, Tool]) -> Mapping[ToolName, ToolShape]:
    """Returns the tools. Those that are too heavy accept and return anything."""
    shapes: dict[ToolName, ToolShape] = {}
    for name, tool in tools.items():
        shapes[name] = tool
        if weight(tool) > MAX_WEIGHT:
            logger.warning("programs are not checked against the schemas of tool %r, which are too large", str(name))
            shapes[name] = outline(tool)
    return shapes


def reachable_weight(schema: JsonSchema | None) -> int:
    """Returns the number of members, items and strings in a schema, counting only the definitions that it refers to.

    Stops counting at the maximum.
    """
    root = mapping(schema)
    definitions = {(key, name): part for key in _DEFINITIONS for name, part in mapping(root.get(key)).items()}
    waiting: list[object] = [schema]
    total = 0
    while waiting and total <= MAX_WEIGHT:
        each = waiting.pop()
        total += _own_weight(each)
        if isinstance(each, dict):
            for key, member in cast("dict[str, object]", each).items():
                if key in _REFERENCES and isinstance(member, str):
                    waiting += _take_definitions(definitions, unquote(member))
                elif each is not schema or key not in _DEFINITIONS or not isinstance(member, dict):
                    waiting.append(member)
        elif isinstance(each, list):
            waiting += cast("list[object]", each)
    return total


def _take_definitions(definitions: dict[Pointer, object], reference: str) -> list[object]:
    """Removes and returns the definition that a reference leads into; all of them unless it is a pointer into one."""
    place = pointer_tokens(reference)[:2]
    if reference == "#" or (reference.startswith("#/") and place not in _PARENTS):
        return [definitions.pop(place, None)]
    parts = [*definitions.values()]
    definitions.clear()
    return parts


def _own_weight(part: object) -> int:
    """Returns the weight of a part of a schema without its contents."""
    match part:
        case dict():
            return sum(1 + len(key) // _CHARS for key in cast("dict[str, object]", part))
        case list():
            return len(cast("list[object]", part))
        case str():
            return len(part) // _CHARS
        case _:
            return 0


def outline(tool: ToolShape) -> ToolOutline:
    """Returns the tool with its parameter names, but without types."""
    return ToolOutline.of(tool)._replace(input_schema=_outline_schema(tool.input_schema), output_schema=None)


def _outline_schema(schema: JsonSchema | None) -> JsonSchema | None:
    """Keeps an object's member names, without their types; None if there are none or too many."""
    members: object = None if schema is None else schema.get("properties")
    if not isinstance(members, dict):
        return None
    names = list(cast("dict[str, Any]", members))
    if len(names) > _MAX_NAMES or any(len(name) > _CHARS for name in names):
        return None
    return {"type": "object", "properties": {name: {} for name in names}}

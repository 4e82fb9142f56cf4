"""Weights of schemas, and outlines of tools whose schemas are too large: for a language server to read beside every
program, or for the event loop to read for a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from corral.logs import get_logger
from corral.model.printing.signatures import ToolOutline, ToolShape
from corral.tools import Tool
from corral.tools.json_schema.keywords import mapping
from corral.types import JsonSchema, ToolName

logger = get_logger("corral.checking")

MAX_WEIGHT = 20_000
"""Of one tool. ty takes 0.2 s for a union of that weight, and minutes for one four times as large."""
_CHARS = 50
"""So many of a text weigh as much as a member."""
_MAX_NAMES = 200
_DEFINITIONS = ("$defs", "definitions")


def weight(tool: Tool) -> int:
    """Number of members, items and strings in a tool's schemas. Counting stops when it is too large."""
    waiting: list[Any] = [tool.input_schema, tool.output_schema]
    found = 0
    while waiting and found <= MAX_WEIGHT:
        each = waiting.pop()
        found += _own_weight(each)
        if isinstance(each, dict):
            waiting += cast("dict[str, Any]", each).values()
        elif isinstance(each, list):
            waiting += cast("list[Any]", each)
    return found


def affordable(tools: Mapping[ToolName, Tool]) -> Mapping[ToolName, ToolShape]:
    """The tools; those that weigh too much take and give anything."""
    found: dict[ToolName, ToolShape] = {}
    for name, tool in tools.items():
        found[name] = tool
        if weight(tool) > MAX_WEIGHT:
            logger.warning("programs are not checked against the schemas of tool %r, which are too large", str(name))
            found[name] = outline(tool)
    return found


def reachable_weight(schema: JsonSchema | None) -> int:
    """Number of members, items and strings in a schema, of its definitions only those that it mentions.

    Counting stops when it is too large.
    """
    definitions: dict[str, object] = {}
    waiting: list[object] = [schema]
    found = 0
    while waiting and found <= MAX_WEIGHT:
        each = waiting.pop()
        found += _own_weight(each)
        if isinstance(each, dict):
            for key, member in cast("dict[str, object]", each).items():
                if each is schema and key in _DEFINITIONS:
                    definitions.update({f"#/{key}/{name}": part for name, part in mapping(member).items()})
                elif key == "$ref" and isinstance(member, str):
                    waiting.append(definitions.pop(member, None))
                else:
                    waiting.append(member)
        elif isinstance(each, list):
            waiting += cast("list[object]", each)
    return found


def _own_weight(part: object) -> int:
    """Weight of a part of a schema without what is in it."""
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
    """The tool with the names of its parameters, which take anything, and a result that may be anything."""
    given = _outlined(tool.input_schema)
    return ToolOutline(tool.description, given, None, tool.needs_approval, tool.stream, tool.rate_limit)


def _outlined(schema: JsonSchema | None) -> JsonSchema | None:
    """The names of an object's members, of which anything may be a value; None if there are none, or too many."""
    members: object = None if schema is None else schema.get("properties")
    if not isinstance(members, dict):
        return None
    names = list(cast("dict[str, Any]", members))
    if len(names) > _MAX_NAMES or any(len(name) > _CHARS for name in names):
        return None
    return {"type": "object", "properties": {name: {} for name in names}}

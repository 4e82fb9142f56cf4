"""Tools that programs call, and the registry that holds them."""

from __future__ import annotations

from corral.tools.registry import ToolRegistry
from corral.tools.tool import Approval, ParsedInput, Tool, as_tool, define_tool, tool
from corral.tools.tool_call import ToolCall, traced_elsewhere
from corral.tools.tool_sources import Offer, ToolSource
from corral.types import ToolName

__all__ = [
    "Approval",
    "Offer",
    "ParsedInput",
    "Tool",
    "ToolCall",
    "ToolName",
    "ToolRegistry",
    "ToolSource",
    "as_tool",
    "define_tool",
    "tool",
    "traced_elsewhere",
]

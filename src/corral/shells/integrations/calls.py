"""Direct calls of the tools over a shell, for frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral import ExecutionContext, Tool, ToolCall
from corral.shells import Shell, shell_tools


def tools_over(shell: Shell | None) -> list[tuple[Tool[..., Any], dict[str, Any]]]:
    """Returns the tools of `shell_tools`, each with the schema of its arguments."""
    return [(each, dict(each.input_schema or {"type": "object"})) for each in shell_tools(shell)]


async def answer(tool: Tool[..., Any], arguments: Mapping[str, object]) -> object:
    """Checks the arguments, calls the tool, and returns its value as JSON.

    Raises:
        ToolError: the arguments are invalid, or the tool raised it.
        FileError: an operation on the shell's files failed.
    """
    parsed = await tool.parse_input({**arguments})
    value = await tool.execute(parsed, ToolCall(ExecutionContext(), tool=tool.name))
    return await tool.dump_output(value)

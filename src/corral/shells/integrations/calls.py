"""Calls of the tools over a shell by a framework that knows nothing of programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral import ExecutionContext, Tool, ToolCall
from corral.shells import Shell, shell_tools


def tools_over(shell: Shell | None) -> list[tuple[Tool[..., Any], dict[str, Any]]]:
    """The tools of `shell_tools`, each with the schema of its arguments."""
    return [(each, dict(each.input_schema or {"type": "object"})) for each in shell_tools(shell)]


async def answer(tool: Tool[..., Any], arguments: Mapping[str, object]) -> object:
    """Checks the arguments, calls the tool, and returns its value as JSON has it.

    Raises:
        ToolError: the arguments are wrong, or the tool says why it failed.
        FileError: the files of the shell did.
    """
    parsed = await tool.parse_input({**arguments})
    value = await tool.execute(parsed, ToolCall(ExecutionContext(), tool=tool.name))
    return await tool.dump_output(value)

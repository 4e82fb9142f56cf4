"""Tools over a shell for agents of pydantic-ai. Needs the extra `pydantic-ai`."""

from __future__ import annotations

from typing import Any

from corral import Tool
from corral.errors import CorralError, requires_extra
from corral.shells import Shell
from corral.shells.integrations.calls import answer, tools_over

with requires_extra("corral.shells.integrations.pydantic_ai", "pydantic-ai"):
    from pydantic_ai import ModelRetry
    from pydantic_ai.tools import Tool as AgentTool
    from pydantic_ai.toolsets import FunctionToolset

__all__ = ["shell_toolset"]


def shell_toolset(shell: Shell | None = None) -> FunctionToolset[Any]:
    """Makes the toolset of `shell_tools` for `Agent(toolsets=...)`. It uses `shell` or, without it, the current shell
    of each call."""
    return FunctionToolset([_made(tool, schema) for tool, schema in tools_over(shell)], max_retries=5)


def _made(tool: Tool[..., Any], schema: dict[str, Any]) -> AgentTool[Any]:
    async def run(**arguments: Any) -> object:
        try:
            return await answer(tool, arguments)
        except CorralError as error:
            raise ModelRetry(str(error)) from error

    return AgentTool.from_schema(run, tool.name, tool.description, schema)

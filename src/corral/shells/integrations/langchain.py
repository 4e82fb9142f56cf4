"""Tools over a shell for agents of LangChain. Needs the extra `langchain`."""

from __future__ import annotations

from typing import Any

from corral import Tool
from corral.errors import CorralError, requires_extra
from corral.shells import Shell
from corral.shells.integrations.calls import answer, tools_over

with requires_extra("corral.shells.integrations.langchain", "langchain"):
    from langchain_core.tools import BaseTool, StructuredTool, ToolException

__all__ = ["agent_tools"]


def agent_tools(shell: Shell | None = None) -> list[BaseTool]:
    """Makes the tools of `shell_tools` for `create_agent(tools=...)`. They use `shell` or, without it, the current
    shell of each call."""
    return [_made(tool, schema) for tool, schema in tools_over(shell)]


def _made(tool: Tool[..., Any], schema: dict[str, Any]) -> BaseTool:
    async def run(**arguments: Any) -> object:
        try:
            return await answer(tool, arguments)
        except CorralError as error:
            raise ToolException(str(error)) from error

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=schema, coroutine=run, handle_tool_error=True
    )

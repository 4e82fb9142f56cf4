"""The source on other event loops than asyncio's."""

from __future__ import annotations

import anyio
import pytest
from mcp.server import MCPServer

from corral.errors import ToolError
from corral.sources.mcp import McpServer
from corral.sources.mcp import server as connection
from tests.sources.mcp.opening import opened, rogue, unanswered
from tests.until import until


def test_it_runs_on_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.02)
    here = MCPServer("here")
    here.add_tool(lambda: 1, name="one")

    async def main() -> None:
        async with (
            opened(rogue(max_message_bytes=100_000)) as process,
            opened(McpServer("here", server=here)) as inside,
        ):
            assert await inside.call("one") == "1"
            assert await process.call("change") == "changed"
            await until(lambda: "added" in process.names)
            async with unanswered(process, "silent"):
                pass
            with pytest.raises(ToolError, match="its answer is larger"):
                await process.call("huge", bytes=1_000_000)
            with pytest.raises(ToolError, match="its process ended with exit code 3"):
                await process.call("exit")
            assert await process.call("echo", a=1) == {"a": 1}
        async with opened(McpServer("gone", url="http://127.0.0.1:9/mcp")) as gone:
            assert gone.problem == "the MCP server 'gone' is not connected: it does not accept connections"

    anyio.run(main, backend="trio")

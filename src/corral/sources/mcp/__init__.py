"""Tools of MCP servers. Needs the extra `mcp`."""

from __future__ import annotations

from corral.errors import requires_extra

with requires_extra("corral.sources.mcp", "mcp"):
    from corral.sources.mcp.config import mcp_servers, tools_of
    from corral.sources.mcp.server import McpServer

__all__ = ["McpServer", "mcp_servers", "tools_of"]

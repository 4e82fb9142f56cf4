"""Tools of MCP servers. Needs the extra `mcp`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.sources.mcp.config import mcp_servers
    from corral.sources.mcp.conversion import tools_of
    from corral.sources.mcp.server import McpServer
except ModuleNotFoundError as error:
    raise MissingExtra(f"corral.sources.mcp needs the module {error.name}: pip install 'corral[mcp]'") from error

__all__ = ["McpServer", "mcp_servers", "tools_of"]

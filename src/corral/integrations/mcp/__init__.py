"""Serves a Corral as an MCP server. Requires the extra `mcp`."""

from __future__ import annotations

from corral.errors import requires_extra

with requires_extra("corral.integrations.mcp", "mcp"):
    from corral.integrations.mcp.elicitation import ask_client
    from corral.integrations.mcp.server import McpRequest, mcp_server, session_of

__all__ = ["McpRequest", "ask_client", "mcp_server", "session_of"]

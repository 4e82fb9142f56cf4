"""Serves a Corral as an MCP server. Needs the extra `mcp`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.integrations.mcp.elicitation import ask_client
    from corral.integrations.mcp.server import McpRequest, mcp_server
    from corral.integrations.mcp.sessions import session_of
except ModuleNotFoundError as error:
    raise MissingExtra(f"corral.integrations.mcp needs the module {error.name}: pip install 'corral[mcp]'") from error

__all__ = ["McpRequest", "ask_client", "mcp_server", "session_of"]

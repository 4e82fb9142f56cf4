"""Where tools come from that live elsewhere: MCP servers, OpenAPI documents, and what other libraries call a tool.

One module for each, which needs an extra of its own.
"""

from __future__ import annotations

__all__: list[str] = []

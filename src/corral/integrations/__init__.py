"""Corral in the agent frameworks that people use: one module for each, which needs the framework's extra.

Each takes one Corral, or several by name, and gives what the framework's agents take: instructions and tools, together
with the caller's own. `corral.integrations.mcp` serves a Corral to any client of MCP.
"""

"""Corral in agent frameworks: one module for each, which needs the framework's extra.

Each takes one Corral, or several by name, and returns instructions and tools in the framework's form, together with the
caller's own. `corral.integrations.mcp` serves a Corral to any MCP client.
"""

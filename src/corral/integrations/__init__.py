"""Corral in agent frameworks, in a module for each, which needs the framework's extra.

Each takes one Corral, or several by name, and returns instructions and tools in the framework's form, together with
your own. `corral.integrations.mcp` serves a Corral to any MCP client.
"""

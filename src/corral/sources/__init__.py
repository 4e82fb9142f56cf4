"""Tools that live elsewhere: MCP servers, OpenAPI documents, and tools of other libraries.

One module for each, which needs an extra of its own.
"""

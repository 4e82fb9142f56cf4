"""Tools from elsewhere: MCP servers, OpenAPI documents, and tools of other libraries.

Each module needs its own extra.
"""

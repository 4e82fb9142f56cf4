"""Protocols other than HTTP, a folder each: its bridge, its tool source, and the transports of its guests."""

"""Protocols other than HTTP, each with its bridge, its tool source and the transports of its guests."""

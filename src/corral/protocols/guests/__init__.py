"""Transports by which programs elsewhere call tools over the protocols. Their text runs there."""

"""Transports with which programs elsewhere call tools over the protocols. The text of these modules runs there."""

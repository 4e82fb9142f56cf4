"""Offers foreign tools, whose names can conflict with the host's own tools."""

from __future__ import annotations

from collections.abc import Sequence

from corral.errors import ToolDefinitionError
from corral.logs import get_logger
from corral.tools import Offer, Tool

_logger = get_logger("corral.tools")


def offer_usable(offer: Offer, tools: Sequence[Tool], namespace: str | None) -> None:
    """Offers tools. Without a namespace, leaves out tools that conflict with the host's own, with a warning.

    Raises:
        ToolDefinitionError: the tools cannot have this namespace.
    """
    if namespace is None:
        _added(offer, (), tools)
    else:
        offer(tools)


def _added(offer: Offer, usable: Sequence[Tool], tools: Sequence[Tool]) -> Sequence[Tool]:
    """Offers `usable`, and those of `tools` that do not conflict, which bisection finds. Returns the offered tools."""
    both = (*usable, *tools)
    try:
        offer(both)
    except ToolDefinitionError as error:
        if len(tools) == 1:
            _logger.warning("tool %r is left out; give a namespace: %s", tools[0].name, error)
            return usable
        half = len(tools) // 2
        return _added(offer, _added(offer, usable, tools[:half]), tools[half:])
    return both

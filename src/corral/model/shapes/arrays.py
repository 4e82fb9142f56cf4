"""Layouts of arrays whose types spell out their items one by one."""

from __future__ import annotations

from typing import NamedTuple

from corral.model.shapes.shape import NEVER, UNKNOWN, Array, Shape

_MAX_SPELT_ITEMS = 4
"""Maximum number of items beyond the prefix that are spelt out."""


class _Layout(NamedTuple):
    spelt: tuple[Shape, ...]
    """Items that are spelt out; empty for a plain list."""
    required: int
    """Number of items that are always present."""
    rest: Shape | None
    """Shape of further items; None if there cannot be any."""


def layout(shape: Array) -> _Layout | None:
    """Returns the layout of the array's type; None if no array can match."""
    rest = UNKNOWN if shape.rest is None else shape.rest
    known, least = len(shape.prefix), shape.min_items
    ends = [end for end in (shape.max_items, known if rest == NEVER else None) if end is not None]
    most = min(ends, default=None)
    if most is not None and least > most:
        return None
    if not known and most != 0 and not (most is not None and least == most <= _MAX_SPELT_ITEMS):
        return _Layout((), 0, rest)
    spelt = _spelt_items(known, least, most)
    items = (*shape.prefix, *(rest for _ in range(known, spelt)))[:spelt]
    return _Layout(items, min(least, spelt), rest if most is None or most > spelt else None)


def _spelt_items(known: int, least: int, most: int | None) -> int:
    """Returns the number of items to spell out: more than the prefix if a few more make the length exact."""
    for target in (most, least):
        if target is not None and target - known <= _MAX_SPELT_ITEMS:
            return target if target == most else max(known, target)
    return known

"""Items of an array that a type spells out one by one."""

from __future__ import annotations

from typing import NamedTuple

from corral.model.shapes.shape import NEVER, UNKNOWN, Array, Shape

_MAX_SPELT_ITEMS = 4
"""Maximum number of items beyond the prefix that are each spelt out."""


class Layout(NamedTuple):
    spelt: tuple[Shape, ...]
    """Nothing is spelt out of a mere list."""
    required: int
    """The number of items that are always present."""
    rest: Shape | None
    """The shape of further items; None if there are none."""


def layout(shape: Array) -> Layout | None:
    """The layout of the array's type; None if there is no such array."""
    rest = UNKNOWN if shape.rest is None else shape.rest
    known, least = len(shape.prefix), shape.min_items
    ends = [end for end in (shape.max_items, known if rest == NEVER else None) if end is not None]
    most = min(ends, default=None)
    if most is not None and least > most:
        return None
    if not known and most != 0 and not (most is not None and least == most <= _MAX_SPELT_ITEMS):
        return Layout((), 0, rest)
    spelt = _spelt_items(known, least, most)
    items = (*shape.prefix, *(rest for _ in range(known, spelt)))[:spelt]
    return Layout(items, min(least, spelt), rest if most is None or most > spelt else None)


def _spelt_items(known: int, least: int, most: int | None) -> int:
    """The number of items printed one by one: more than the known ones if that makes the length exact, cheaply."""
    for wanted in (most, least):
        if wanted is not None and wanted - known <= _MAX_SPELT_ITEMS:
            return wanted if wanted == most else max(known, wanted)
    return known

"""Lists cut to what a reader needs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["first_few"]


def first_few(items: Sequence[str], most: int) -> list[str]:
    """The first `most` items, and after them "and n more" if there are others."""
    left = len(items) - most
    return [*items[:most], f"and {left} more"] if left > 0 else list(items)

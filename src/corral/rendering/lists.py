"""Lists cut to what a reader needs."""

from __future__ import annotations

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int) -> list[str]:
    """The first `most` items, and after them "and n more" if there are others."""
    left = len(items) - most
    return [*items[:most], f"and {left} more"] if left > 0 else list(items)


def either(words: Sequence[str]) -> str:
    """The words as a choice: "a, b or c"; an empty string if there are none."""
    return _joined(words, "or")


def both(words: Sequence[str]) -> str:
    """The words together: "a, b and c"; an empty string if there are none."""
    return _joined(words, "and")


def _joined(words: Sequence[str], word: str) -> str:
    *others, last = words or [""]
    return f"{', '.join(others)} {word} {last}" if others else last

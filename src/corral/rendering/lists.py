"""Formats short lists for readers."""

from __future__ import annotations

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int) -> list[str]:
    """Returns the first `most` items, followed by "and n more" if there are others."""
    rest = len(items) - most
    return [*items[:most], f"and {rest} more"] if rest > 0 else list(items)


def either(words: Sequence[str]) -> str:
    """Joins words as a choice: "a, b or c"; an empty string without words."""
    return _joined(words, "or")


def both(words: Sequence[str]) -> str:
    """Joins words: "a, b and c"; an empty string without words."""
    return _joined(words, "and")


def _joined(words: Sequence[str], word: str) -> str:
    *others, last = words or [""]
    return f"{', '.join(others)} {word} {last}" if others else last

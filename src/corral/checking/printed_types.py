"""Parses types as compilers print them, and finds out when two of them have no value in common."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

_MAX_PARTS = 200
"""Maximum number of parts. The last one holds the remainder."""


class PrintedKind(NamedTuple):
    """Kind of values, such as `string`. `literal` is the value of a literal type, or an array's element type."""

    name: str
    literal: str | None = None


def split_outside(text: str, separator: str, *, brackets: tuple[str, str], quotes: str) -> list[str]:
    """Splits a text at separators outside brackets and quotes."""
    opening, closing = brackets
    parts, depth, start, quote, at = list[str](), 0, 0, "", 0
    while at < len(text) and len(parts) < _MAX_PARTS:
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in quotes:
            quote = char
        elif char in opening:
            depth += 1
        elif char in closing and not (char == ">" and text[at - 1] == "="):
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    parts.append(text[start:].strip())
    return [each for each in parts if each]


def are_disjoint(
    source: Collection[PrintedKind],
    target: Collection[PrintedKind],
    may_be: Callable[[PrintedKind, PrintedKind], bool],
) -> bool:
    """True if no value of `source` belongs to `target`. For string literals, one that does not is enough."""
    fitting = [any(may_be(one, other) for other in target) for one in source]
    if all(each.literal is not None and each.name == "string" for each in source):
        return not all(fitting)
    return not any(fitting)


def is_text_for(source: Collection[PrintedKind], target: Collection[PrintedKind], kinds: frozenset[str]) -> bool:
    """True if the source is a string, and the target includes one of `kinds`, which have values like that string."""
    return {each.name for each in source} == {"string"} and not kinds.isdisjoint(each.name for each in target)

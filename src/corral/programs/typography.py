"""Replaces typographic characters with ASCII: quotes, dashes, full-width brackets."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_SIGNS = {
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    **dict.fromkeys("\u2028\u2029\u0085", " "),
    **dict.fromkeys("‐‑‒–—−", "-"),
    "×": "*",
    "÷": "/",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "…": "...",
}
_PLAIN_CATEGORIES = ("Z", "P", "S")


def typographic(untouched: str) -> re.Pattern[str]:
    """Returns a pattern for typographic characters outside strings and comments, which `untouched` matches."""
    return re.compile(
        rf"(?P<untouched>{untouched})"
        '|(?P<double>[“”„](?:(?P<in_double>[^“”„\n]*)[“”]|(?P<half_open>[^“”„"\n]*)"))'
        "|(?P<single>[‘’‚](?P<in_single>[^‘\n]*?)(?:[’'](?!\\w)))"
        "|(?P<sign>[^\\x00-\\x7f])",
        re.DOTALL,
    )


def plain_characters(source: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
    """Yields the ranges of a text to replace, in order, with their replacements."""
    for match in pattern.finditer(source):
        if match["untouched"] is None:
            for start, end, new in _plain(match):
                yield match.start() + start, match.start() + end, new


def _plain(match: re.Match[str]) -> list[tuple[int, int, str]]:
    if match["sign"] is not None:
        sign = match["sign"]
        if sign in _SIGNS:
            return [(0, 1, _SIGNS[sign])]
        plain = unicodedata.normalize("NFKC", sign)
        return [(0, 1, plain)] if plain.isascii() and unicodedata.category(sign)[0] in _PLAIN_CATEGORIES else []
    content = next(each for each in (match["in_double"], match["half_open"], match["in_single"]) if each is not None)
    fitting = [quote for quote in ('"' if match["double"] is not None else "'", '"', "'") if quote not in content]
    last = len(match[0]) - 1
    return [(0, 1, fitting[0]), (last, last + 1, fitting[0])] if fitting else []

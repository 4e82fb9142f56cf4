"""Abbreviates sentences with which many descriptions begin."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from corral.model.shapes.descriptions import text_lines
from corral.model.shapes.shape import Doc
from corral.types import ToolName

_SENTENCE_END = re.compile(r"[.:!?]\s+")
_MAX_SENTENCES = 3
_LEAST_CHARACTERS = 40
_LEAST_USES = 3


class _AbbreviatedDocs(NamedTuple):
    lines: list[str]
    """Meaning of each sign."""
    docs: Mapping[ToolName, Doc]
    """Documentation of the tools, with a sign in place of each shared beginning."""


def abbreviate(docs: Mapping[ToolName, Doc]) -> _AbbreviatedDocs:
    """Replaces sentences with which at least three descriptions begin by a sign."""
    counts = Counter(beginning for doc in docs.values() for beginning in _beginnings(doc.text))
    signs: dict[str, str] = {}
    shorter: dict[ToolName, Doc] = {}
    for name, doc in docs.items():
        common = [each for each in _beginnings(doc.text) if counts[each] >= _LEAST_USES]
        best = max(common, key=lambda each: (counts[each] - 1) * len(each), default="")
        if best:
            sign = signs.setdefault(best, f"[{len(signs) + 1}]")
            doc = replace(doc, text=f"{sign} {doc.text[len(best) :]}")
        shorter[name] = doc
    return _AbbreviatedDocs([f"{sign} is: {' '.join(text_lines(text))}" for text, sign in signs.items()], shorter)


def _beginnings(text: str) -> Iterator[str]:
    """Yields the first sentence, the first two and so on, if they are long, but never the whole text."""
    for end, _ in zip(_SENTENCE_END.finditer(text), range(_MAX_SENTENCES), strict=False):
        if end.end() >= _LEAST_CHARACTERS and end.end() < len(text):
            yield text[: end.end()]

"""Finding tools by words, and the tools that a misspelt name may have meant."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from corral.types import ToolName

__all__ = ["SearchIndex"]

_MAX_QUERY_CHARACTERS = 200
_NEAR_CANDIDATES = 25
_MAX_NEAR = 3

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def _words(text: str) -> list[str]:
    """`listOpen_issues2` → list, open, issues, 2."""
    return [word.lower() for word in _WORD.findall(text)]


def _pairs(text: str) -> frozenset[str]:
    text = text.lower()
    return frozenset(text[start : start + 2] for start in range(len(text) - 1)) or frozenset(text)


class _Entry(NamedTuple):
    """A tool as the search sees it: words between spaces, with one before the first and after the last."""

    path: str
    name: str
    namespace: str
    description: str
    pairs: frozenset[str]


class SearchIndex:
    """An index over names and descriptions; answers are in a stable order."""

    def __init__(self, tools: Iterable[tuple[ToolName, str]]) -> None:
        self._entries = [
            _Entry(
                path=str(name),
                name=f" {' '.join(_words(name.name))} ",
                namespace=f" {' '.join(_words(name.namespace or ''))} ",
                description=f" {' '.join(_words(description))} ",
                pairs=_pairs(str(name)),
            )
            for name, description in tools
        ]

    def search(self, query: str, limit: int) -> list[str]:
        """Paths of the tools with most of the query's words, best first; of all tools for a query without words."""
        words = list(dict.fromkeys(_words(query[:_MAX_QUERY_CHARACTERS])))
        if limit <= 0:
            return []
        if not words:
            return [entry.path for entry in self._entries[:limit]]
        ranked = ((_rank(entry, words), entry) for entry in self._entries)
        found = [(rank, entry) for rank, entry in ranked if rank[0]]
        return [entry.path for _, entry in heapq.nlargest(limit, found, key=lambda each: each[0])]

    def near(self, path: str) -> list[str]:
        """Up to three paths that look like `path`, nearest first: the same name in a namespace, then similar ones."""
        path = path[:_MAX_QUERY_CHARACTERS]
        last = path.rpartition(".")[2]
        same = [entry.path for entry in self._entries if entry.path.rpartition(".")[2] == last]
        pairs = _pairs(path)
        candidates = heapq.nlargest(
            _NEAR_CANDIDATES, self._entries, key=lambda entry: len(pairs & entry.pairs) / len(pairs | entry.pairs)
        )
        similar = difflib.get_close_matches(path, [entry.path for entry in candidates], n=_MAX_NEAR)
        return list(dict.fromkeys([*same, *similar]))[:_MAX_NEAR]


def _rank(entry: _Entry, words: Sequence[str]) -> tuple[int, int]:
    """How many of the words occur, and how prominently."""
    weights = [_weight(entry, word) for word in words]
    exact = 10 if entry.name.split() == list(words) else 0
    return sum(1 for weight in weights if weight), sum(weights) + exact


def _weight(entry: _Entry, word: str) -> int:
    whole, start = f" {word} ", f" {word}"
    if whole in entry.name:
        return 6
    if whole in entry.namespace:
        return 4
    if start in entry.name:
        return 3
    if whole in entry.description:
        return 2
    return 1 if start in entry.description else 0

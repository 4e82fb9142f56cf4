"""Finding tools by words, and the tools that a misspelt name may have meant.

Words are weighed as in BM25: a rare word says more than a frequent one, a second occurrence less than the first. The
words of a place, such as the name, share its weight: a tool all of whose words are asked for comes before one that has
them among ten others.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from corral.concurrency.cached_property import cached_property
from corral.rendering.suggestions import NearNames
from corral.tools.tool import Tool
from corral.tools.words import SYNONYMS, UNIMPORTANT, stem, words
from corral.types import JsonSchema, ToolName

_MAX_QUERY_CHARACTERS = 400
_MAX_QUERY_WORDS = 24
_MAX_DESCRIPTION_CHARACTERS = 2_000
_MAX_PARAMETERS = 50
_MAX_PARAMETER_CHARACTERS = 200

_MENTION = re.compile(
    r"[\s`'\"]*+(?:await\s++)?+(?:(?:tools|codemode)\.)?+([\w$]++(?:[./][\w$-]++)*+)(?:\(.*+)?+[\s`'\";]*+", re.DOTALL
)
"""A tool as programs mention it."""

_SATURATION = 1.2
"""k1 of BM25."""
_NAME, _NAMESPACE, _SUMMARY, _DETAIL, _PARAMETERS, _PARAMETER_DETAILS = 16.0, 1.0, 16.0, 3.0, 1.0, 1.0
"""Weights of the words of a place together; the summary is the first sentence of the description."""
_SYNONYM, _BEGINNING = 0.4, 0.6
"""Weights of synonyms, and of words that begin with the query's word: the longer, the less."""
_LEAST_BEGINNING = 3
_MAX_BEGINNINGS = 10

_MAX_NEAR = 3
_MAX_MEMBERS = 6
"""Members of a path that are joined to look for a name."""


class Entry:
    """Searchable words of a tool. Several indexes may share it, and its weights are then computed once."""

    def __init__(self, name: ToolName, tool: Tool) -> None:
        self.name = name
        self._tool = tool

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """The stems of all that is known of the tool, and what they count for."""
        return _weighed(self.name, self._tool.description, self._tool.input_schema)


class SearchIndex:
    """An index over names, descriptions and parameters; answers are in a stable order. Built when first needed."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self._paths = [str(entry.name) for entry in self._entries]

    def search(self, query: str, *, namespace: str | None, limit: int, offset: int) -> tuple[list[str], int]:
        """Paths from `offset` on, at most `limit`, of the tools that have words of the query, best first, and how many
        there are of those in all. Without words in the query these are all tools, in order.
        """
        limit, offset = max(limit, 0), max(offset, 0)
        query = query[:_MAX_QUERY_CHARACTERS]
        mentioned = _MENTION.fullmatch(query)
        query = query if mentioned is None else mentioned[1]
        asked = words(query)[:_MAX_QUERY_WORDS]
        tiers = self._named(query, asked)
        scores = self._postings.scores(asked) if asked else dict.fromkeys(range(len(self._entries)), 0.0)
        scores = {**dict.fromkeys(tiers, 0.0), **scores}  # a name may be made of words that nothing is found by
        if namespace is not None:
            scores = {each: score for each, score in scores.items() if self._entries[each].name.namespace == namespace}
        best = heapq.nsmallest(offset + limit, scores, key=lambda each: (tiers.get(each, 4), -scores[each], each))
        return [self._paths[each] for each in best[offset:]], len(scores)

    def _named(self, query: str, asked: list[str]) -> dict[int, int]:
        """Tools with this name, from 0, an exact match, to 3, without the namespace and in another
        spelling."""
        named = "".join(asked)
        spelled = self._by_spelling.get(named, ()) if named else ()
        names = self._by_name.get(named, ()) if named else ()
        exact = [each for each in names if self._entries[each].name.name == query]
        whole = [each for each in spelled if self._paths[each] == query]
        return dict.fromkeys(names, 3) | dict.fromkeys(spelled, 2) | dict.fromkeys(exact, 1) | dict.fromkeys(whole, 0)

    def near(self, path: str) -> list[str]:
        """Up to three paths that look like `path`, nearest first.

        A tool whose name the last members of the path spell is the only one: `github.issues_list_for_repo` of
        `github.rest.issues.listForRepo`. Otherwise the same name in a namespace comes before similar ones.
        """
        members = path[:_MAX_QUERY_CHARACTERS].split(".")[-_MAX_MEMBERS:]
        for start in range(len(members)):
            joined = "".join(words(" ".join(members[start:])))
            spelled = self._by_spelling.get(joined) or self._by_name.get(joined, ())
            if spelled and joined:
                inside = [each for each in spelled if self._entries[each].name.namespace == members[0]]
                return [self._paths[each] for each in inside or spelled][:_MAX_NEAR]
        same = self._by_last.get(members[-1], ())[:_MAX_NEAR]
        similar = self._near.of(path, _MAX_NEAR)
        return list(dict.fromkeys([*same, *similar]))[:_MAX_NEAR]

    @cached_property
    def _by_spelling(self) -> Mapping[str, list[int]]:
        return _grouped(self._paths)

    @cached_property
    def _by_name(self) -> Mapping[str, list[int]]:
        return _grouped(entry.name.name for entry in self._entries)

    @cached_property
    def _by_last(self) -> Mapping[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._paths:
            found[path.rpartition(".")[2]].append(path)
        return found

    @cached_property
    def _near(self) -> NearNames:
        return NearNames(self._paths)

    @cached_property
    def _postings(self) -> _Postings:
        return _Postings(entry.weights for entry in self._entries)


class _Postings:
    """Documents by the stems in them, with the weight of each stem there."""

    def __init__(self, documents: Iterable[Mapping[str, float]]) -> None:
        found: defaultdict[str, dict[int, float]] = defaultdict(dict)
        number = -1
        for number, weights in enumerate(documents):
            for word, weight in weights.items():
                found[word][number] = weight / (weight + _SATURATION)
        self._scores: Mapping[str, dict[int, float]] = dict(found)
        self._rarity = {word: math.log((number + 2) / (len(scores) + 0.5)) for word, scores in found.items()}
        self._sorted = sorted(found)

    def scores(self, asked: list[str]) -> dict[int, float]:
        """Scores of the documents that have any of the words. More matching words score more."""
        important = [word for word in asked if word not in UNIMPORTANT] or asked
        stems = list(dict.fromkeys(map(stem, important)))
        total: dict[int, float] = {}
        matched: dict[int, int] = {}
        for each in stems:
            for document, score in self._of(each).items():
                total[document] = total.get(document, 0.0) + score
                matched[document] = matched.get(document, 0) + 1
        return {document: score * matched[document] / len(stems) for document, score in total.items()}

    def _of(self, asked: str) -> dict[int, float]:
        """Scores for one word of the query, by itself or by its best synonym, which counts as no rarer."""
        found: dict[int, float] = {}
        for word, share in ((asked, 1.0), *self._meant(asked)):
            factor = share * min(self._rarity.get(word, 0.0), self._rarity.get(asked, math.inf))
            for document, score in self._scores.get(word, {}).items():
                if score * factor > found.get(document, 0.0):
                    found[document] = score * factor
        return found

    def _meant(self, asked: str) -> Iterator[tuple[str, float]]:
        for word in SYNONYMS.get(asked, ()):
            if word in self._scores:
                yield word, _SYNONYM
        if len(asked) >= _LEAST_BEGINNING:
            start = bisect_left(self._sorted, asked)
            for word in islice(self._sorted, start, start + _MAX_BEGINNINGS):
                if not word.startswith(asked):
                    break
                yield word, _BEGINNING * len(asked) / len(word)


def _weighed(name: ToolName, description: str, input_schema: JsonSchema | None) -> Mapping[str, float]:
    description = description[:_MAX_DESCRIPTION_CHARACTERS].strip()
    summary, _, detail = description.partition("\n")
    if ". " in summary:
        summary, _, rest = summary.partition(". ")
        detail = f"{rest}\n{detail}"
    parameters = list(_parameters(input_schema))
    places = (
        (name.name, _NAME),
        (name.namespace or "", _NAMESPACE),
        (summary, _SUMMARY),
        (detail, _DETAIL),
        (" ".join(parameter for parameter, _ in parameters), _PARAMETERS),
        (" ".join(text[:_MAX_PARAMETER_CHARACTERS] for _, text in parameters), _PARAMETER_DETAILS),
    )
    weights: defaultdict[str, float] = defaultdict(float)
    for text, weight in places:
        stems = [stem(word) for word in words(text) if word not in UNIMPORTANT]
        for each in stems:
            weights[each] += weight / len(stems)
    return weights


def _parameters(schema: JsonSchema | None) -> Iterator[tuple[str, str]]:
    """Names and descriptions of what the input consists of."""
    properties: Any = (schema or {}).get("properties")
    if isinstance(properties, dict):
        for name, said in islice(cast("dict[str, Any]", properties).items(), _MAX_PARAMETERS):
            description: Any = cast("dict[str, Any]", said).get("description") if isinstance(said, dict) else None
            yield name, description if isinstance(description, str) else ""


def _grouped(names: Iterable[str]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        found["".join(words(name))].append(number)
    return found

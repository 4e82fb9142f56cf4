"""Suggestions of known names for an unknown one."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise

_MAX_CHARACTERS = 40
"""Of a name that are compared: comparing two takes up to the product of their lengths."""
_MOST_NAMES = 20_000
_MOST_VISITED = 2_000
"""Names that share a pair of letters with one that is looked for; those with the rarest pairs come first."""
_MOST_COMPARED = 16


class NearNames:
    """Index of names by their pairs of letters. The cost of a look-up does not depend on the number of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(dict.fromkeys(names))[:_MOST_NAMES]
        self._by_pair: defaultdict[str, list[int]] = defaultdict(list)
        self._pairs: list[int] = []
        for number, name in enumerate(self._names):
            pairs = _pairs(name)
            self._pairs.append(len(pairs))
            for pair in pairs:
                self._by_pair[pair].append(number)

    def of(self, wanted: str, most: int = 1, *, likeness: float = 0.6) -> list[str]:
        """The nearest ones, at most `most`, best first; none if none is alike by the ratio of `difflib`."""
        pairs = _pairs(wanted)
        shared: Counter[int] = Counter()
        left = _MOST_VISITED
        for having in sorted((self._by_pair[pair] for pair in sorted(pairs) if pair in self._by_pair), key=len):
            shared.update(having[:left])
            left -= len(having)
            if left <= 0:
                break

        # Tuples are compared without a call for each, which counts where thousands share a pair.
        alike = [(number / (len(pairs) + self._pairs[each] - number), -each) for each, number in shared.items()]
        likely = [-each for _, each in nlargest(_MOST_COMPARED, alike)]
        compared = {self._names[each][:_MAX_CHARACTERS]: self._names[each] for each in likely}
        found = difflib.get_close_matches(wanted[:_MAX_CHARACTERS], compared, n=most, cutoff=likeness)
        return [compared[each] for each in found]


def _pairs(text: str) -> frozenset[str]:
    text = f"^{text[:_MAX_CHARACTERS].lower()}$"
    return frozenset(map("".join, pairwise(text)))

"""Suggests known names for an unknown one."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise

_MAX_CHARACTERS = 40
"""Maximum characters of a name to compare: the time to compare two names is the product of their lengths."""
_MOST_NAMES = 20_000
_MOST_VISITED = 2_000
"""Maximum number of names to compare: those that share the rarest letter pairs with the unknown one."""
_MOST_COMPARED = 16


class NearNames:
    """Index of names by their letter pairs. The time of a look-up does not depend on the number of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(dict.fromkeys(names))[:_MOST_NAMES]
        self._by_pair: defaultdict[str, list[int]] = defaultdict(list)
        self._pairs: list[int] = []
        for number, name in enumerate(self._names):
            pairs = _pairs(name)
            self._pairs.append(len(pairs))
            for pair in pairs:
                self._by_pair[pair].append(number)

    def of(self, name: str, most: int = 1, *, likeness: float = 0.6) -> list[str]:
        """Returns up to `most` similar names, best first, each with a `difflib` ratio of at least `likeness`."""
        pairs = _pairs(name)
        shared: Counter[int] = Counter()
        remaining = _MOST_VISITED
        for having in sorted((self._by_pair[pair] for pair in sorted(pairs) if pair in self._by_pair), key=len):
            shared.update(having[:remaining])
            remaining -= len(having)
            if remaining <= 0:
                break

        # Tuples are compared without a call per name, which matters if thousands share a pair.
        alike = [(number / (len(pairs) + self._pairs[each] - number), -each) for each, number in shared.items()]
        likely = [-each for _, each in nlargest(_MOST_COMPARED, alike)]
        compared = {self._names[each][:_MAX_CHARACTERS]: self._names[each] for each in likely}
        matches = difflib.get_close_matches(name[:_MAX_CHARACTERS], compared, n=most, cutoff=likeness)
        return [compared[each] for each in matches]


def _pairs(text: str) -> frozenset[str]:
    text = f"^{text[:_MAX_CHARACTERS].lower()}$"
    return frozenset(map("".join, pairwise(text)))

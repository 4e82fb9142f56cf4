"""Fills a budget: how much is shown of each of many tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from corral.model.printing.printers import Degree
from corral.types import ToolName

_MOST_MISSES = 4
"""Tools without room that are skipped to try those after them."""
_MOST_TRIES = 8
"""Most such tries: each prints and counts a whole text."""
_LEAST_SHARE = 64
"""Less than this part of the budget may stay unused."""
_USUAL_COSTS: Mapping[Degree, int] = {
    Degree.COUNTED: 1,
    Degree.NAMED: 6,
    Degree.SHORT: 40,
    Degree.SUMMED: 20,
    Degree.GIVEN: 100,
    Degree.FULL: 100,
}
"""Tokens that a tool takes more in such a degree than in the one before, about."""
_MOST_GUESSES = 5
"""After so many the rest is halved, however unlike each other the tools are."""

Degrees = dict[ToolName, Degree]


def fill_budget(
    names: Sequence[ToolName], likely: Sequence[ToolName], cost: Callable[[Mapping[ToolName, Degree]], int], budget: int
) -> Degrees:
    """As much of each tool as there is room for.

    Tools that are likely to be needed are shown in full first, one after the other. The others are raised together, by
    one degree after the other, in the order of `names`; what has no room is passed over a few times. With a larger
    budget, the first tool of which not the same is shown is shown in a higher degree.

    Args:
        names: all tools, the best first.
        likely: those of them that are likely to be needed.
        cost: how many tokens the tools take in such degrees.
        budget: how many there may be.
    """
    filling = _Filling(dict.fromkeys(names, Degree.COUNTED), cost, budget)
    for name in likely:
        for degree in reversed(Degree):
            if filling.raised([name], degree):
                break
    for degree in list(Degree)[1:]:
        waiting = [name for name in names if filling.degrees[name] == degree - 1]
        if filling.raised(waiting, degree) < len(waiting):
            break
    return filling.degrees


class _Filling:
    def __init__(self, degrees: Degrees, cost: Callable[[Mapping[ToolName, Degree]], int], budget: int) -> None:
        self.degrees = degrees
        self._cost = cost
        self._budget = budget
        self._spent = cost(degrees)

    def raised(self, waiting: Sequence[ToolName], degree: Degree) -> int:
        """Raises as many of the first ones as have room, then some that come after one that has none."""
        reached = self._raise_first(waiting, degree)
        return reached + (self._raise_others(waiting[reached + 1 :], degree) if degree > Degree.NAMED else 0)

    def _raise_others(self, waiting: Sequence[ToolName], degree: Degree) -> int:
        """The candidates do not depend on the budget, so that a larger one never shows less."""
        total, misses, step, grows = 0, 0, 1, True
        for _ in range(_MOST_TRIES):
            if not waiting or misses == _MOST_MISSES or self._budget - self._spent < self._budget // _LEAST_SHARE:
                break
            tried = self.degrees | dict.fromkeys(waiting[:step], degree)
            needed = self._cost(tried)
            if needed <= self._budget:
                self.degrees, self._spent = tried, needed
                total += len(waiting[:step])
                waiting = waiting[step:]
                step = step * 2 if grows else max(step // 2, 1)
            elif step > 1:
                step, grows = step // 2, False
            else:
                misses, waiting, grows = misses + 1, waiting[1:], True
        return total

    def _raise_first(self, waiting: Sequence[ToolName], degree: Degree) -> int:
        """The most of the first ones that have room are found in a few steps, as they cost about the same each."""
        low, spent = 0, self._spent
        high, over = len(waiting) + 1, 0
        probe = min(len(waiting), 1 + (self._budget - self._spent) // _USUAL_COSTS[degree])
        for step in count(1):
            if low == high - 1:
                break
            needed = self._cost(self.degrees | dict.fromkeys(waiting[:probe], degree))
            if needed <= self._budget:
                low, spent = probe, needed
            else:
                high, over = probe, needed
            probe = (low + high) // 2
            if step < _MOST_GUESSES:
                each = (over - spent) / (high - low) if over else (spent - self._spent) / low
                probe = low + int((self._budget - spent) / max(each, 0.1))
            probe = min(max(probe, low + 1), high - 1)
        self.degrees |= dict.fromkeys(waiting[:low], degree)
        self._spent = spent
        return low

"""Fair shares of what tenants have in common: places for programs, sessions and calls that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

__all__ = ["Shares"]


class Shares:
    """Places for tenants. One tenant alone may have all; whoever has less than a fair part finds a place all the same.

    A fair part is `most` divided by the tenants that hold places, the one that asks included, and at least one place.
    So tenants that came first lose nothing, and there are at most twice as many places as `most`.
    """

    def __init__(self, most: int, holders: Iterable[Hashable] = ()) -> None:
        self.most = most
        self._held: Counter[Hashable] = Counter(holders)

    def take(self, tenant: Hashable) -> bool:
        """Takes a place. False: the tenant has its part, and all places are taken."""
        if not self.has_room(tenant):
            return False
        self._held[tenant] += 1
        return True

    def has_room(self, tenant: Hashable) -> bool:
        """True if `take` would give the tenant a place."""
        total = self._held.total()
        if total < self.most:
            return True
        part = max(1, self.most // len(self._held.keys() | {tenant}))
        return self._held[tenant] < part and total < 2 * self.most

    def give_back(self, tenant: Hashable) -> None:
        self._held[tenant] -= 1
        if self._held[tenant] <= 0:
            del self._held[tenant]

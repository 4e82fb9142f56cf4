"""Guests that are ended while they start, which is when the processes that make a jail are not yet tied to each other."""

from __future__ import annotations

import os
import random
import time

from tests.security.modes import Tier
from tests.security.raw import raw_starter

__all__ = ["end_early"]

_GUESTS = 300
_LONGEST_SECONDS = 0.008
"""A jail is made, and the engine running in it, within this."""


def end_early(tier: Tier) -> None:
    """Starts guests and ends each of them a moment later; the moments are spread evenly over a start."""
    chance = random.Random(1)  # noqa: S311 - moments, not secrets
    with raw_starter(tier) as start:
        for _ in range(_GUESTS):
            guest = start()
            time.sleep(chance.uniform(0, _LONGEST_SECONDS))
            guest.end()
            for descriptor in (guest.stdin, guest.stdout, guest.stderr):
                os.close(descriptor)

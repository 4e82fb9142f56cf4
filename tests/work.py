"""Counts work, where a test says that something does not grow: time would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["calls_of"]


def calls_of(work: Callable[[], object]) -> int:
    """How many calls, of functions in Python and native ones, the work is made of."""
    count = 0

    def counted(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count

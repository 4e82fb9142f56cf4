"""Counts work, where a test says that something does not grow: time would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["CallCount", "calls_counted", "calls_of"]


class CallCount:
    """Number of calls of functions, those in Python and native ones."""

    calls = 0


@contextmanager
def calls_counted() -> Generator[CallCount]:
    """Counts the calls of this thread within the block, in an event loop those of other tasks included."""
    count = CallCount()

    def counted(_frame: FrameType, event: str, _of: object) -> None:
        count.calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        yield count
    finally:
        sys.setprofile(before)


def calls_of(work: Callable[[], object]) -> int:
    """How many calls, of functions in Python and native ones, the work is made of."""
    with calls_counted() as count:
        work()
    return count.calls

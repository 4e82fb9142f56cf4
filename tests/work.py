"""Counts work, where a test says that something does not grow: time would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from hypothesis import settings

__all__ = ["CallCount", "calls_counted", "calls_of", "draw_fewer", "examples"]

_GATE_SHARE = 5
_few: list[bool] = []


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


def draw_fewer() -> None:
    """Has properties draw a fifth of their examples from now on, as the gate does; `scripts/test --all` draws all."""
    settings.register_profile("gate", settings.get_profile("same"), max_examples=_examples_of_gate(100))
    settings.load_profile("gate")
    _few.append(True)


def examples(number: int) -> int:
    """Returns how many examples a property draws that has this many in `scripts/test --all`."""
    return _examples_of_gate(number) if _few else number


def _examples_of_gate(number: int) -> int:
    return -(-number // _GATE_SHARE)

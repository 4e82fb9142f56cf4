"""What passes in a test when the test says so: an execution's wall clock, and the grace of calls that it leaves behind."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest

from corral import Limits
from corral.concurrency.deadline import PausableDeadline
from corral.events import Event
from corral.guest import Frame
from corral.sandboxes.framed.session import GuestSession
from corral.sandboxes.monty.provider import MontyRun
from corral.types import Exit
from tests.until import LIMIT_SECONDS

__all__ = ["UNLIMITED", "WallClock", "at_once", "lasting_grace", "wall_clock"]

T = TypeVar("T")
UNLIMITED = Limits(wall_seconds=3600)


async def at_once(running: Awaitable[T]) -> T:
    """Awaits what does not wait for an hour, as what it runs does."""
    with anyio.fail_after(LIMIT_SECONDS):
        return await running


class WallClock:
    """The wall clocks of all executions of a test. `Limits.wall_seconds` has to be longer than any test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._clocks: list[PausableDeadline] = []

        def noted(seconds: float) -> PausableDeadline:
            self._clocks.append(clock := PausableDeadline(seconds))
            return clock

        monkeypatch.setattr("corral.running.execution.PausableDeadline", noted)

    def run_out(self, *_: Any) -> None:
        """Has the time be over of what runs now. To be called in the event loop that runs it."""
        for clock in self._clocks:
            clock._scope.deadline = -math.inf

    def run_out_at(self, *kinds: type[Event]) -> Callable[[Event], None]:
        """What has it run out at the first event of a kind, as `on_event`."""
        return lambda event: self.run_out() if isinstance(event, kinds) else None

    def run_out_in_grace(self) -> None:
        """Has it run out once the outcome of a program is known, and calls of it still run."""
        report = MontyRun.report_early_outcome

        take = GuestSession._take_outcome

        def take_and_run_out(session: GuestSession, frame: Frame) -> None:
            take(session, frame)
            self.run_out()

        def report_and_run_out(run: MontyRun, outcome: Exit) -> None:
            report(run, outcome)
            run._soon(self.run_out)

        self._patch.setattr(GuestSession, "_take_outcome", take_and_run_out)
        self._patch.setattr(MontyRun, "report_early_outcome", report_and_run_out)


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture
def lasting_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that a program leaves behind have all the time that they need."""
    for module in ("framed.session", "monty.program"):
        monkeypatch.setattr(f"corral.sandboxes.{module}.GRACE_SECONDS", 3600)

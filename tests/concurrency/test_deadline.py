"""A clock that stops during approvals, and cancels programs that run too long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral.concurrency import deadline
from corral.concurrency.deadline import PausableDeadline
from tests.concurrency.virtual_time import VIRTUAL_TIME

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=anyio.current_time))
    return VIRTUAL_TIME


async def test_time_that_is_over_cancels_what_runs() -> None:
    clock = PausableDeadline(0.5)
    with clock.running():
        await anyio.sleep_forever()
    assert (clock.expired, anyio.current_time()) == (True, 0.5)


async def test_no_time_passes_while_it_stands_however_often_it_was_made_to() -> None:
    clock = PausableDeadline(0.5)
    with clock.running():
        with clock.paused(), clock.paused():
            await anyio.sleep(3)
        assert not clock.expired
    assert not clock.expired


async def test_what_was_left_is_left_when_it_goes_on() -> None:
    clock = PausableDeadline(1)
    with clock.running():
        await anyio.sleep(0.25)
        with clock.paused():
            await anyio.sleep(2)
        await anyio.sleep_forever()
    assert (clock.expired, anyio.current_time()) == (True, 3)


async def test_the_last_of_several_that_stop_it_lets_it_go_on() -> None:
    clock = PausableDeadline(0.25)

    async def ask(seconds: float) -> None:
        with clock.paused():
            await anyio.sleep(seconds)

    with clock.running():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 0.125)
            tasks.start_soon(ask, 3)
        assert not clock.expired
        await anyio.sleep_forever()
    assert (clock.expired, anyio.current_time()) == (True, 3.25)


async def test_it_stands_for_so_long_in_all() -> None:
    clock = PausableDeadline(0.25, max_paused_seconds=1)
    with clock.running():
        while True:
            with clock.paused():
                await anyio.sleep(0.125)
    assert (clock.expired, anyio.current_time()) == (True, 1.25)


async def test_one_long_stand_is_cut_short_too() -> None:
    clock = PausableDeadline(0.25, max_paused_seconds=0.5)
    with clock.running(), clock.paused():
        await anyio.sleep_forever()
    assert (clock.expired, anyio.current_time()) == (True, 0.75)

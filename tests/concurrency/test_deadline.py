"""A clock that stands while somebody is asked, and cancels what runs too long."""

from __future__ import annotations

import anyio
import pytest

from corral.concurrency.deadline import PausableDeadline

pytestmark = pytest.mark.anyio


async def test_time_that_is_over_cancels_what_runs() -> None:
    clock = PausableDeadline(0.02)
    with anyio.fail_after(30), clock.running():
        await anyio.sleep_forever()
    assert clock.expired


async def test_no_time_passes_while_it_stands_however_often_it_was_made_to() -> None:
    clock = PausableDeadline(0.1)
    with clock.running():
        with clock.paused(), clock.paused():
            await anyio.sleep(0.3)
        assert not clock.expired
    assert not clock.expired


async def test_what_was_left_is_left_when_it_goes_on() -> None:
    clock = PausableDeadline(1.0)
    started = anyio.current_time()
    with anyio.fail_after(30), clock.running():
        await anyio.sleep(0.05)
        with clock.paused():
            await anyio.sleep(0.2)
        await anyio.sleep_forever()
    assert clock.expired
    assert anyio.current_time() - started >= 1.2


async def test_the_last_of_several_that_stop_it_lets_it_go_on() -> None:
    clock = PausableDeadline(0.25)

    async def ask(seconds: float) -> None:
        with clock.paused():
            await anyio.sleep(seconds)

    with clock.running():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 0.02)
            tasks.start_soon(ask, 0.3)
    assert not clock.expired


async def test_it_stands_for_so_long_in_all() -> None:
    clock = PausableDeadline(0.1, max_paused_seconds=0.2)
    started = anyio.current_time()
    with anyio.fail_after(30), clock.running():
        while True:
            with clock.paused():
                await anyio.sleep(0.05)
    assert clock.expired
    assert anyio.current_time() - started > 0.25


async def test_one_long_stand_is_cut_short_too() -> None:
    clock = PausableDeadline(0.05, max_paused_seconds=0.05)
    with anyio.fail_after(30), clock.running(), clock.paused():
        await anyio.sleep_forever()
    assert clock.expired

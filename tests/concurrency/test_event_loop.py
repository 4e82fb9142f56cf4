"""One-shots wake a task, and descriptors are watched, without the cost of a turn of the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from corral.concurrency.event_loop import OneShot, one_shot_factory, periodic, watch_readable
from tests.concurrency.virtual_time import VIRTUAL_TIME

pytestmark = pytest.mark.anyio


def new() -> OneShot[int]:
    make: Callable[[], OneShot[int]] = one_shot_factory()
    return make()


async def wait(one_shot: OneShot[int], seen: list[object]) -> None:
    try:
        seen.append(await one_shot.wait())
    except BaseException:
        seen.append("cancelled")
        raise


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_one_shot_that_is_set_outside_of_any_task_runs_its_task_within() -> None:
    seen: list[object] = []
    one_shot = new()
    task = asyncio.ensure_future(wait(one_shot, seen))
    await asyncio.sleep(0)

    def set_it() -> None:
        one_shot.set(1)
        seen.append("set")

    asyncio.get_running_loop().call_soon(set_it)
    await task
    assert seen == [1, "set"]


async def test_a_one_shot_that_a_task_sets_wakes_its_task_later() -> None:
    seen: list[object] = []
    one_shot = new()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, one_shot, seen)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        one_shot.set(1)
        seen.append("set")
    assert seen == ["set", 1]


async def test_a_one_shot_that_is_set_first_is_not_waited_for() -> None:
    seen: list[object] = []
    one_shot = new()
    one_shot.set(1)
    one_shot.set(2)
    await wait(one_shot, seen)
    assert seen == [1]


async def test_a_task_that_waits_for_a_one_shot_can_be_cancelled() -> None:
    seen: list[object] = []
    one_shot = new()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, one_shot, seen)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    one_shot.set(1)
    await anyio.lowlevel.checkpoint()
    assert seen == ["cancelled"]


async def test_a_descriptor_whose_task_has_closed_it_is_not_taken_from_the_next_one_that_has_its_number() -> None:
    """A task that waits for the end of a pipe resumes within the callback that reads it, and can open another."""
    ended = new()
    numbers: list[int] = []

    async def read_to_the_end() -> bytes:
        reading, writing = os.pipe()
        numbers.append(reading)
        os.close(writing)
        end = new()

        def notify() -> bool:
            data = os.read(reading, 10)
            end.set(1)
            return data != b""

        async with watch_readable(reading, notify):
            await end.wait()
        os.close(reading)
        return b""

    await read_to_the_end()
    reading, writing = os.pipe()
    numbers.append(reading)
    got: list[bytes] = []

    def notify() -> bool:
        got.append(os.read(reading, 10))
        ended.set(1)
        return True

    async with watch_readable(reading, notify):
        os.write(writing, b"x")
        await ended.wait()
    for descriptor in (reading, writing):
        os.close(descriptor)
    assert numbers[0] == numbers[1]
    assert got == [b"x"]


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME])
async def test_a_check_comes_first_after_the_given_delay() -> None:
    calls: list[float] = []
    async with periodic(lambda: calls.append(anyio.current_time()), first=0.5):
        assert calls == []
        await anyio.sleep(3)
    assert calls == [0.5]

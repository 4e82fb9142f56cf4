"""Things that several users need open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from threading import Event

import anyio
import pytest

from corral.concurrency.ref_counted import RefCounted
from tests.until import until

pytestmark = pytest.mark.anyio


class Door:
    def __init__(self) -> None:
        self.is_open = False
        self.openings = 0
        self.may_close = Event()
        self.may_close.set()
        self.closing = Event()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        self.is_open = True
        self.openings += 1
        yield
        self.closing.set()
        await anyio.to_thread.run_sync(self.may_close.wait)
        self.is_open = False


def doors() -> RefCounted[Door]:
    return RefCounted[Door](open_=Door.opened, is_open=lambda door: door.is_open)


async def test_the_last_user_closes_it() -> None:
    door, uses = Door(), doors()
    await uses.enter(door)
    await uses.enter(door)
    await uses.leave(door)
    assert door.is_open
    await uses.leave(door)
    assert not door.is_open


async def test_what_is_kept_is_the_next_users_or_closed_later() -> None:
    door, uses = Door(), doors()
    await uses.enter(door)
    await uses.leave(door, keep_seconds=3_600)
    await uses.enter(door)
    assert (door.is_open, door.openings) == (True, 1)
    await uses.leave(door, keep_seconds=0.001)
    await until(lambda: not door.is_open)


async def test_a_user_who_comes_while_it_is_being_closed_opens_it_again() -> None:
    door, uses = Door(), doors()
    door.may_close.clear()
    await uses.enter(door)
    await uses.leave(door, keep_seconds=0.001)
    await until(door.closing.is_set)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(uses.enter, door)
        await anyio.lowlevel.checkpoint()
        assert door.openings == 1
        door.may_close.set()
    assert (door.is_open, door.openings) == (True, 2)


class SlowDoor(Door):
    def __init__(self) -> None:
        super().__init__()
        self.opening, self.may_open = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        self.opening.set()
        await self.may_open.wait()
        async with super().opened():
            yield


async def test_a_user_cancelled_while_it_is_being_opened_keeps_nobody_out() -> None:
    door = SlowDoor()
    uses = RefCounted[SlowDoor](open_=SlowDoor.opened, is_open=lambda door: door.is_open)
    first = asyncio.create_task(uses.enter(door))
    await door.opening.wait()
    second = asyncio.create_task(uses.enter(door))
    await anyio.wait_all_tasks_blocked()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    door.may_open.set()
    await first
    with anyio.fail_after(10):
        await uses.enter(door)
    assert (door.is_open, door.openings) == (True, 1)


async def test_a_user_cancelled_while_it_is_being_closed_lets_nobody_in_early() -> None:
    door, uses = Door(), doors()
    door.may_close.clear()
    await uses.enter(door)
    await uses.leave(door, keep_seconds=0.001)
    await until(door.closing.is_set)
    first = asyncio.create_task(uses.enter(door))
    await anyio.wait_all_tasks_blocked()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(uses.enter, door)
        await anyio.lowlevel.checkpoint()
        assert door.openings == 1
        door.may_close.set()
    assert (door.is_open, door.openings) == (True, 2)

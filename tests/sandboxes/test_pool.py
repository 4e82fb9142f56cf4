"""The pool, with objects that take no time to make: which it keeps, for how long, and for whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest

from corral.sandboxes.pool import Pool

pytestmark = pytest.mark.anyio


class Thing:
    def __init__(self, key: str) -> None:
        self.key = key
        self.alive = True
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Factory:
    """Makes things, and waits before each while the gate is closed."""

    def __init__(self) -> None:
        self.made: list[Thing] = []
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.failure: Exception | None = None

    def __call__(self, key: str, in_advance: bool) -> Thing:
        self.waiting.set()
        assert self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        self.made.append(Thing(key))
        return self.made[-1]


@pytest.fixture
def factory() -> Factory:
    return Factory()


@pytest.fixture
async def pool(factory: Factory) -> AsyncIterator[Pool[str, Thing]]:
    pool = Pool(factory, size=2)
    await pool.warm("a")
    assert pool.full(10)
    yield pool
    pool.close()
    factory.gate.set()


async def test_what_is_taken_is_replaced_and_never_given_twice(pool: Pool[str, Thing], factory: Factory) -> None:
    first = await pool.take("a")
    assert pool.full(10)
    assert len(factory.made) == 3
    second, third = await pool.take("a"), await pool.take("a")
    assert {id(each) for each in factory.made} >= {id(first), id(second), id(third)}
    assert len({id(first), id(second), id(third)}) == 3
    assert pool.full(10)
    assert not any(each.closed for each in factory.made)


async def test_one_that_died_while_it_waited_is_not_given(pool: Pool[str, Thing], factory: Factory) -> None:
    first = await pool.take("a")
    assert pool.full(10)
    waiting = [each for each in factory.made if each is not first and not each.closed]
    for each in waiting:
        each.alive = False
    taken = await pool.take("a")
    assert taken.alive
    assert all(each.closed for each in waiting)


async def test_each_kind_has_its_own_and_the_least_asked_for_is_given_up(
    pool: Pool[str, Thing], factory: Factory
) -> None:
    for key in "abcd":
        assert (await pool.take(key)).key == key
        assert pool.full(10)
    assert pool.count() == 8
    assert (await pool.take("e")).key == "e"
    assert pool.full(10)
    assert pool.count() == 8
    assert {each.key for each in factory.made if each.closed} == {"a"}


async def test_closing_closes_what_is_ready_and_only_that(pool: Pool[str, Thing], factory: Factory) -> None:
    taken = await pool.take("a")
    assert pool.full(10)
    pool.close()
    pool.close()
    assert [each.closed for each in factory.made] == [each is not taken for each in factory.made]
    assert pool.count() == 0
    again = await pool.take("a")
    assert not again.closed
    assert pool.count() == 0, "nothing is kept that nobody will close"


async def test_what_is_made_too_late_for_who_asked_is_kept_for_the_next(
    pool: Pool[str, Thing], factory: Factory
) -> None:
    factory.waiting.clear()
    factory.gate.clear()
    asking = asyncio.ensure_future(pool.take("b"))
    await anyio.to_thread.run_sync(factory.waiting.wait, 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    factory.gate.set()
    assert await anyio.to_thread.run_sync(pool.full, 10)
    assert pool.count() == 4
    assert len([each for each in factory.made if each.key == "b" and not each.closed]) == 2


async def test_who_asks_hears_of_a_failure_and_the_pool_does_not_try_for_ever(
    pool: Pool[str, Thing], factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    factory.failure = ValueError("no engine")
    with pytest.raises(ValueError, match="no engine"):
        await pool.take("b")
    assert await anyio.to_thread.run_sync(pool.full, 10), "nothing more is wanted"
    assert pool.count() == 2
    assert caplog.text.count("could not be started in advance") == 1
    factory.failure = None
    await pool.take("b")
    assert await anyio.to_thread.run_sync(pool.full, 10)
    assert pool.count() == 4


async def test_several_threads_with_event_loops_of_their_own_share_it(pool: Pool[str, Thing], factory: Factory) -> None:
    taken: list[Thing] = []

    def one() -> None:
        taken.append(anyio.run(pool.take, "a"))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(anyio.to_thread.run_sync, one)
    assert len({id(each) for each in taken}) == 8


async def test_a_pool_of_none_keeps_none(factory: Factory) -> None:
    pool = Pool(factory, size=0)
    await pool.take("a")
    await pool.take("a")
    pool.close()
    assert len(factory.made) == 2
    assert pool.count() == 0

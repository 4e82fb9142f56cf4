"""What a hot path needs of an event loop: hearing of output without a task, and handing work to a task that waits.

anyio's own primitives cost several microseconds each, most of a call's. On asyncio, the loop's are used directly; any
other loop gets anyio's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import anyio

from corral.concurrency.threads import apart

__all__ = ["Hand", "SharedReading", "checking", "hand_maker", "in_thread", "readable"]

T = TypeVar("T")


class Hand(Protocol[T]):
    """Passes one value to one waiting task."""

    def give(self, value: T) -> None: ...
    async def take(self) -> T: ...


class _FutureHand(Generic[T]):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[T] = loop.create_future()

    def give(self, value: T) -> None:
        if not self._future.done():  # its task may have been cancelled
            self._future.set_result(value)

    async def take(self) -> T:
        return await self._future


class _EventHand(Generic[T]):
    def __init__(self) -> None:
        self._given = anyio.Event()
        self._values: list[T] = []

    def give(self, value: T) -> None:
        self._values.append(value)
        self._given.set()

    async def take(self) -> T:
        await self._given.wait()
        return self._values[0]


def _asyncio_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def hand_maker() -> Callable[[], Hand[T]]:
    """What makes hands for the event loop that runs this."""
    loop = _asyncio_loop()
    return _EventHand if loop is None else lambda: _FutureHand(loop)


@asynccontextmanager
async def readable(descriptor: int, notify: Callable[[], bool]) -> AsyncGenerator[None]:
    """Within the block, `notify` is called whenever the descriptor can be read, until it returns False.

    It must not raise.
    """
    loop = _asyncio_loop()
    if loop is None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_wait_and_notify, descriptor, notify)
            yield
            tasks.cancel_scope.cancel()
        return

    def call() -> None:
        if not notify():
            loop.remove_reader(descriptor)

    loop.add_reader(descriptor, call)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


async def _wait_and_notify(descriptor: int, notify: Callable[[], bool]) -> None:
    while True:
        await anyio.wait_readable(descriptor)
        if not notify():
            return


@asynccontextmanager
async def checking(check: Callable[[], float | None]) -> AsyncGenerator[None]:
    """Within the block, `check` is called now, and again after as many seconds as it says, until it says None."""
    loop = _asyncio_loop()
    if loop is None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_check, check)
            yield
            tasks.cancel_scope.cancel()
        return
    timer: asyncio.TimerHandle | None = None

    def call() -> None:
        nonlocal timer
        delay = check()
        timer = None if delay is None else loop.call_later(delay, call)

    call()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


async def _check(check: Callable[[], float | None]) -> None:
    while (delay := check()) is not None:
        await anyio.sleep(delay)


class SharedReading:
    """`readable` for a descriptor that several tasks of one event loop need read: as long as any of them is within."""

    def __init__(self, descriptor: int, notify: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._notify = notify
        self._within = 0
        self._ended = False
        self._turn = anyio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[None]:
        loop = _asyncio_loop()
        if loop is None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_in_turn)
                yield
                tasks.cancel_scope.cancel()
            return
        self._within += 1
        if self._within == 1 and not self._ended:
            loop.add_reader(self._descriptor, self._call, loop)
        try:
            yield
        finally:
            self._within -= 1
            if self._within == 0:
                loop.remove_reader(self._descriptor)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._notify():
            self._ended = True
            loop.remove_reader(self._descriptor)

    async def _read_in_turn(self) -> None:
        async with self._turn:
            await _wait_and_notify(self._descriptor, self._notify)


async def in_thread(function: Callable[[], T]) -> T:
    """Runs `function` in a thread, not given up when the task is cancelled.

    The thread is not one of those that sync tools share, or those could keep a guest from starting or ending.
    """
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await apart(function))
    return results[0]

"""Event loop primitives for hot paths: watching a descriptor without a task, and waking one waiting task.

anyio's own primitives cost several microseconds each, which is most of a call's cost. On asyncio these use the loop
directly; on any other loop they use anyio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import anyio

from corral.concurrency.task_groups import plain_task_group

__all__ = ["OneShot", "asyncio_loop", "one_shot_factory", "periodic", "watch_readable"]

T = TypeVar("T")


class OneShot(Protocol[T]):
    """Passes one value to one waiting task."""

    def set(self, value: T) -> None: ...
    async def wait(self) -> T: ...


class _FutureOneShot(Generic[T]):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[T] = loop.create_future()

    def set(self, value: T) -> None:
        if not self._future.done():  # its task may have been cancelled
            self._future.set_result(value)

    async def wait(self) -> T:
        return await self._future


class _EventOneShot(Generic[T]):
    def __init__(self) -> None:
        self._is_set = anyio.Event()
        self._values: list[T] = []

    def set(self, value: T) -> None:
        self._values.append(value)
        self._is_set.set()

    async def wait(self) -> T:
        await self._is_set.wait()
        return self._values[0]


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """The running event loop if it is asyncio's; None on any other, such as trio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def one_shot_factory() -> Callable[[], OneShot[T]]:
    """The constructor of one-shots for the running event loop."""
    loop = asyncio_loop()
    return _EventOneShot if loop is None else lambda: _FutureOneShot(loop)


@asynccontextmanager
async def watch_readable(descriptor: int, notify: Callable[[], bool]) -> AsyncGenerator[None]:
    """Calls `notify` within the block whenever the descriptor is readable, until it returns False.

    `notify` must not raise.
    """
    loop = asyncio_loop()
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
async def periodic(check: Callable[[], float | None]) -> AsyncGenerator[None]:
    """Calls `check` now and, within the block, again after the seconds that it returns, until it returns None."""
    loop = asyncio_loop()
    if loop is None:
        async with plain_task_group() as tasks:
            tasks.start_soon(_check, check)
            try:
                yield
            finally:
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

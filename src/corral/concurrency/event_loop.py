"""Event loop primitives for hot paths: watch a descriptor without a task, and wake one waiting task.

anyio's own primitives take several microseconds each, which would be most of the cost of a call. These use the loop
directly on asyncio, and anyio elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Generic, Protocol, TypeVar

import anyio
from typing_extensions import override

from corral.concurrency.task_groups import plain_task_group

T = TypeVar("T")


class OneShot(Protocol[T]):
    """Passes one value to one waiting task."""

    def set(self, value: T) -> None:
        """Resumes the task in the next turn of the event loop, or at once if no task runs now."""
        ...

    async def wait(self) -> T: ...


class _FutureOneShot(asyncio.Future[T]):
    """Future whose waiting task resumes inside `set`, without another turn of the event loop.

    A turn of the event loop, with its system call, takes an eighth of the host's time for a tool call.
    """

    _waiting: tuple[Callable[[asyncio.Future[T]], object], Context | None] | None = None

    @override
    def add_done_callback(
        self, fn: Callable[[asyncio.Future[T]], object], /, *, context: Context | None = None
    ) -> None:
        """Called by the task when it starts to wait."""
        if self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._waiting = fn, context

    def set(self, value: T) -> None:
        if self.done():  # its task may have been cancelled
            return
        self.set_result(value)
        if self._waiting is None:
            return
        (wake, context), self._waiting = self._waiting, None
        if context is None or asyncio.current_task(self.get_loop()) is not None:
            self.get_loop().call_soon(wake, self, context=context)
        else:
            context.run(wake, self)

    @override
    def cancel(self, msg: object = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self._waiting is not None:
            (wake, context), self._waiting = self._waiting, None
            self.get_loop().call_soon(wake, self, context=context)
        return cancelled

    async def wait(self) -> T:
        return await self


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
    """Returns the running event loop if it is asyncio's; None for other loops, such as trio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def one_shot_factory() -> Callable[[], OneShot[T]]:
    """Returns the class of one-shots for the running event loop."""
    loop = asyncio_loop()
    return _EventOneShot if loop is None else lambda: _FutureOneShot(loop=loop)


@asynccontextmanager
async def watch_readable(descriptor: int, notify: Callable[[], bool]) -> AsyncGenerator[None]:
    """During the block, calls `notify` whenever the descriptor is readable, until it returns False.

    `notify` must not raise.
    """
    loop = asyncio_loop()
    if loop is None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_wait_and_notify, descriptor, notify)
            yield
            tasks.cancel_scope.cancel()
        return

    watching = True

    def call() -> None:
        if not notify() and watching:  # `notify` may wake the task that leaves the block and closes the descriptor
            loop.remove_reader(descriptor)

    loop.add_reader(descriptor, call)
    try:
        yield
    finally:
        watching = False
        loop.remove_reader(descriptor)


async def _wait_and_notify(descriptor: int, notify: Callable[[], bool]) -> None:
    while True:
        await anyio.wait_readable(descriptor)
        if not notify():
            return


@asynccontextmanager
async def periodic(check: Callable[[], float | None], *, first: float = 0.0) -> AsyncGenerator[None]:
    """During the block, calls `check` after `first` seconds, and again after each delay that it returns, until it
    returns None.

    If `first` is 0, the first call is made before the block starts.
    """
    loop = asyncio_loop()
    if loop is None:
        async with plain_task_group() as tasks:
            tasks.start_soon(_check, check, first)
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

    if first:
        timer = loop.call_later(first, call)
    else:
        call()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


async def _check(check: Callable[[], float | None], first: float) -> None:
    await anyio.sleep(first)
    while (delay := check()) is not None:
        await anyio.sleep(delay)

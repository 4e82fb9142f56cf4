"""Lifecycle of objects opened and closed by `async with` or `with`, in one process and not in its forks."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from threading import Thread
from types import TracebackType
from typing import NoReturn, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from corral.concurrency.forks import ProcessOwner, finalize_in_owner
from corral.errors import ConfigError

T = TypeVar("T")

_left_behind: list[object] = []
"""Objects inherited by a fork. They are kept, because dropping them would finalize resources that the parent still
uses."""


class Lifecycle(ABC):
    """Base of objects that are opened and closed by `async with` or `with`, in the process that owns them."""

    def __init__(self) -> None:
        self._open = False
        self._closed = False
        self._loop: _LoopThread | None = None
        """Event loop that the `with` block runs."""
        self._owner = ProcessOwner()
        self._unclosed: weakref.finalize[..., Self] | None = None

    @property
    def is_open(self) -> bool:
        """True between opening and closing. Programs also run without opening, but start more slowly."""
        return self._open

    @abstractmethod
    async def aclose(self) -> None:
        """Closes the object. Idempotent."""

    @abstractmethod
    async def _get_ready(self) -> None:
        """Opens the object."""

    @abstractmethod
    def _renew(self) -> object:
        """Replaces resources that a fork does not inherit (processes, threads, connections). Returns the old ones."""

    async def __aenter__(self) -> Self:
        await self._get_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        _refuse_running_loop()
        if self._loop is not None and self._owner.is_current:
            raise ConfigError("this Corral is already open; leave its `with` block before opening it again")
        loop = _LoopThread()
        try:
            loop.call(self._get_ready)
        except BaseException:
            loop.close()
            raise
        self._loop = loop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reset_in_fork()
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.call(self.aclose)
            finally:
                loop.close()

    def __reduce__(self) -> NoReturn:
        raise ConfigError(f"{self!r} cannot be copied or sent to another process; create one there with the same tools")

    def _in_a_loop(self, call: Callable[[], Awaitable[T]]) -> T:
        """Calls the async function in the event loop of the `with` block, or in a new one outside such a block."""
        _refuse_running_loop()
        self._require_own()
        if self._loop is not None:
            return self._loop.call(call)
        loop = _LoopThread()
        try:
            return loop.call(call)
        finally:
            loop.close()

    def _in_the_loop(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Returns a sync context manager that enters and leaves `manager` in the event loop of the `with` block.

        Raises:
            ConfigError: the object was not opened by `with`.
        """
        if self._loop is None:
            raise ConfigError(f"{self!r} has no event loop here: open it first, in a `with` block")
        return self._loop.block(manager)

    def _require_own(self) -> None:
        """Resets the object if this process is a fork of its owner.

        Raises:
            ConfigError: the parent process had opened it.
        """
        if self._open and not self._owner.is_current:
            raise ConfigError(
                f"{self!r} was opened before this process was forked; open it here, after the fork, with "
                "`with corral:` or `async with corral:`"
            )
        self._reset_in_fork()

    def _reset_in_fork(self) -> None:
        """Returns the object to its state before opening."""
        if self._owner.take_over():
            _left_behind.append((self._renew(), self._loop, self._unclosed))
            self._open, self._loop, self._unclosed = False, None, None

    def _expect_closing(self) -> None:
        """Issues a ResourceWarning if the object is garbage-collected before it is closed."""
        self._unclosed = finalize_in_owner(self, _warn_unclosed, repr(self))

    def _expect_no_closing(self) -> None:
        if self._unclosed is not None:
            self._unclosed.detach()


def run_in_loop_of(opened: Lifecycle, call: Callable[[], Awaitable[T]]) -> T:
    """Calls the function in the event loop of the object's `with` block, or else in a new one, from a sync tool.

    Raises:
        ConfigError: this thread already runs an event loop.
    """
    return opened._in_a_loop(call)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def may_stay_open(opened: Lifecycle) -> None:
    """Prevents the warning about an unclosed object that may stay open until the process ends."""
    opened._expect_no_closing()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _warn_unclosed(name: str) -> None:
    warnings.warn(f"unclosed {name}: leave `with` or `async with`, or await aclose()", ResourceWarning, stacklevel=2)


class _LoopThread:
    """Event loop in a daemon thread. Runs until it is closed."""

    def __init__(self) -> None:
        portal: Future[BlockingPortal] = Future()
        self._thread = Thread(target=_run, args=(portal,), name="corral-loop", daemon=True)
        self._thread.start()
        self._portal = portal.result()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs the async function. If the caller is interrupted, as by Ctrl-C, the function is cancelled and
        awaited."""
        go: Future[None] = Future()
        running: Future[T] | None = None

        async def run() -> T:
            await asyncio.wrap_future(go)  # until it can be cancelled
            return await function()

        try:
            running = self._portal.start_task_soon(run)
            go.set_result(None)
            return running.result()
        except BaseException:
            go.cancel()
            if running is not None and running.cancel():
                wait([running])
            raise

    def block(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Enters and leaves a context manager in one task of the loop."""
        return self._portal.wrap_async_context_manager(manager)

    def close(self) -> None:
        """Cancels everything that runs on the loop, and ends it."""
        self._portal.call(self._portal.stop, True)
        self._thread.join()


def _run(portal: Future[BlockingPortal]) -> None:
    async def serve() -> None:
        async with BlockingPortal() as opened:
            portal.set_result(opened)
            await opened.sleep_until_stopped()

    try:
        anyio.run(serve)
    except BaseException as error:
        if not portal.done():
            portal.set_exception(error)
            return
        raise


def _refuse_running_loop() -> None:
    """Raises ConfigError if this thread runs an event loop."""
    for running in (asyncio.get_running_loop, anyio.get_current_task):  # the second condition detects other loops
        with suppress(RuntimeError):
            running()
            break
    else:
        return
    raise ConfigError(
        "`Corral.sync` and `with` do not work in a thread that runs an event loop, as in notebooks: use "
        "`await corral.execute(...)`, and open the Corral with `async with Corral(...)`"
    )

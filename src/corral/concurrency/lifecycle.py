"""The life of what is opened and closed, by `async with` or by `with`, in one process: a fork has no part in it."""

from __future__ import annotations

import asyncio
import os
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import NoReturn, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from corral.errors import ConfigError

__all__ = ["Life"]

T = TypeVar("T")

_left_behind: list[object] = []
"""What a fork has of the process that was forked: to let go of it would end what is still used there."""


class Life(ABC):
    """What is opened and closed, by `async with` or by `with`, and knows whose process it is in."""

    def __init__(self) -> None:
        self._open = False
        self._closed = False
        self._loop: _LoopThread | None = None
        """That of `with`."""
        self._process = os.getpid()
        self._unclosed: weakref.finalize[..., Self] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened and is not closed; programs run without that too, only later."""
        return self._open

    @abstractmethod
    async def aclose(self) -> None:
        """Closes it. Idempotent."""

    @abstractmethod
    async def _get_ready(self) -> None:
        """Opens it."""

    @abstractmethod
    def _renew(self) -> object:
        """Makes anew what a fork has none of: processes, threads and connections. Gives what was in their place."""

    async def __aenter__(self) -> Self:
        await self._get_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        _refuse_running_loop()
        if self._loop is not None and not self._is_forked():
            raise ConfigError("this Corral is open already")
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
        self._begin_anew()
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.call(self.aclose)
            finally:
                loop.close()

    def __reduce__(self) -> NoReturn:
        raise ConfigError(f"{self!r} cannot be copied, or sent to another process: make one there, of the same tools")

    def _in_a_loop(self, call: Callable[[], Awaitable[T]]) -> T:
        """Calls it in the event loop that is kept, or in one of its own."""
        _refuse_running_loop()
        self._require_own()
        if self._loop is not None:
            return self._loop.call(call)
        loop = _LoopThread()
        try:
            return loop.call(call)
        finally:
            loop.close()

    def _is_forked(self) -> bool:
        return self._process != os.getpid()

    def _require_own(self) -> None:
        """Has a fork begin anew.

        Raises:
            ConfigError: it is open, in the process that was forked.
        """
        if self._open and self._is_forked():
            raise ConfigError(
                f"{self!r} was opened by the process that this one is a fork of: open it here, after the fork, by "
                "`with corral:` or `async with corral:`"
            )
        self._begin_anew()

    def _begin_anew(self) -> None:
        """In a fork, has it be as if it had not been opened yet."""
        if self._is_forked():
            _left_behind.append((self._renew(), self._loop, self._unclosed))
            self._process = os.getpid()
            self._open, self._loop, self._unclosed = False, None, None

    def _expect_closing(self) -> None:
        """From now on there is a ResourceWarning if nobody closes it."""
        self._unclosed = weakref.finalize(self, _warn_unclosed, os.getpid(), repr(self))

    def _expect_no_closing(self) -> None:
        if self._unclosed is not None:
            self._unclosed.detach()


def _warn_unclosed(owner: int, name: str) -> None:
    if os.getpid() == owner:
        warnings.warn(
            f"unclosed {name}: leave `with` or `async with`, or await aclose()", ResourceWarning, stacklevel=2
        )


class _LoopThread:
    """Runs functions on an event loop of its own, until it is closed.

    The thread does not keep a process from ending.
    """

    def __init__(self) -> None:
        portal: Future[BlockingPortal] = Future()
        self._thread = Thread(target=_run, args=(portal,), name="corral-loop", daemon=True)
        self._thread.start()
        self._portal = portal.result()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs it to its end. If the caller is interrupted, as by Ctrl-C, it is cancelled and has ended."""
        go: Future[None] = Future()
        running: Future[T] | None = None

        async def run() -> T:
            await asyncio.wrap_future(go)  # until the caller can cancel it
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

    def close(self) -> None:
        """Ends the loop, with all that runs on it."""
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
    """Raises ConfigError in a thread that runs an event loop."""
    for running in (asyncio.get_running_loop, anyio.get_current_task):  # the second knows the other loops
        with suppress(RuntimeError):
            running()
            break
    else:
        return
    raise ConfigError(
        "this thread runs an event loop, as notebooks do: `await corral.execute(...)`, and open it by "
        "`async with Corral(...)`; execute_sync, check_sync and `with` are for programs without a loop"
    )

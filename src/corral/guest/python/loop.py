"""Event loop of a guest, in which only replies, timers and callbacks from other threads can happen.

It waits in a blocking read, so a call costs one write and one read. Otherwise it is asyncio's own loop, except that it
can be nested: functions that call `asyncio.run` are common, even in programs that await.
"""

from __future__ import annotations

import asyncio
import functools
import os
import select
import threading
import weakref
from _thread import _count as count_threads  # pyright: ignore[reportPrivateUsage]
from asyncio import base_events
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

_FIRST_TURNS = 3
"""Number of turns in which scheduled work starts, including work that it schedules in turn."""
_READING_MS = 10
"""Seconds after which a loop checks again whether another thread is still reading."""
_SPENT: Any = SimpleNamespace(_cancelled=True)
"""Handle that the loop skips."""
_wait: Any = asyncio.wait
_gather: Any = asyncio.gather
_run: Any = asyncio.run
_turn: Any = vars(base_events.BaseEventLoop)["_run_once"]


class Source(Protocol):
    """Source of replies."""

    descriptor: int

    def flush(self) -> None:
        """Sends pending frames before a wait."""
        ...

    def receive(self) -> None:
        """Reads once, waiting if there is nothing yet, and settles the replies.

        Raises:
            Finished: no more replies will come.
        """
        ...

    @property
    def expects(self) -> bool:
        """True while a call has no reply."""
        ...


class Finished(BaseException):
    """The program has ended, and the host will send no more replies."""


class Deadlock(RuntimeError):
    """The program waits for an event that cannot happen."""


class _Ready(deque[Any]):
    """Queue of handles whose `popleft` never fails: a nested loop may have taken handles that the outer one counted."""

    def popleft(self) -> Any:
        return super().popleft() if self else _SPENT


class GuestLoop(base_events.BaseEventLoop):
    """Base without sockets and processes, which guests may not create."""

    source: Source
    _ready: Any
    _scheduled: Any
    loops: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    raced: ClassVar[bool] = False
    """True if the program continued although some tasks that it waited for had not ended, as when they lost a race."""
    losers: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    gathered: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    """Futures of `asyncio.gather`."""
    _reading: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        super().__init__()
        GuestLoop.loops.add(self)
        self._selector = self  # BaseEventLoop polls it for events
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], None] = weakref.WeakKeyDictionary()
        self._wake: int | None = None
        """Eventfd, created when a thread or a timer first needs it."""
        self._making_wake = threading.RLock()
        self._poll: select.poll | None = None

    def select(self, timeout: float | None) -> list[Any]:
        """Waits for replies, up to the next timer, and settles them."""
        source = self.source
        source.flush()
        if timeout is None and count_threads() == 0:
            if self._ready:  # queued by a thread that has since ended
                return []
            if not source.expects:
                raise Deadlock(
                    "the program waits for something that cannot happen: no tool call, timer or thread is left"
                )
            source.receive()
        elif timeout is None or timeout > 0 or source.expects:
            for descriptor, _ in self._polled().poll(None if timeout is None else max(0.0, timeout) * 1000):
                if descriptor == source.descriptor:
                    self._receive()
                else:
                    os.eventfd_read(descriptor)
        return []

    def _receive(self) -> None:
        """Reads once, unless another thread's loop is reading or has just read everything."""
        if count_threads() == 0:
            self.source.receive()
        elif GuestLoop._reading.acquire(blocking=False):
            try:
                if any(descriptor == self.source.descriptor for descriptor, _ in self._polled().poll(0)):
                    self.source.receive()
            finally:
                GuestLoop._reading.release()
        else:
            poll = select.poll()
            poll.register(self._waker(), select.POLLIN)
            poll.poll(_READING_MS)

    def run_until_complete(self, future: Any) -> Any:
        """Works like asyncio's, but also while a loop runs in this thread."""
        running = asyncio.events._get_running_loop()  # noqa: SLF001
        if running is None:
            return super().run_until_complete(future)
        if running is not self:
            asyncio.events._set_running_loop(None)  # noqa: SLF001
            try:
                return super().run_until_complete(future)
            finally:
                asyncio.events._set_running_loop(running)  # noqa: SLF001
        inner = asyncio.ensure_future(future, loop=self)
        if not isinstance(self._ready, _Ready):
            self._ready = _Ready(self._ready)
        with self._without_task():
            while not inner.done():
                _turn(self)
        return inner.result()

    @contextmanager
    def _without_task(self) -> Generator[None]:
        """Suspends the current task, so that others can run within it."""
        task = asyncio.current_task(self)
        if task is None:
            yield
            return
        asyncio.tasks._leave_task(self, task)  # noqa: SLF001
        try:
            yield
        finally:
            asyncio.tasks._enter_task(self, task)  # noqa: SLF001

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        self._tasks[task] = None
        return task

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Returns the unfinished tasks except the current one."""
        current = asyncio.current_task(self)
        return [task for task in list(self._tasks) if not task.done() and task is not current]

    def begin_tasks(self) -> None:
        """Runs the tasks up to their first wait."""
        if self.tasks:
            self.run_until_complete(self._turns())

    @staticmethod
    async def _turns() -> None:
        for _ in range(_FIRST_TURNS):
            await asyncio.sleep(0)

    @property
    def left(self) -> list[asyncio.Future[Any]]:
        """Returns tasks and gathered futures that the program has started and nothing awaits."""
        tasks = [each for each in self.tasks if not getattr(each, "_callbacks", None) and each not in self.losers]
        return [*tasks, *(each for each in list(self.gathered) if not each.done() and each.get_loop() is self)]

    @staticmethod
    async def first_of(futures: list[asyncio.Future[Any]]) -> None:
        """Waits until one of the futures is done."""
        await _wait(futures, return_when=asyncio.FIRST_COMPLETED)

    def end_work(self) -> None:
        """Cancels the tasks of a cell that has ended, and lets them clean up for a few turns."""
        for task in self.tasks:
            task.cancel()
        with suppress(Finished, Deadlock):
            self.run_until_complete(self._turns())

    def forget(self) -> None:
        """Drops tasks and timers that are left, which never run again."""
        self._ready.clear()
        self._scheduled.clear()
        self._tasks.clear()
        self.losers.clear()
        self.gathered.clear()
        GuestLoop.raced = False
        executor: Any = vars(self).pop("_default_executor", None)
        self._default_executor = None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def unseen_errors(self) -> list[BaseException]:
        """Returns the errors of finished tasks that were never awaited."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        unseen = [task.exception() for task in ended if getattr(task, "_log_traceback", False)]
        return [error for error in unseen if error is not None]

    @classmethod
    def install(cls, source: Source) -> None:
        """Makes this the loop of `asyncio.run`, and of other callers that need a new one."""
        cls.source = source
        cls.raced = False

        async def wait(fs: Any, **options: Any) -> Any:
            done, left = await _wait(fs, **options)
            cls.raced = cls.raced or bool(left)
            cls.losers.update(left)
            return done, left

        def gather(*awaitables: Any, **options: Any) -> Any:
            gathered = _gather(*awaitables, **options)
            cls.gathered.add(gathered)
            return gathered

        def run(main: Any, **options: Any) -> Any:
            loop = asyncio.events._get_running_loop()  # noqa: SLF001
            if isinstance(loop, GuestLoop) and asyncio.iscoroutine(main):
                return loop.run_until_complete(main)
            return _run(main, **options)

        asyncio.run = asyncio.runners.run = functools.update_wrapper(run, _run)
        asyncio.wait = asyncio.tasks.wait = functools.update_wrapper(wait, _wait)
        asyncio.gather = asyncio.tasks.gather = functools.update_wrapper(gather, _gather)
        asyncio.new_event_loop = asyncio.events.new_event_loop = cls
        policy: Any = vars(asyncio.unix_events)["_UnixDefaultEventLoopPolicy"]
        setattr(policy, "_loop_factory", cls)  # noqa: B010

    def close(self) -> None:
        if not self.is_closed():
            super().close()
            with self._making_wake:
                if self._wake is not None:
                    os.close(self._wake)

    def _process_events(self, event_list: list[Any]) -> None:
        """Does nothing: `select` has processed them."""

    def _write_to_self(self) -> None:
        with self._making_wake:
            if not self.is_closed():
                os.eventfd_write(self._waker(), 1)

    def _waker(self) -> int:
        with self._making_wake:
            if self._wake is None:
                self._wake = os.eventfd(0)
            return self._wake

    def _polled(self) -> select.poll:
        if self._poll is None:
            self._poll = select.poll()
            for descriptor in (self._waker(), self.source.descriptor):
                self._poll.register(descriptor, select.POLLIN)
        return self._poll

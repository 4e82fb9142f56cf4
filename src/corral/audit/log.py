"""`AuditLog`: queues audit events and passes them to sinks."""

from __future__ import annotations

import asyncio
import atexit
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import count
from typing import Literal, TypeAlias

import anyio

from corral.arguments import checked
from corral.audit.events import AuditEvent, cleaned, digest_of
from corral.audit.sinks import AuditSink, AuditSource, as_sink
from corral.concurrency.forks import after_fork
from corral.concurrency.threads import run_in_own_thread, thread_safe_callback
from corral.errors import AccessDenied, ConfigError
from corral.logs import get_logger
from corral.rendering.redaction import redacted
from corral.types import JsonSchema

_Entry: TypeAlias = tuple[AuditEvent | None, "Receipt | None"]

_COLLECT_SECONDS = 0.05
"""Seconds that a batch waits for more events after its first, unless a caller waits for it."""
_BATCH = 500
_IDLE_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_ATTEMPTS = 3
"""Number of times that a batch fails before its events are written one by one."""
_PROBES = 5
"""Maximum number of events to try in search of one that the sink accepts."""
_STALLED_SECONDS = 5.0
_LONGEST_WRITE_SECONDS = 30.0
"""Seconds after which an async sink counts as failed; a sync one cannot be interrupted."""
_LEAVING_SECONDS = 5.0
"""Seconds that the process waits for unflushed events when it exits, for all sinks together."""


class Receipt:
    """Notifies one waiting task or thread once each of `writers` has succeeded or failed."""

    def __init__(self, writers: Iterable[Writer], notify: Callable[[], object]) -> None:
        self._missing = set(writers)
        self._failed = False
        self._lock = threading.Lock()
        self._notify = notify

    @property
    def complete(self) -> bool:
        """True once all sinks have written the event."""
        return not self._missing and not self._failed

    def sign(self, writer: Writer, *, written: bool) -> None:
        """Records one sink's outcome; the first counts. Thread-safe."""
        with self._lock:
            if writer not in self._missing:
                return
            self._missing.discard(writer)
            self._failed |= not written
            done = not self._missing
        if done:
            self._notify()


class Writer:
    """Queue of events for one sink. Its thread runs while the queue has events, and for some seconds afterwards.

    A failed batch is retried at once, in case the connection had only been closed, then after growing pauses and at
    each flush. It stays at the head of the queue until it is written. Events that the sink rejects while it accepts
    others are dropped. Waiting callers are notified of the failure.
    """

    def __init__(self, sink: AuditSink, *, queue_events: int) -> None:
        self.sink = sink
        self._bound = queue_events
        self._reset()
        _writers.add(self)

    def _reset(self) -> None:
        self._queue: deque[_Entry] = deque()
        self._batch: list[_Entry] = []
        """Events taken from the queue that the sink has not accepted yet."""
        self._lock = threading.Lock()  # held while the thread is started and while it decides to end
        self._thread: threading.Thread | None = None
        self._ended = True
        self._awake = False
        """True if the thread will read the queue without being woken."""
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._closing = threading.Event()
        self._failing = False
        """True from a failed write until one succeeds."""
        self._told = False
        """True if the failure was logged. A failure that the first retry fixes is not."""
        self._began: float | None = None
        """Start of the current write, on the monotonic clock."""

    def put(self, event: AuditEvent) -> bool:
        """Queues an event; returns False if the queue is full."""
        if len(self._queue) >= self._bound:
            return False
        self._queue.append((event, None))
        if not self._awake:
            self._wake()
        return True

    def put_with_receipt(self, event: AuditEvent | None, receipt: Receipt) -> bool:
        """Queues an event to be written at once, even beyond the maximum; returns False at twice the maximum.

        Without an event, the receipt covers the events already queued, and a failing sink is retried.
        """
        if event is not None and len(self._queue) >= 2 * self._bound:
            return False
        self._queue.append((event, receipt))
        if event is None or not self._failing:
            self._hurry.set()
        self._wake()
        return True

    @property
    def unavailable(self) -> bool:
        """True while the sink fails or hangs."""
        began = self._began
        return self._failing or (began is not None and time.monotonic() - began > _STALLED_SECONDS)

    @property
    def unwritten(self) -> int:
        """Number of events that the sink has not accepted yet."""
        return sum(event is not None for event, _ in self._entries())

    def close(self, within_seconds: float) -> None:
        """Writes what can be written, then ends the thread. Events that the sink does not accept stay queued."""
        with self._lock:
            thread = self._thread
            self._closing.set()
            self._work.set()
            self._hurry.set()
        if thread is not None:
            thread.join(within_seconds)

    def after_fork(self) -> None:
        """Clears the queue in a forked process, because its events are the parent's to write."""
        self._reset()
        self.sink.after_fork()

    def _wake(self) -> None:
        with self._lock:
            if self._ended:
                self._ended = False
                self._closing.clear()
                self._thread = threading.Thread(
                    target=self._run, args=(self._thread,), name="corral-audit", daemon=True
                )
                self._thread.start()
            self._awake = True
            self._work.set()

    def _entries(self) -> list[_Entry]:
        queued = self._queue.copy()  # first: events that the thread takes meanwhile are then in both
        return [*self._batch, *queued]

    # --- in the thread

    def _run(self, predecessor: threading.Thread | None) -> None:
        if predecessor is not None:
            predecessor.join()  # the sink may still be closing
        atexit.register(self._leave)
        with asyncio.Runner() as runner:
            while self._has_work():
                self._write_batch(runner)
            self._do(runner, self.sink.aclose, is_write=False)
        atexit.unregister(self._leave)

    def _has_work(self) -> bool:
        """Waits for work. Returns False if the thread has to end; another thread can be started from then on."""
        self._awake = False
        while not (self._queue or self._batch) and not self._closing.is_set() and self._work.wait(_IDLE_SECONDS):
            self._work.clear()
            self._awake = False  # a caller may set it after its event was written
        with self._lock:
            self._ended = not (self._queue or self._batch) or (self._closing.is_set() and self._failing)
            self._awake = not self._ended
            return self._awake

    def _write_batch(self, runner: asyncio.Runner) -> None:
        if len(self._queue) < _BATCH:
            self._hurry.wait(_COLLECT_SECONDS)
        self._hurry.clear()
        while self._queue and len(self._batch) < _BATCH:
            self._batch.append(self._queue[0])
            self._queue.popleft()
        events = [cleaned(event) for event, _ in self._batch if event is not None]
        if events and not self._written(runner, events):
            return
        batch, self._batch = self._batch, []
        for _, receipt in batch:
            if receipt is not None:
                receipt.sign(self, written=True)

    def _written(self, runner: asyncio.Runner, events: Sequence[AuditEvent]) -> bool:
        """Retries until the sink has accepted or rejected every event. Returns False if the thread has to end first."""
        write = partial(self.sink.write, events)
        if self._do(runner, write) is None:
            self._recovered()
            return True
        pause_seconds = _FIRST_PAUSE_SECONDS
        for attempt in count(2):
            waiting = [receipt for _, receipt in self._entries() if receipt is not None]
            if (error := self._do(runner, write)) is None:
                break
            if not self._told:
                self._told = True
                logger.error("%r cannot be written; events are kept and retried", self.sink, exc_info=error)
            for receipt in waiting:  # not those that arrived during this attempt
                receipt.sign(self, written=False)
            if attempt >= _ATTEMPTS and not self._is_outage(error) and self._written_singly(runner):
                break
            self._hurry.wait(pause_seconds)
            self._hurry.clear()
            if self._closing.is_set():
                return False
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
        self._recovered()
        return True

    def _recovered(self) -> None:
        self._failing = False
        if self._told:
            self._told = False
            logger.warning("%r can be written again", self.sink)

    def _written_singly(self, runner: asyncio.Runner) -> bool:
        """Writes the batch's events one by one and logs rejected ones. Returns False, and keeps all events, if the sink
        itself may be failing.

        An event counts as rejected if, twice, the sink accepts other events before and after it.
        """
        known = [event for event, _ in self._entries() if event is not None]
        probes = random.sample(known, min(len(known), _PROBES))
        taken = next((event for event in probes if self._write_one(runner, event) is None), None)
        if taken is None:
            return False
        refused = [(event, receipt) for event, receipt in self._batch if event is not None]
        for _ in range(2):
            for entry in refused.copy():
                if (error := self._write_one(runner, entry[0])) is None:
                    refused.remove(entry)
                elif self._is_outage(error):
                    return False
            if self._write_one(runner, taken) is not None:
                return False
        for event, receipt in refused:
            logger.error("%r rejected an audit event, which is not stored: %s", self.sink, event.to_json())
            if receipt is not None:
                receipt.sign(self, written=False)
        return True

    def _write_one(self, runner: asyncio.Runner, event: AuditEvent) -> BaseException | None:
        return self._do(runner, partial(self.sink.write, [cleaned(event)]))

    def _is_outage(self, error: BaseException) -> bool:
        try:
            return self.sink.is_outage(error)
        except Exception:  # third-party code
            return True

    def _do(
        self, runner: asyncio.Runner, action: Callable[[], Awaitable[None] | None], *, is_write: bool = True
    ) -> BaseException | None:
        """Returns the exception that the sink raised. Sinks are third-party code, and must not be able to end the
        thread."""
        self._began = time.monotonic()
        try:
            answer = action()
            if answer is not None:
                runner.run(_awaited(answer))
        except BaseException as error:
            self._failing |= is_write
            return error
        finally:
            self._began = None
        return None

    def _leave(self) -> None:
        """Waits for unflushed events when the process exits."""
        if unwritten := self.unwritten:
            done = threading.Event()
            receipt = Receipt([self], done.set)
            self.put_with_receipt(None, receipt)
            done.wait(_left_to_leave())
            if not receipt.complete:
                logger.error("%r: the process ends with %d unwritten audit events", self.sink, unwritten)


@cache
def _leaving_at() -> float:
    """Time at which the process began to exit."""
    return time.monotonic()


def _left_to_leave() -> float:
    """Seconds that remain for all sinks together."""
    return max(0.0, _leaving_at() + _LEAVING_SECONDS - time.monotonic())


async def _awaited(answer: Awaitable[None]) -> None:
    async with asyncio.timeout(_LONGEST_WRITE_SECONDS):
        await answer


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_writers):
        writer.after_fork()


after_fork(_after_fork)


logger = get_logger("corral.audit")

_PATIENCE_SECONDS = 5.0
_CLOSING_SECONDS = 0.5
"""Minimum number of seconds that a sink has to close."""
_UNAVAILABLE = "the audit log cannot be written, so calls are denied"


@checked
class AuditLog:
    """Passes events to sinks, each in its own thread. Usable from any thread and event loop.

    `arguments` selects the form of a call's input in events. `record` waits while a sink has more than `queue_events`
    unwritten events. With `when_unavailable="deny"`, calls are denied while a sink cannot be written.

    Raises:
        ConfigError: no sink was passed, or an object that is not a sink.
    """

    def __init__(
        self,
        *sinks: AuditSource,
        arguments: Literal["digest", "redacted", "none"] = "digest",
        queue_events: int = 10_000,
        when_unavailable: Literal["deny", "continue"] = "deny",
    ) -> None:
        if not sinks:
            raise ConfigError("AuditLog has no sink; pass a path, a URL, a sink or a function")
        if queue_events < 1:
            raise ConfigError(f"AuditLog: queue_events={queue_events} is too small; it must be at least 1")
        self._arguments = arguments
        self._denies = when_unavailable == "deny"
        self._writers = [Writer(as_sink(sink), queue_events=queue_events) for sink in sinks]

    async def record(self, event: AuditEvent) -> None:
        """Queues an event. If the queue is full, waits until the event is written, for some seconds at most.

        If a sink fails and twice `queue_events` are queued, the event goes to the logger instead.
        """
        full: list[Writer] = []
        for writer in self._writers:
            if not writer.put(event):
                full.append(writer)  # noqa: PERF401 - a comprehension takes longer
        if full:
            await self._written(event, full)

    async def record_durably(self, event: AuditEvent) -> None:
        """Returns once every sink has stored the event. It stays queued if the caller is cancelled.

        Raises:
            AccessDenied: a sink is failing or too slow. It can still store the event later.
        """
        if not await self._written(event, self._writers):
            raise AccessDenied(_UNAVAILABLE)

    def check(self) -> None:
        """Raises AccessDenied while a sink cannot be written, unless `when_unavailable` is "continue"."""
        if self._denies:
            for writer in self._writers:
                if writer.unavailable:
                    raise AccessDenied(_UNAVAILABLE)

    @property
    def copies_arguments(self) -> bool:
        """True if `shown` requires the schema."""
        return self._arguments == "redacted"

    def shown(self, input: object, schema: JsonSchema | None = None) -> object:
        """Returns an event's copy of a call's input, as JSON. Never raises; costs as much as encoding the input."""
        try:
            match self._arguments:
                case "digest":
                    return digest_of(input)
                case "redacted":
                    return redacted(input, schema)
                case _:
                    return None
        except Exception:  # a host object whose `repr` raises
            return "[cannot be shown]"

    async def flush(self) -> None:
        """Returns once all recorded events are written.

        Raises:
            TimeoutError: a sink is failing or too slow. The events stay queued.
        """
        if not await self._written(None, self._writers):
            raise TimeoutError("audit events are not written yet: a sink is failing or slow; they stay queued")

    async def aclose(self) -> None:
        """Flushes and ends the threads, within some seconds. Unwritten events stay queued; their number is logged.

        The log can be used again, which restarts the threads.
        """
        closed_by = time.monotonic() + _PATIENCE_SECONDS
        try:
            with suppress(TimeoutError):
                await self.flush()
        finally:
            seconds = max(_CLOSING_SECONDS, closed_by - time.monotonic())
            async with anyio.create_task_group() as tasks:
                for writer in self._writers:
                    tasks.start_soon(self._close, writer, seconds)

    async def _close(self, writer: Writer, within_seconds: float) -> None:
        await run_in_own_thread(writer.close, within_seconds, abandon_on_cancel=True)
        if unwritten := writer.unwritten:
            logger.error("the audit log is closed; %r has not accepted %d events", writer.sink, unwritten)

    async def _written(self, event: AuditEvent | None, writers: Sequence[Writer]) -> bool:
        """True if all sinks wrote the event in time. Does not wait for a sink that is already failing."""
        done = anyio.Event()
        receipt = Receipt(writers, thread_safe_callback(done.set))
        for writer in writers:
            if not writer.put_with_receipt(event, receipt):
                logger.error("%r has no room for the audit event %s", writer.sink, event and event.to_json())
                receipt.sign(writer, written=False)
            elif event is not None and writer.unavailable:
                receipt.sign(writer, written=False)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await done.wait()
        return receipt.complete


def as_audit_log(source: AuditLog | AuditSource) -> AuditLog:
    """Returns the log itself, or a default log with that sink. Raises ConfigError."""
    return source if isinstance(source, AuditLog) else AuditLog(source)

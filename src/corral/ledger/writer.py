"""Writes and reads a ledger in a thread. The program waits for its changes to be written, but not for its replies.

Rows of calls are queued, and written together after a few milliseconds, or as soon as a task waits for the disk. All
tasks that wait in one turn of the event loop share one transaction. Other jobs run after the rows that were queued
before. All jobs of one turn are handed over together, in their order, so that they wake the thread once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from corral.concurrency.event_loop import OneShot, asyncio_loop, one_shot_factory
from corral.concurrency.fairness import INLINE_BYTES, short_steps
from corral.concurrency.forks import ProcessOwner
from corral.concurrency.threads import run_shielded_in_thread, thread_safe_scheduler
from corral.errors import CorralError, HeldElsewhere, LedgerError, LedgerFailed
from corral.ledger.base import Ledger
from corral.ledger.rows import CallRow, StoredCall, pack_call
from corral.logs import get_logger

T = TypeVar("T")

LEASE_SECONDS = 30.0
"""Seconds after which a host that has not renewed its claim counts as lost."""
_RENEW_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""Time between looks for decisions that other hosts have recorded."""
_BEHIND_SECONDS = 0.02
_PRUNE_SECONDS = 3_600.0
_TELL_SECONDS = 0.001
"""Time for which outcomes of jobs are collected."""

logger = get_logger("corral.ledger")


class Claim:
    """Right of this host to write the rows of one execution, until the claim fails or is released.

    When `failure` is set, `on_failure` is called in the event loop that made the claim.
    """

    def __init__(self, execution_id: str, number: int) -> None:
        self.execution_id = execution_id
        self.number = number
        self.failure: LedgerError | None = None
        self.has_saved = False
        """True if a saved guest is on record."""
        self.on_failure: Callable[[], object] = lambda: None
        self.look: Callable[[], object] | None = None
        """Looks, in the writer's thread, for decisions that the execution waits for."""
        self.schedule: _Schedule = thread_safe_scheduler()

        self.make_one_shot: Callable[[], OneShot[None]] = one_shot_factory()

    def fail(self, error: LedgerError) -> None:
        """Ends the claim because of an error. Called by the writer's thread."""
        if self.failure is None:
            self.failure = error
            self.call(self.on_failure)

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function in the event loop, if that still runs."""
        _call(self.schedule, function)


_Job = Callable[[], object]
_Schedule = Callable[[Callable[[], object]], object]


class Writer:
    """The only user of a ledger in this process. Its thread runs from the first use to `aclose`."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._owner = ProcessOwner()
        self._begin()

    def _begin(self) -> None:
        self._lock, self._working = Lock(), Lock()
        self._thread: Thread | None = None
        self._jobs: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._asked: list[_Job] = []
        """Jobs of this turn of an event loop."""
        self._asking_loop: object = None
        """Event loop that hands them over at the end of its turn."""
        self._outcomes: list[tuple[_Schedule, Callable[[], object]]] = []
        """Outcomes of jobs that have not been passed to their event loops yet."""
        self._claims: dict[str, Claim] = {}
        self._rows: deque[tuple[Claim, StoredCall | CallRow]] = deque()
        """Queued rows. Small ones are sealed where their values still are in the processor's cache."""
        self._waiters: deque[tuple[Claim, OneShot[None]]] = deque()
        """Tasks that wait for the disk."""
        self._flush_at = math.inf
        """Time at which the thread writes the queued rows."""
        self._is_asked = False
        """True from the first waiter of a turn until the thread takes the rows."""
        self._renew_at, self._prune_at = time.monotonic() + _RENEW_SECONDS, 0.0
        self._look_at = 0.0

    async def run(self, job: Callable[[], T]) -> T:
        """Calls the function in the thread, after the queued rows.

        Raises:
            CorralError: the function raised it. LedgerFailed: the function raised another exception.
        """
        outcome: OneShot[tuple[T | None, CorralError | None]] = one_shot_factory()()
        schedule = thread_safe_scheduler()

        def done() -> None:
            value, error = None, None
            self._flush()
            try:
                value = job()
            except CorralError as failure:
                error = failure
            except Exception as failure:
                error = _failure(failure)
            self._outcomes.append((schedule, lambda: outcome.set((value, error))))

        self._ask(done)
        value, error = await outcome.wait()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def submit(self, job: Callable[[], object]) -> None:
        """Has the thread call the function, without waiting for that. Errors are logged."""

        def done() -> None:
            self._flush()
            try:
                job()
            except Exception as error:
                self._log(error)

        self._ask(done)

    def hold(self, claim: Claim) -> None:
        """Renews the lease of a claim from now on."""
        self._claims[claim.execution_id] = claim
        self._ask(_nothing)  # so that the thread checks the time

    def release(self, claim: Claim) -> None:
        if self._claims.get(claim.execution_id) is claim:
            del self._claims[claim.execution_id]

    def put(self, claim: Claim, row: CallRow) -> None:
        """Queues a row. It is written before anything that is requested of the ledger later."""
        is_small = row.size <= INLINE_BYTES and row.by is None  # the name of a person can be too long to be written
        self._rows.append((claim, self._stored(claim, row) if is_small else row))
        if self._flush_at == math.inf:
            self._flush_at = time.monotonic() + _BEHIND_SECONDS
            self._ask(_nothing)  # so that the thread checks the time

    async def durable(self, claim: Claim) -> None:
        """Waits until the queued rows, at least one, would survive a power failure.

        Raises:
            LedgerError: the rows could not be written.
        """
        written = claim.make_one_shot()
        self._waiters.append((claim, written))
        if not self._is_asked:
            self._is_asked = True
            self._ask(self._flush)  # at the end of this turn, together with all that start in it
        await written.wait()
        if claim.failure is not None:
            raise claim.failure

    async def aclose(self) -> None:
        """Writes the queued rows and ends the thread. The next use starts another thread."""
        if not self._owner.is_current:
            return
        self._hand_over()
        with self._lock:
            thread, self._thread = self._thread, None
            jobs, self._jobs = self._jobs, SimpleQueue()
        if thread is not None:
            jobs.put(None)
            await run_shielded_in_thread(thread.join)

    def _ask(self, job: _Job) -> None:
        if self._owner.take_over():
            self._begin()
        loop = asyncio_loop()
        with self._lock:
            self._asked.append(job)
            if loop is not None and len(self._asked) == 1:
                self._asking_loop = loop
                loop.call_soon(self._hand_over)
                return
            if loop is not None and self._asking_loop is loop:
                return
        self._hand_over()

    def _hand_over(self) -> None:
        """Gives the jobs to the thread, in their order."""
        with self._lock:
            jobs, self._asked, self._asking_loop = self._asked, [], None
            if not jobs:
                return
            self._jobs.put(jobs)
            if self._thread is None:
                self._thread = Thread(target=self._work, args=(self._jobs,), name="corral-ledger", daemon=True)
                self._thread.start()

    # --- in the thread

    def _work(self, queue: SimpleQueue[list[_Job] | None]) -> None:
        with self._working:  # after the thread before, if it is still ending
            jobs: list[_Job] | None = []
            while jobs is not None:
                try:
                    jobs = queue.get(timeout=max(0.0, self._due - time.monotonic()))
                except Empty:
                    jobs = [_nothing]
                with short_steps:  # so that an event loop does not wait for long values
                    self._do_all([self._flush] if jobs is None else jobs)
            self.ledger.close()

    def _do_all(self, jobs: Iterable[_Job]) -> None:
        """Runs jobs, and what is due. Reports outcomes together, or after a while, since each can wait for the disk."""
        last = time.monotonic()
        for job in jobs:
            job()
            now = time.monotonic()
            if now >= self._due:
                self._do_due(now)
            if now - last > _TELL_SECONDS:
                self._tell()
                last = now
        self._tell()

    def _tell(self) -> None:
        if not self._outcomes:
            return
        outcomes, self._outcomes = self._outcomes, []
        by_loop: dict[_Schedule, list[Callable[[], object]]] = {}
        for schedule, outcome in outcomes:
            by_loop.setdefault(schedule, []).append(outcome)
        for schedule, functions in by_loop.items():
            _call(schedule, functions[0] if len(functions) == 1 else partial(_call_all, functions))

    @property
    def _due(self) -> float:
        """Time at which the thread has something to do even if no job comes."""
        return min(self._flush_at, self._prune_at, self._look_at if self._claims else math.inf)

    def _do_due(self, now: float) -> None:
        if now >= self._flush_at:
            self._flush()
        if now >= self._look_at:
            for name in {**self._claims}:
                self.look(name)
            self._look_at = now + _LOOK_SECONDS
        if now >= self._renew_at:
            self._renew()
            self._renew_at = now + _RENEW_SECONDS
        if now >= self._prune_at:
            self._prune()
            self._prune_at = now + _PRUNE_SECONDS

    def _flush(self) -> None:
        """Writes all queued rows, and wakes the tasks that wait for them."""
        self._flush_at, self._is_asked = math.inf, False
        waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]  # first, because their rows are queued
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if rows:
            self._flush_at = time.monotonic() + _BEHIND_SECONDS  # a busy program does not wake the thread for each row
        claims = {claim.execution_id: claim for claim, _ in (*rows, *waiters) if claim.failure is None}
        if claims:
            try:
                calls = [
                    each if isinstance(each, StoredCall) else self._stored(claim, each)
                    for claim, each in rows
                    if claim.failure is None
                ]
                numbers = {name: claim.number for name, claim in claims.items()}
                self._lose(self.ledger.write(numbers, calls, durably=bool(waiters)), claims)
            except Exception as error:
                self._log(error)
                failure = _failure(error)
                for claim in claims.values():
                    claim.fail(failure)
        if waiters:
            self._outcomes += [(claim.schedule, partial(written.set, None)) for claim, written in waiters]
            self._tell()

    def _stored(self, claim: Claim, row: CallRow) -> StoredCall:
        name, sequence, status, place = claim.execution_id, row.sequence, row.status, row.place
        body = self.ledger.ring.seal(pack_call(row), place_of(name, sequence, status, place))
        return StoredCall(name, sequence, status, place, body)

    def look(self, execution_id: str) -> None:
        """Looks for decisions that an execution of this host waits for."""
        claim = self._claims.get(execution_id)
        if claim is None or (look := claim.look) is None:
            return
        try:
            look()
        except Exception as error:
            logger.warning("decisions on calls of %s could not be read: %s", execution_id, error)

    def _renew(self) -> None:
        claims = {**self._claims}  # another claim of the same execution can replace it meanwhile
        if not claims:
            return
        numbers = {name: claim.number for name, claim in claims.items()}
        try:
            self._lose(self.ledger.renew(numbers, lease=self.ledger.now() + LEASE_SECONDS), claims)
        except Exception as error:
            logger.warning("the leases of %d executions could not be renewed: %s", len(numbers), error)

    def _lose(self, names: Iterable[str], claims: Mapping[str, Claim]) -> None:
        for name in names:
            if (claim := claims.get(name)) is not None:
                claim.fail(HeldElsewhere(f"another host has taken over {name}"))

    def _prune(self) -> None:
        try:
            self.prune()
        except LedgerFailed:  # it cannot be opened, which its next user will see
            pass
        except Exception as error:
            logger.warning("%r could not be pruned: %s", self.ledger, error)

    def prune(self, keep_seconds: float | None = None) -> int:
        """Deletes executions that ended longer ago than they are kept, or have expired. Call it within `run`."""
        ledger, now = self.ledger, self.ledger.now()
        expires = ledger.expires_seconds
        return ledger.prune(
            ended_before=now - (ledger.keep_seconds if keep_seconds is None else keep_seconds),
            paused_before=None if expires is None else now - expires,
        )

    def _log(self, error: Exception) -> None:
        logger.error("%r failed", self.ledger, exc_info=error)


def place_of(execution_id: str, sequence: int, status: str, place: int | None) -> str:
    """Returns the text to which the body of a call is bound."""
    return f"{execution_id}\0call {sequence}\0{status}\0{'' if place is None else place}"


def _failure(error: Exception) -> LedgerFailed:
    if isinstance(error, LedgerFailed):
        return error
    failure = LedgerFailed(f"the ledger failed: {error}")
    failure.__cause__ = error
    return failure


def _call_all(functions: Iterable[Callable[[], object]]) -> None:
    for each in functions:
        each()


def _call(schedule: _Schedule, function: Callable[[], object]) -> None:
    """Schedules a function in an event loop, if that loop is still running."""
    try:
        schedule(function)
    except RuntimeError:
        logger.debug("an event loop ended while the ledger was written")


def _nothing() -> None:
    pass

"""Fairness among owners: a round-robin queue, fair shares of a number of slots, and turns in a thread."""

from __future__ import annotations

import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import RunVar
from typing_extensions import TypeVarTuple, Unpack

from corral.concurrency.forks import after_fork
from corral.concurrency.garbage import gc_disabled
from corral.concurrency.threads import run_in_own_thread, thread_safe_callback

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

INLINE_BYTES = 32_000
"""Maximum bytes of an input handled on the event loop: a few milliseconds of work, if it grows with the size."""
_SWITCH_SECONDS = 0.0005
"""Seconds that an event loop waits while a thread runs Python code: a tenth of Python's default."""
_MOST_REST_SECONDS = 0.1


class FairQueue(Generic[T]):
    """Queue that is first in, first out for each owner, and round-robin among owners."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def count(self, owner: Hashable) -> int:
        return len(self._waiting.get(owner, ()))

    def has_others(self, owner: Hashable) -> bool:
        """True if another owner waits."""
        return any(each != owner for each in self._waiting)

    def add(self, owner: Hashable, item: T) -> None:
        self._waiting.setdefault(owner, deque()).append(item)

    def take(self, allowed: Callable[[Hashable], bool] | None = None) -> T:
        """Removes and returns the next item of an owner that `allowed` accepts.

        Raises:
            LookupError: no accepted owner has an item.
        """
        for owner, items in self._waiting.items():
            if allowed is None or allowed(owner):
                item = items.popleft()
                del self._waiting[owner]
                if items:
                    self._waiting[owner] = items  # behind the other owners
                return item
        raise LookupError

    def discard(self, owner: Hashable, item: T) -> None:
        """Removes an item if it is still in the queue."""
        items = self._waiting.get(owner)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._waiting[owner]


class _Turns:
    """Gives owners turns in one thread, round-robin.

    While other owners are active, an owner pauses after each turn for as long as the turn took.
    """

    def __init__(self) -> None:
        self.active: Counter[Hashable] = Counter()
        self._taken = False
        self._waiting: FairQueue[anyio.Event] = FairQueue()
        self._last: Hashable = None
        self._rests_until = 0.0
        self._others_wait = anyio.Event()

    async def take(self, owner: Hashable) -> None:
        if self._taken:
            turn = anyio.Event()
            self._waiting.add(owner, turn)
            if owner != self._last:
                self._others_wait.set()
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():
                    self.pass_on()
                self._waiting.discard(owner, turn)
                raise
        self._taken = True
        try:
            await self._rest(owner)
        except BaseException:
            self.pass_on()
            raise
        self._last = owner

    async def _rest(self, owner: Hashable) -> None:
        seconds = self._rests_until - time.monotonic()
        if seconds > 0 and owner == self._last and not self.active.keys() <= {owner}:
            self._others_wait = anyio.Event()
            if not self._waiting.has_others(owner):
                with anyio.move_on_after(seconds):
                    await self._others_wait.wait()

    def end(self, seconds: float) -> None:
        """Ends a turn, which took `seconds`."""
        self._rests_until = time.monotonic() + min(seconds, _MOST_REST_SECONDS)
        self.pass_on()

    def pass_on(self) -> None:
        try:
            self._waiting.take().set()
        except LookupError:
            self._taken = False


_turns: RunVar[_Turns] = RunVar("turns")


def _turns_here() -> _Turns:
    turns = _turns.get(None)
    if turns is None:
        _turns.set(turns := _Turns())
    return turns


@contextmanager
def owner_active(owner: Hashable) -> Generator[None]:
    """Marks the owner as active during the block: other owners' large values then occupy the thread for at most half of
    the time."""
    active = _turns_here().active
    active[owner] += 1
    try:
        yield
    finally:
        active[owner] -= 1
        if not active[owner]:
            del active[owner]


async def run_in_turn(function: Callable[[Unpack[Arguments]], T], *arguments: *Arguments, owner: Hashable = None) -> T:
    """Runs the function in a thread, without garbage collection. Each event loop runs one at a time.

    For work on large values. Meanwhile, Python switches from the thread to the event loop every half millisecond.
    Several threads would each add that delay, without finishing sooner.
    """
    turns = _turns_here()
    await turns.take(owner)
    started = time.monotonic()
    try:
        return await run_in_own_thread(_in_short_steps, function, *arguments)
    finally:
        turns.end(time.monotonic() - started)


def _in_short_steps(function: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    with short_steps, gc_disabled():
        return function(*arguments)


class _ShortSteps:
    """Lowers the interpreter's switch interval while threads of any event loop are within the block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads = 0
        self._before = self._lowered = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SWITCH_SECONDS))
                self._lowered = sys.getswitchinterval()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0 and sys.getswitchinterval() == self._lowered:  # else the application has changed it
                sys.setswitchinterval(self._before)

    def end_in_fork(self) -> None:
        """Restores the switch interval, because a forked process has none of those threads."""
        self._lock = Lock()
        if self._threads:
            self._threads = 1
            self.__exit__()


short_steps = _ShortSteps()
after_fork(short_steps.end_in_fork)


async def wait_for_job(job: Future[T], seconds: float) -> T:
    """Returns the job's result. Cancels the job if the caller is cancelled or the job does not start in time.

    Raises:
        TimeoutError: the job did not start within `seconds`.
    """
    done = anyio.Event()
    notify = thread_safe_callback(done.set)
    job.add_done_callback(lambda _: notify())
    try:
        with anyio.move_on_after(seconds):
            await done.wait()
        if not (job.done() or job.cancel()):
            await done.wait()
        if job.cancelled():
            raise TimeoutError
        return job.result()
    finally:
        job.cancel()


class Shares:
    """Slots shared by owners. A single owner can hold all; an owner below its fair share always gets one.

    A fair share is `most` divided by the number of owners that hold slots, including the one that asks, but at least
    one slot. Owners keep the slots that they hold, so up to twice `most` can be in use.
    """

    def __init__(self, most: int, holders: Iterable[Hashable] = ()) -> None:
        self.most = most
        self._held: Counter[Hashable] = Counter(holders)

    def take(self, owner: Hashable) -> bool:
        """Takes a slot. Returns False if the owner has its share and all slots are in use."""
        if not self.has_room(owner):
            return False
        self._held[owner] += 1
        return True

    def has_room(self, owner: Hashable) -> bool:
        """True if `take` would succeed."""
        total = self._held.total()
        if total < self.most:
            return True
        part = max(1, self.most // len(self._held.keys() | {owner}))
        return self._held[owner] < part and total < 2 * self.most

    def give_back(self, owner: Hashable) -> None:
        self._held[owner] -= 1
        if self._held[owner] <= 0:
            del self._held[owner]


class Capacity:
    """Semaphore whose requests have sizes. A request larger than the total is admitted when nothing else is held."""

    __slots__ = ("_total", "_used", "_waiting")

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    def try_acquire(self, size: int = 1) -> bool:
        """Acquires without waiting; False if too little is free."""
        if self._waiting or (self._used and self._used + size > self._total):
            return False
        self._used += size
        return True

    async def acquire(self, size: int = 1) -> None:
        """Waits until enough is free, then acquires it. Call it after `try_acquire` has failed."""
        self._waiting.append(place := (size, anyio.Event()))
        try:
            await place[1].wait()
        except BaseException:
            if place[1].is_set():
                self.release(size)
            else:
                self._waiting.remove(place)
                self.release(0)  # smaller requests may have waited behind this one
            raise

    def release(self, size: int = 1) -> None:
        self._used -= size
        while self._waiting and (not self._used or self._used + self._waiting[0][0] <= self._total):
            waiting, admitted = self._waiting.popleft()
            self._used += waiting
            admitted.set()

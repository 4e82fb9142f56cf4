"""Pool of sandboxes started in advance. Each is used once, and replaced when the machine is idle."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from corral.concurrency.forks import ProcessOwner
from corral.errors import StartFailed
from corral.logs import get_logger

logger = get_logger("corral.sandboxes")

_QUIET_SECONDS = 0.01
"""Delay of a replacement after the last sandbox was taken: at once, it would compete with the new program."""
_KEYS = 4
"""Number of kinds kept ready; the least recently used goes first."""
_MAX_IDLE = 8
_MAX_IDLE_SECONDS = 120.0
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("corral.sandboxes.pool")


class Pooled(Protocol):
    @property
    def alive(self) -> bool: ...
    def close(self) -> None: ...


K = TypeVar("K")
T = TypeVar("T", bound=Pooled)
E = TypeVar("E")


def default_size() -> int:
    """Returns one for each processor, at most four: an idle engine uses about 10 MB."""
    return min(4, os.cpu_count() or 1)


def idle_surplus(idle: Sequence[tuple[float, E]]) -> list[E]:
    """Returns the processes to end among those that wait for an owner's next execution: idle for too long, or too many.

    Each comes with the monotonic time at which it became idle, the longest idle first.
    """
    now = time.monotonic()
    return [
        each
        for position, (since, each) in enumerate(idle)
        if now - since > _MAX_IDLE_SECONDS or position < len(idle) - _MAX_IDLE
    ]


class Pool(Generic[K, T]):
    """Keeps `size` sandboxes ready of each recently used kind, from `warm` until `close`.

    At other times each is made on demand, because nothing would end idle ones. Any thread and any event loop can use
    it. `make` blocks, and is called in threads, with the kind and True if it is made in advance.
    """

    def __init__(self, make: Callable[[K, bool], T], size: int) -> None:
        self._make = make
        self.size = size
        self._changed = threading.Condition()
        self._ready: OrderedDict[K, deque[T]] = OrderedDict()
        self._hopeless: set[K] = set()
        self._open = False
        self._thread: threading.Thread | None = None
        self._owner = ProcessOwner()
        self._last_taken = 0.0

    async def take(self, key: K, *, kept: bool = True) -> T:
        """Returns a ready one if `kept`, or else a new one, which the caller uses once and closes.

        Raises:
            Exception: as `make`.
        """
        self._hopeless.discard(key)
        ready = self._pop(key) if kept else None
        if ready is not None:
            return ready
        birth = _Birth(self, key, kept=kept)
        try:
            # One more at a time than there are processors: with more, all of them would be late.
            return await anyio.to_thread.run_sync(birth.run, limiter=_starts())
        except BaseException:
            birth.abandon()
            raise

    async def warm(self, key: K) -> None:
        """Opens the pool, and waits until one of this kind is ready.

        Raises:
            Exception: as `make`.
        """
        if self.size == 0:
            return
        made = await self.take(key)
        with self._changed:  # opened only now: earlier, its thread would make another one in parallel
            self._open = True
            self._ready.setdefault(key, deque())
            self._start_thread()
        self.put(key, made)

    def want(self, key: K) -> bool:
        """Opens the pool, and starts making this kind in the background. True if one is ready."""
        if self.size == 0:
            return False
        with self._changed:
            if self._owner.take_over():
                self._ready.clear()
                self._thread = None
            self._open = True
            ready = self._ready.setdefault(key, deque())
            self._ready.move_to_end(key)
            self._start_thread()
            self._changed.notify_all()
            return bool(ready)

    def put(self, key: K, made: T) -> None:
        """Adds an unused one."""
        with self._changed:
            ready = self._ready.get(key)
            if ready is not None and len(ready) < self.size:
                ready.append(made)
                self._changed.notify_all()
                return
        made.close()

    def count(self) -> int:
        """Returns the number of ready sandboxes."""
        with self._changed:
            return sum(map(len, self._ready.values()))

    def full(self, timeout_seconds: float) -> bool:
        """Waits until the pool is full. False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._lacking() is None, timeout_seconds)

    def close(self) -> None:
        """Closes all ready ones and ends its thread. Idempotent; `warm` opens it again."""
        with self._changed:
            ready = [made for each in self._ready.values() for made in each]
            self._open = False
            self._ready.clear()
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread() and self._owner.is_current:
            thread.join()
        for made in ready:
            made.close()

    def _pop(self, key: K) -> T | None:
        dead: list[T] = []
        sandbox: T | None = None
        with self._changed:
            if self._owner.take_over():
                self._ready.clear()
                self._thread = None
            if not self._open:
                return None
            ready = self._ready.setdefault(key, deque())
            self._ready.move_to_end(key)
            if len(self._ready) > _KEYS:
                _, dropped = self._ready.popitem(last=False)
                dead.extend(dropped)
            while ready and sandbox is None:
                candidate = ready.popleft()
                if candidate.alive:
                    sandbox = candidate
                else:
                    dead.append(candidate)
            self._start_thread()
            self._changed.notify_all()
        for each in dead:
            each.close()
        return sandbox

    def _start_thread(self) -> None:
        self._last_taken = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._refill, name="corral-pool", daemon=True)
            self._thread.start()

    def _lacking(self) -> K | None:
        for key in reversed(self._ready):
            if len(self._ready[key]) < self.size and key not in self._hopeless:
                return key
        return None

    def _await_need(self, me: threading.Thread) -> K | None:
        """Returns the next kind to start, once nothing was taken for a while; None if the pool is closed."""
        while self._thread is me:
            key = self._lacking()
            wait = None if key is None else self._last_taken + _QUIET_SECONDS - time.monotonic()
            if wait is not None and wait <= 0:
                return key
            self._changed.wait(wait)
        return None

    def _refill(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                key = self._await_need(me)
            if key is None:
                return
            try:
                made = self._make(key, True)
            except Exception as error:
                with self._changed:
                    if self._thread is not me:
                        return
                    expected = isinstance(error, StartFailed)
                    logger.warning("a sandbox could not be started in advance: %s", error, exc_info=not expected)
                    self._hopeless.add(key)  # until the next request
                    self._changed.notify_all()
            else:
                self.put(key, made)


class _Birth(Generic[K, T]):
    """Makes one in a thread. If its caller is cancelled, it goes to the pool once it is made.

    anyio's shield does not hold off asyncio's own cancellation (`asyncio.timeout`, `Task.cancel`), so an unknown
    process would be left behind.
    """

    def __init__(self, pool: Pool[K, T], key: K, *, kept: bool) -> None:
        self._pool = pool
        self._key = key
        self._kept = kept
        self._lock = threading.Lock()
        self._abandoned = False
        self._made: T | None = None

    def run(self) -> T:
        ready = self._pool._pop(self._key) if self._kept else None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        made = ready or self._pool._make(self._key, False)  # pyright: ignore[reportPrivateUsage]
        with self._lock:
            self._made = made
            abandoned = self._abandoned
        if abandoned:
            self._pool.put(self._key, made)
        return made

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            made = self._made
        if made is not None:
            self._pool.put(self._key, made)


def _starts() -> anyio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter((os.cpu_count() or 1) + 1)
        _limiter.set(limiter)
        return limiter

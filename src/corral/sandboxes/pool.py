"""Sandboxes kept for later: a pool of sandboxes started in advance, each used once, and boxes that outlive an
execution."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar, current_token

from corral.concurrency.forks import ProcessOwner
from corral.containment import Space
from corral.errors import StartFailed
from corral.logs import get_logger
from corral.types import SandboxConfig

logger = get_logger("corral.sandboxes")

_QUIET_SECONDS = 0.01
"""Seconds after which a taken sandbox is replaced. Earlier, that would compete with the program that took it."""
_KEYS = 4
"""Maximum number of kinds that are kept ready. The least recently used is dropped first."""
_MAX_IDLE = 8
_MAX_IDLE_SECONDS = 120.0
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("corral.sandboxes.pool")


class _Pooled(Protocol):
    @property
    def alive(self) -> bool: ...
    def close(self) -> None: ...


K = TypeVar("K")
T = TypeVar("T", bound=_Pooled)
E = TypeVar("E")


def default_size() -> int:
    """Returns the default size: one for each processor, at most four. An idle engine uses about 10 MB."""
    return min(4, os.cpu_count() or 1)


class Pool(Generic[K, T]):
    """Keeps `size` sandboxes ready of each recently used kind, from `warm` until `close`.

    At other times each is made on demand, because nothing would end idle ones. Usable from any thread and event loop.
    `make` blocks, and is called in threads, with the kind and with True if it is made in advance.
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
        """Returns a ready sandbox, if `kept`, or a new one. The caller uses it once and closes it.

        Raises:
            Exception: `make` raised it.
        """
        self._hopeless.discard(key)
        ready = self._pop(key) if kept else None
        if ready is not None:
            return ready
        birth = _Birth(self, key, kept=kept)
        try:
            # One more at a time than there are processors; with more, all would be late.
            return await anyio.to_thread.run_sync(birth.run, limiter=_starts())
        except BaseException:
            birth.abandon()
            raise

    async def warm(self, key: K) -> None:
        """Opens the pool, and waits until one of this kind is ready.

        Raises:
            Exception: `make` raised it.
        """
        if self.size == 0:
            return
        made = await self.take(key)
        with self._changed:  # opened only now, because its thread would have made another one in parallel
            self._open = True
            self._ready.setdefault(key, deque())
            self._start_thread()
        self.put(key, made)

    def want(self, key: K) -> bool:
        """Opens the pool, and starts making this kind in the background. Returns True if one is ready."""
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
        """Adds an unused sandbox."""
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
        """Waits until the pool is full. Returns False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._lacking() is None, timeout_seconds)

    def close(self) -> None:
        """Closes all ready sandboxes and ends the thread. Idempotent; `warm` opens the pool again."""
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
        """Returns the next kind to start, once none was taken for a while; None if the pool is closed."""
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
    """Makes a sandbox in a thread. If the caller is cancelled, the sandbox goes to the pool once it is made.

    anyio's shield does not block asyncio's own cancellation (`asyncio.timeout`, `Task.cancel`), which would leave an
    unknown process behind.
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


S = TypeVar("S")


class Box(ABC, Generic[S]):
    """Sandbox that serves several executions, at most `most` at a time. Only one thread at a time may call its
    methods."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._live = 0
        self._idle_since = time.monotonic()
        self.retired = False
        """True if no more executions start in it."""

    @property
    def idle_since(self) -> float | None:
        """Time when its last execution ended, by the monotonic clock; None while one runs."""
        return None if self._live else self._idle_since

    def reserve(self) -> S | None:
        """Returns a slot for one execution of the running event loop; None if it is full or has ended."""
        if self.retired or self._live >= self._most or (place := self.enter()) is None:
            return None
        self._live += 1
        return place

    def retire(self) -> None:
        """Ends the box after its last execution. Idempotent."""
        if not self.retired:
            self.retired = True
            if self._live == 0:
                self.end()

    def leave(self) -> None:
        """Counts one execution less."""
        self._live -= 1
        self._idle_since = time.monotonic()
        if self.retired and self._live == 0:
            self.end()

    @abstractmethod
    def enter(self) -> S | None:
        """Makes a slot for one more execution; returns None if that is impossible."""

    @abstractmethod
    def end(self) -> None:
        """Ends the box, which is retired and empty, at once."""


class OwnedBoxes(Generic[S]):
    """Boxes by configuration, which includes the owner. Usable from any thread and event loop.

    A box without an owner serves one execution. `shared` boxes serve several at a time, so simultaneous requests wait
    for the same new box.
    """

    def __init__(self, *, shared: bool = True) -> None:
        self._shared = shared
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._boxes: OrderedDict[SandboxConfig, list[Box[S]]] = OrderedDict()
        self._turns: dict[tuple[SandboxConfig, object], anyio.Lock] = {}

    async def reserve(self, config: SandboxConfig, make: Callable[[SandboxConfig], Awaitable[Box[S]]]) -> S:
        """Returns a slot in a box of this configuration, which can be new.

        Raises:
            StartFailed: a new box ended at once. Exception: `make` raised it.
        """
        place = self._find(config)
        if place is not None:
            return place
        if not self._shared:
            return self._add(config, await make(config))
        async with self._turn(config):
            return self._find(config) or self._add(config, await make(config))

    async def prepare(self, config: SandboxConfig, make: Callable[[SandboxConfig], Awaitable[Box[S]]]) -> None:
        """Prepares a shared box of this configuration. Raises the errors of `make`."""
        async with self._turn(config):
            if not self.has(config):
                box = await make(config)
                with self._lock:
                    self._boxes.setdefault(config, []).append(box)

    @asynccontextmanager
    async def _turn(self, config: SandboxConfig) -> AsyncGenerator[None]:
        key = config, current_token()
        turn = self._turns.setdefault(key, anyio.Lock())
        try:
            async with turn:
                yield
        finally:
            if not turn.statistics().tasks_waiting and not turn.locked():
                self._turns.pop(key, None)

    def has(self, config: SandboxConfig) -> bool:
        """True if a box of this configuration accepts executions, or is full."""
        with self._lock:
            return self._owner.is_current and any(not box.retired for box in self._boxes.get(config, ()))

    def retire(self, space: Space) -> None:
        """Ends the idle boxes of this space, and busy ones after their last execution."""
        with self._lock:
            for config in [each for each in self._boxes if each.space is space]:
                for box in self._boxes.pop(config):
                    box.retire()

    def close(self) -> list[Box[S]]:
        """Ends idle boxes, and busy ones after their last execution. Returns all of them."""
        with self._lock:
            boxes = [box for each in self._boxes.values() for box in each] if self._owner.is_current else []
            self._boxes.clear()
            for box in boxes:
                box.retire()
            return boxes

    def drop_idle(self) -> bool:
        """Retires boxes that have been idle for too long and, if there are too many, those idle the longest. Returns
        True if any are left."""
        with self._lock:
            self._drop_idle()
            return bool(self._boxes)

    def _find(self, config: SandboxConfig) -> S | None:
        with self._lock:
            if self._owner.take_over():
                self._boxes.clear()
            self._drop_idle()
            boxes = self._boxes.get(config)  # never boxes without an owner
            if boxes is None:
                return None
            self._boxes.move_to_end(config)
            for box in reversed(boxes):
                place = box.reserve()
                if place is not None:
                    return place
            return None

    def _add(self, config: SandboxConfig, box: Box[S]) -> S:
        with self._lock:
            place = box.reserve()
            if place is None:
                box.retire()
                raise StartFailed("the engine ended as soon as it had started")
            if config.owner is None:
                box.retire()  # ends after this one execution
            else:
                self._boxes.setdefault(config, []).append(box)
            return place

    def _drop_idle(self) -> None:
        idle: list[tuple[float, Box[S]]] = []
        for config, boxes in list(self._boxes.items()):
            boxes[:] = [box for box in boxes if not box.retired]
            if not boxes:
                del self._boxes[config]
            idle += [(box.idle_since, box) for box in boxes if box.idle_since is not None]
        idle.sort(key=itemgetter(0))
        now = time.monotonic()
        for position, (since, box) in enumerate(idle):
            if now - since > _MAX_IDLE_SECONDS or position < len(idle) - _MAX_IDLE:
                box.retire()

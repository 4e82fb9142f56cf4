"""Hooks that make a program of a durable execution run the same way whenever it gets the same replies.

Random numbers come from a seed, clocks advance only with replies, timers are calls to the host, and frames are taken
one at a time. A server of durable guests installs the hooks before it imports any package, so that no package keeps the
real functions. Until a program starts, clocks stand still and the seed is empty.
"""

from __future__ import annotations

import asyncio
import binascii
import builtins
import contextvars
import functools
import hashlib
import itertools
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

from corral.guest.python.calls import Calls, PendingCall
from corral.guest.python.frames import FrameKind
from corral.guest.python.loop import Deadlock, Finished, GuestLoop
from corral.guest.python.values import Encoded, decode

TIMER = "$timer"
"""Service of durable executions that replies after a number of milliseconds."""
_NEVER = 2.0**63 / 1e9
"""Number of seconds that CPython's own clocks cannot represent, such as infinity."""
_Bytes = bytes


class World:
    """Random numbers and clocks of a program."""

    def __init__(self) -> None:
        self.wall = self.active = 0.0
        """Clocks in milliseconds: since the epoch, and while the execution was active."""
        self.timers = 0
        self._key = b""
        self._blocks = self._drawn = self._console = 0
        self._origin = 0.0
        """Active time at the start of the program."""
        self._rest = b""
        self.sleep: Callable[[float], None] = lambda _seconds: None

    def begin(self, seed: str, now: float) -> None:
        """Starts a program. In a notebook, clocks continue from the cell before."""
        self.wall, self._key = max(self.wall, now), _Bytes.fromhex(seed)
        self._origin = self.active
        self._blocks = self._drawn = self._console = self.timers = 0
        self._rest = b""

    def advance(self, wall: float, active: float) -> None:
        """Takes the clocks of a reply."""
        self.wall = max(self.wall, wall)
        self.active = max(self.active, self._origin + active)

    def draw(self, size: int, /) -> bytes:
        """Returns random bytes, as `os.urandom` does."""
        self._drawn += size
        blocks = [self._rest]
        left = size - len(self._rest)
        while left > 0:
            blocks.append(hashlib.blake2b(self._blocks.to_bytes(8, "big"), key=self._key).digest())
            self._blocks += 1
            left -= 64
        stream = b"".join(blocks)
        self._rest = stream[size:]
        return stream[:size]

    def note(self, output: bytes) -> None:
        """Adds console output to the digest."""
        self._console = binascii.crc32(output, self._console)

    @property
    def digest(self) -> str:
        """Returns a digest of the random numbers drawn, timers and console output."""
        state = hash(sys.modules["random"]._inst.getstate()[1]) & 0xFFFFFFFF  # noqa: SLF001
        return f"{self._drawn}/{self.timers}/{state:x}/{self._console:x}"


_world = World()


class DurableSource:
    """Source of replies of a durable program. It takes them one at a time, and sets timers at the host."""

    def __init__(self, pipes: Any, calls: Calls) -> None:
        self._pipes = pipes
        self._calls = calls
        self._frames: deque[tuple[int, bytes, bool]] = deque()
        self._armed: dict[int, float] = {}
        """Active times in seconds for which the loop has set timers, by the number of their call."""

    def begin(self, start: Mapping[str, Any]) -> None:
        """Starts a program with the seed and the time of its START. Nothing of an earlier cell is left."""
        self._frames.clear()
        self._armed.clear()
        _world.begin(start["seed"], start["now"])

    def note(self, output: bytes) -> None:
        _world.note(output)

    @property
    def state(self) -> bytes:
        return b',%d,"%b"' % (self._calls.made, _world.digest.encode())

    def wait(self, until: float | None, expects: bool, flush: Callable[[], None]) -> None:
        """Waits for one frame, or until this active time unless it is too far away for a timer.

        Raises:
            Deadlock: there is nothing to wait for.
            Finished: no more replies will come.
        """
        if until is not None and until >= _NEVER:
            until = None
        for sequence, when in [*self._armed.items()]:
            if until is None or when < until:
                del self._armed[sequence]
                self._pipes.append(FrameKind.CANCEL, b"[%d]" % sequence)
        if until is not None and until not in self._armed.values():
            self._armed[self._timer(until)] = until
        elif until is None and not expects:
            raise Deadlock("the program waits for something that cannot happen: no tool call or timer is left")
        flush()
        self.receive()

    def _timer(self, until: float) -> int:
        _world.timers += 1
        milliseconds = repr(round(max(0.0, until * 1000 - _world.active), 3))
        return self._calls.timer(TIMER, Encoded(milliseconds.encode(), tagged=False, replaced=False))

    def sleep(self, seconds: float) -> None:
        """Waits for one reply, blocking. Other replies are taken afterwards."""
        if not seconds >= 0:
            raise ValueError("sleep length must be non-negative")
        if seconds >= _NEVER:
            raise OverflowError("timestamp too large to convert to C PyTime_t")
        if seconds == 0:
            return
        until = _world.active / 1000 + seconds
        timer = self._timer(until)
        GuestLoop.source.flush()
        held: list[tuple[int, bytes, bool]] = []
        mark = b"[%d," % timer
        while (frame := self._next())[0] != FrameKind.FINISH:
            if frame[0] == FrameKind.PING:
                self._answer(frame)
            elif frame[0] == FrameKind.REPLY and frame[1].startswith(mark):
                self._take(frame)
                break
            else:
                held.append(frame)
        else:
            held.append(frame)
        _world.active = max(_world.active, until * 1000)
        self._frames.extendleft(reversed(held))

    def receive(self) -> None:
        """Takes one frame, after answering any PINGs before it."""
        while (frame := self._next())[0] == FrameKind.PING:
            self._answer(frame)
        if frame[0] == FrameKind.FINISH:
            raise Finished
        self._take(frame)

    def _answer(self, ping: tuple[int, bytes, bool]) -> None:
        self._pipes.append(FrameKind.PONG, b"%b%b]" % (ping[1][:-1], self.state))
        self._pipes.flush()

    def _next(self) -> tuple[int, bytes, bool]:
        while not self._frames:
            self._frames.extend(self._pipes.read_replies())
        return self._frames.popleft()

    def _take(self, frame: tuple[int, bytes, bool]) -> None:
        kind, payload, tagged = frame
        content: list[Any] = decode(payload, tagged=tagged)
        if kind == FrameKind.CHUNK:
            self._calls.deliver(*content)
            return
        sequence, succeeded, value, wall, active, *_ = content
        _world.advance(wall, active)
        if (when := self._armed.pop(sequence, None)) is not None:
            _world.active = max(_world.active, when * 1000)
        elif succeeded:
            self._calls.settle(sequence, value)
        else:
            self._calls.fail(sequence, *value)


def install_hooks() -> None:
    """Replaces functions whose results differ between two runs of a program. Call it before packages are imported."""
    _hook_clocks()
    _hook_chance()
    _hook_datetimes()
    _hook_asyncio()
    _hook_threads()
    _hook_classes()


def begin_durably(start: Mapping[str, Any], pipes: Any, calls: Calls) -> DurableSource:
    """Prepares the process for its first program, and starts that."""
    import random
    import uuid

    source = DurableSource(pipes, calls)
    source.begin(start)
    _world.sleep = source.sleep
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(int.from_bytes(_world.draw(4), "big"))
    node: Any = uuid
    node._node = int.from_bytes(_world.draw(6), "big") | 1 << 40  # noqa: SLF001
    node._last_timestamp = None  # noqa: SLF001
    os.getpid, os.getppid = lambda: 2, lambda: 1
    threads: Any = threading
    main = threads.main_thread()
    main._ident = main._native_id = 2  # noqa: SLF001
    threads._active = {2: main}  # noqa: SLF001
    for module in (threads, sys.modules["_thread"]):
        setattr(module, "get_ident", lambda: 2)  # noqa: B010
        setattr(module, "get_native_id", lambda: 2)  # noqa: B010
    _hook_loop(source)
    return source


def _active_seconds() -> float:
    return _world.active / 1000


def _wall_seconds() -> float:
    return _world.wall / 1000


def _hook_clocks() -> None:
    module: Any = time
    real: Any = SimpleNamespace(
        **{name: getattr(time, name) for name in ("localtime", "gmtime", "asctime", "strftime")}
    )

    def reads(clock: int) -> float:
        return _wall_seconds() if clock in wall_clocks else _active_seconds()

    def reads_ns(clock: int) -> int:
        return wall_ns() if clock in wall_clocks else active_ns()

    def localtime(seconds: float | None = None, /) -> Any:
        return real.localtime(_wall_seconds() if seconds is None else seconds)

    def gmtime(seconds: float | None = None, /) -> Any:
        return real.gmtime(_wall_seconds() if seconds is None else seconds)

    def ctime(seconds: float | None = None, /) -> str:
        return real.asctime(localtime(seconds))

    def asctime(moment: Any = None, /) -> str:
        return real.asctime(localtime() if moment is None else moment)

    def strftime(form: str, moment: Any = None, /) -> str:
        return real.strftime(form, localtime() if moment is None else moment)

    def sleep(seconds: float, /) -> None:
        _world.sleep(seconds)

    def active_ns() -> int:
        return int(_world.active * 1_000_000)

    def wall_ns() -> int:
        return int(_world.wall * 1_000_000)

    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(module, name, _active_seconds)
        setattr(module, f"{name}_ns", active_ns)
    wall_clocks = {time.CLOCK_REALTIME, getattr(time, "CLOCK_TAI", None)}
    module.time, module.time_ns = _wall_seconds, wall_ns
    module.clock_gettime, module.clock_gettime_ns = reads, reads_ns
    for replacement in (localtime, gmtime, ctime, asctime, strftime, sleep):
        setattr(module, replacement.__name__, replacement)
    os.times = lambda: os.times_result((_active_seconds(), 0.0, 0.0, 0.0, _active_seconds()))


def _hook_chance() -> None:
    os.urandom = _world.draw
    os.getrandom = lambda size, _flags=0: _world.draw(size)  # type: ignore[assignment]
    import random
    import uuid

    module: Any = random
    module._urandom = _world.draw  # noqa: SLF001
    seed = random.Random.seed

    def seed_by_world(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed(self, int.from_bytes(_world.draw(32), "big") if a is None else a, version)

    random.Random.seed = seed_by_world  # type: ignore[method-assign]
    module.seed = module._inst.seed  # noqa: SLF001  # bound before
    ids: Any = uuid
    ids._generate_time_safe = ids._UuidCreate = None  # noqa: SLF001


def _hook_datetimes() -> None:
    """Replaces methods in the classes themselves, because extensions derive their classes from these."""
    import ctypes
    import datetime
    import gc

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(_wall_seconds(), tz)

    def utcnow(cls: Any) -> Any:
        return cls.fromtimestamp(_wall_seconds(), datetime.UTC).replace(tzinfo=None)

    def today(cls: Any) -> Any:
        return cls.fromtimestamp(_wall_seconds())

    for kind, methods in ((datetime.datetime, (now, utcnow, today)), (datetime.date, (today,))):
        members: Any = gc.get_referents(kind.__dict__)[0]
        for method in methods:
            members[method.__name__] = classmethod(method)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


_hash_numbers = itertools.count(1)


class _NumberedFuture(asyncio.Future[Any]):
    """Hashes by a number: the order of a set depends on hashes, and addresses differ each time."""

    def __init__(self, **options: Any) -> None:
        self._number = next(_hash_numbers)
        super().__init__(**options)

    def __hash__(self) -> int:
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    def __init__(self, coro: Any, **options: Any) -> None:
        self._number = next(_hash_numbers)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


def _number_of_call(call: PendingCall) -> int:
    try:
        return call.number
    except AttributeError:
        call.number = next(_hash_numbers)
        return call.number


def _hook_asyncio() -> None:
    module: Any = asyncio
    completed: Any = asyncio.as_completed

    def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
        if asyncio.iscoroutine(fs) or asyncio.isfuture(fs):
            return completed(fs, timeout=timeout)  # which rejects it
        return completed([asyncio.ensure_future(each) for each in dict.fromkeys(fs)], timeout=timeout)

    async def to_thread(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return contextvars.copy_context().run(func, *args, **kwargs)

    module.as_completed = module.tasks.as_completed = functools.update_wrapper(as_completed, completed)
    module.to_thread = module.threads.to_thread = functools.update_wrapper(to_thread, asyncio.to_thread)
    PendingCall.__hash__ = _number_of_call  # type: ignore[method-assign,assignment]


def _hook_loop(source: DurableSource) -> None:
    loop: Any = GuestLoop
    create_task = loop.create_task

    def numbered_task(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return _NumberedTask(coro, loop=loop, **options)

    def select(self: Any, timeout: float | None) -> list[Any]:
        """Waits for one reply, once nothing is left to run."""
        if not self._ready and timeout != 0:
            until = None if timeout is None else self._scheduled[0].when()
            source.wait(until, self.source.expects, self.source.flush)
        return []

    def run_in_executor(self: GuestLoop, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # noqa: ARG001
        return _in_line(self.create_future(), func, *args)

    def create_numbered_task(self: GuestLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if self.get_task_factory() is None:
            self.set_task_factory(numbered_task)
        return create_task(self, coro, **options)

    def now(_: Any) -> float:
        return _active_seconds()

    def create_future(self: Any) -> asyncio.Future[Any]:
        return _NumberedFuture(loop=self)

    loop.select, loop.run_in_executor, loop.create_task = select, run_in_executor, create_numbered_task
    loop.time, loop.create_future = now, create_future


def _in_line(future: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        future.set_result(func(*args, **kwargs))
    except BaseException as error:  # like a thread of a pool
        future.set_exception(error)
    return future


def _hook_threads() -> None:
    import _thread
    import concurrent.futures as futures
    import concurrent.futures.thread as pools
    import signal

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            "threads and signals interrupt a program at any moment, which a durable execution could not repeat; "
            "use asyncio, asyncio.to_thread or ThreadPoolExecutor, which run inline here"
        )

    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if self._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return _in_line(futures.Future(), fn, *args, **kwargs)

    def in_order(fs: Any, timeout: float | None = None) -> Iterator[Any]:  # noqa: ARG001
        return iter([*dict.fromkeys(fs)])

    def wait_alone(self: Any, timeout: float | None = None) -> bool:
        """Just waits for the time to pass, because no thread could notify."""
        if not self._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        if timeout is None:
            raise Deadlock("the program waits for another thread, but durable executions have only one")
        _world.sleep(max(0.0, timeout))
        return False

    any_threading: Any = threading
    any_threading._time = _active_seconds  # noqa: SLF001
    any_threading.Condition.wait = wait_alone
    any_threading.Thread.start = refuse
    for module, name in (
        *((_thread, name) for name in ("start_new_thread", "start_new", "start_joinable_thread")),
        *((threading, name) for name in ("_start_new_thread", "_start_joinable_thread")),
        *((signal, name) for name in ("alarm", "setitimer")),
    ):
        if hasattr(module, name):
            setattr(module, name, refuse)
    pools.ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
    base: Any = vars(futures)["_base"]
    futures.as_completed = base.as_completed = in_order
    real_wait = base.wait

    def wait(fs: Any, *args: Any, **kwargs: Any) -> Any:
        return real_wait([*dict.fromkeys(fs)], *args, **kwargs)

    futures.wait = base.wait = wait


def _hook_classes() -> None:
    """Gives objects of the program's own classes a hash and a repr from a number instead of their address."""
    build: Any = builtins.__build_class__
    numbers: dict[int, tuple[Any, int]] = {}

    def number(self: Any) -> int:
        key = id(self)
        if (entry := numbers.get(key)) is None:
            entry = numbers[key] = weakref.ref(self, lambda _: numbers.pop(key, None)), next(_hash_numbers)
        return entry[1]

    def numbered_repr(self: Any) -> str:
        name = f"{self.__class__.__module__}.{self.__class__.__qualname__}"
        return f"<{name} object at 0x{0x7F0000000000 + 16 * number(self):x}>"

    def build_class(func: Any, name: str, /, *bases: Any, **options: Any) -> Any:
        kind = build(func, name, *bases, **options)
        if isinstance(kind, type) and kind.__module__ == "__main__" and kind.__weakrefoffset__:
            if kind.__hash__ is object.__hash__:
                kind.__hash__ = number  # type: ignore[method-assign,assignment]
            if kind.__repr__ is object.__repr__:
                kind.__repr__ = numbered_repr  # type: ignore[method-assign,assignment]
        return kind

    builtins.__build_class__ = build_class

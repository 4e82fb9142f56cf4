"""Host side: a few workers for the whole process, shared fairly among owners."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

import anyio

from corral.concurrency.descriptors import await_readable, await_writable
from corral.concurrency.fairness import INLINE_BYTES, FairQueue
from corral.concurrency.forks import after_fork
from corral.concurrency.threads import run_in_own_thread
from corral.errors import CorralError, StartFailed
from corral.jail import LauncherClient, Plan
from corral.jail.process import ContainedProcess, can_limit
from corral.jail.workers.wire import HEADER, MAX_REPLY_BYTES, Failed, Request, framed, read_reply
from corral.jail.workers.worker import BOOT, READY
from corral.logs import get_logger

if TYPE_CHECKING or sys.platform != "win32":
    import resource

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

logger = get_logger("corral.jail.workers")

_MEMORY_BYTES = 1 << 30
"""RLIMIT_DATA of a worker. With the grammars and pydantic imported it uses about 60 MB."""
_KEPT_BYTES = 300 << 20
"""Bytes of memory. A worker that uses more than this after a job is ended."""
_IDLE_SECONDS = 30.0
_START_SECONDS = 30.0
_WALL_FACTOR = 10
"""Wall-clock limit as a multiple of the limit on processor time, because the machine can be busy."""
_MOST_WAITING = 256
"""Maximum number of waiting jobs per owner."""
_LEAST_WAIT_SECONDS = 0.01


class WorkerError(CorralError):
    """Work was abandoned: it took too long or too much memory, or its owner had too many jobs waiting."""

    code = "worker_error"


class _Job:
    """Job that waits or runs. `ended` is a descriptor that becomes readable when it is over."""

    def __init__(self, request: bytes, function: Callable[..., object], seconds: float, owner: Hashable) -> None:
        self.request = request
        self.function = function
        self.seconds = seconds
        self.owner = owner
        self.ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._abandoned = False
        self._process: ContainedProcess | None = None
        self._answer: object = None

    @contextlib.contextmanager
    def under_way(self, process: ContainedProcess) -> Generator[None]:
        """Kills the process if the job is abandoned during the block.

        Raises:
            WorkerError: the job has already been abandoned.
        """
        with self._lock:
            if self._abandoned:
                raise WorkerError("the work was cancelled")
            self._process = process
        try:
            yield
        finally:
            with self._lock:
                self._process = None

    def end(self, answer: object) -> None:
        with self._lock:
            self._answer = answer
            if not self._abandoned:
                os.eventfd_write(self.ended, 1)

    def abandon(self) -> None:
        """Cancels the job, started or not, and discards its result."""
        with self._lock:
            self._abandoned = True
            os.close(self.ended)
            if self._process is not None:
                self._process.kill()

    def result(self) -> Any:
        match self._answer:
            case Failed(error=None, text=text):
                raise WorkerError(text)
            case Failed(error=BaseException() as error):
                raise error
            case answer:
                return answer


class Workers:
    """Runs functions in up to `size` processes, each started on demand and ended when idle.

    Owners take turns. If there are several processes, no owner ever has all of them.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size or min(4, max(2, os.cpu_count() or 1))
        self._changed = threading.Condition()
        self._waiting: FairQueue[_Job] = FairQueue()
        self._running: Counter[Hashable] = Counter()
        self._threads = 0
        self._idle = 0
        self._closing = False
        self._modules: set[str] = set()
        self._launcher = LauncherClient()

    async def run(
        self,
        function: Callable[[Unpack[Arguments]], T],
        *args: *Arguments,
        seconds: float,
        owner: Hashable = None,
    ) -> T:
        """Runs a module-level function in a worker and returns its result. Cancelling the call ends the work.

        `seconds` are processor time. Arguments are pickled. The result is sent as JSON, and parsed as the function's
        annotated return type.

        Raises:
            WorkerError: the work was abandoned, or raised an exception that is not corral's own. CorralError: the
            function raised it.
        """
        job = self._submit(function, args, seconds, owner)
        try:
            await anyio.wait_readable(job.ended)
            return job.result()
        finally:
            self._drop(job)

    def _submit(self, function: Callable[..., Any], args: tuple[Any, ...], seconds: float, owner: Hashable) -> _Job:
        module = function.__module__
        request = framed(Request(module, function.__qualname__, args))
        with self._changed:
            if self._waiting.count(owner) >= _MOST_WAITING:
                raise WorkerError(f"{_MOST_WAITING} jobs of the same user are already waiting; try again later")
            job = _Job(request, function, seconds, owner)
            self._waiting.add(owner, job)
            self._modules.add(module)
            self._closing = False
            self._changed.notify()
            if len(self._waiting) > self._idle and self._threads < self.size:
                self._threads += 1
                threading.Thread(target=self._serve, name="corral-worker", daemon=True).start()
        return job

    def _drop(self, job: _Job) -> None:
        with self._changed:
            self._waiting.discard(job.owner, job)
        job.abandon()

    def close(self) -> None:
        """Ends all workers. Later work starts new ones."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._launcher.close()

    def _serve(self) -> None:
        """Runs jobs until the queue has been empty for a while."""
        worker: _Worker | None = None
        try:
            while (job := self._next()) is not None:
                try:
                    worker = self._do(job, worker)
                finally:
                    self._done(job)
        finally:
            if worker is not None:
                worker.close()

    def _do(self, job: _Job, worker: _Worker | None) -> _Worker | None:
        """Runs the job in this worker or in another one. Returns the worker if it is still usable."""
        if worker is not None and not worker.fits(job.function.__module__):
            worker.close()
            worker = None
        try:
            if worker is None:
                worker = _Worker(self._launcher, sorted(self._modules))
            answer = worker.answer(job)
        except (StartFailed, WorkerError) as error:
            answer = Failed(error, str(error))
            if worker is not None:
                worker.close()
            worker = None
        except BaseException as error:
            logger.warning("a worker could not be used", exc_info=True)
            answer = Failed(WorkerError(f"the worker could not be used: {type(error).__name__}"), "")
            if worker is not None:
                worker.close()
            worker = None
        job.end(answer)
        return worker

    def _next(self) -> _Job | None:
        """Returns the next job of the owner whose turn it is; None if this thread is no longer needed."""
        deadline = time.monotonic() + _IDLE_SECONDS
        with self._changed:
            while True:
                with contextlib.suppress(LookupError):
                    job = self._waiting.take(lambda owner: self._running[owner] < max(1, self.size - 1))
                    self._running[job.owner] += 1
                    return job
                if time.monotonic() >= deadline or (self._closing and not self._waiting):
                    self._threads -= 1
                    if self._threads == 0:
                        self._launcher.close()
                    return None
                self._idle += 1
                self._changed.wait(deadline - time.monotonic())
                self._idle -= 1

    def _done(self, job: _Job) -> None:
        with self._changed:
            self._running[job.owner] -= 1
            if not self._running[job.owner]:
                del self._running[job.owner]
            if self._waiting:
                self._changed.notify()


_shared = Workers()


def _forget() -> None:
    """Discards the parent's processes and threads after a fork."""
    global _shared
    _shared = Workers()


def _end() -> None:
    _shared.close()


after_fork(_forget)
atexit.register(_end)


async def run_in_worker(
    function: Callable[[Unpack[Arguments]], T], *args: *Arguments, seconds: float, owner: Hashable = None
) -> T:
    """Calls `Workers.run` on this process's workers. On systems other than Linux, runs it in a thread without a
    limit."""
    if not can_limit:
        return await run_in_own_thread(function, *args)
    return await _shared.run(function, *args, seconds=seconds, owner=owner)


async def run_bounded(
    function: Callable[[Unpack[Arguments]], T], *args: *Arguments, size: int, seconds: float, owner: Hashable = None
) -> T:
    """Runs the function here if its input is short (`size` bytes), and otherwise as `run_in_worker`."""
    if size <= INLINE_BYTES:
        return function(*args)
    return await run_in_worker(function, *args, seconds=seconds, owner=owner)


class _Worker:
    """Worker process. Creating it blocks until the modules are imported.

    Raises:
        StartFailed: the process does not start.
    """

    def __init__(self, launcher: LauncherClient, modules: list[str]) -> None:
        self._modules = frozenset(modules)
        paths = json.dumps([path for path in sys.path if path])
        plan = Plan(
            executable=Path(sys.executable),
            arguments=(sys.executable, "-I", "-B", "-c", BOOT, paths, *modules),
            environment={"LC_CTYPE": "C.UTF-8"},
            limits=(
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_FSIZE, 0),
                (resource.RLIMIT_NOFILE, 64),
                (resource.RLIMIT_DATA, _MEMORY_BYTES),
            ),
        )
        self._process = ContainedProcess.spawn(launcher, plan)
        self._buffer = bytearray()
        self._is_full = False
        try:
            while len(self._buffer) < len(READY):
                self._buffer += self._process.await_output(_START_SECONDS)
            if bytes(self._buffer) != READY:
                raise StartFailed("the worker wrote something other than READY")
            self._buffer.clear()
        except BaseException:
            self._process.close()
            raise

    def fits(self, module: str) -> bool:
        """True if the worker can run a job of this module now. A worker with unsolicited output can be compromised."""
        silent = not self._buffer and self._process.read_now() is None
        return silent and module in self._modules and not self._is_full and self._process.alive

    def answer(self, job: _Job) -> object:
        """Returns the function's result.

        Raises:
            WorkerError: the job took too long, or the process ended. The worker is then unusable.
        """
        process = self._process
        with job.under_way(process):
            until = process.cpu_time() + job.seconds
            deadline = time.monotonic() + job.seconds * _WALL_FACTOR
            self._write(job.request, deadline)
            (length,) = HEADER.unpack(self._read(HEADER.size, until, deadline))
            if length > MAX_REPLY_BYTES:
                raise WorkerError("the worker's reply is too large")
            data = self._read(length, until, deadline)
            self._is_full = process.data_bytes() > _KEPT_BYTES
        try:
            return read_reply(data, job.function)
        except Exception as error:
            raise WorkerError(f"the answer cannot be read: {type(error).__name__}") from None  # its text can be large

    def close(self) -> None:
        self._process.close()

    def _write(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            written = self._process.write_now(rest)
            rest = rest[written:]
            if rest and not await_writable(self._process.input, deadline - time.monotonic()):
                raise WorkerError("the worker does not read its requests")

    def _read(self, size: int, until: float, deadline: float) -> bytes:
        while len(self._buffer) < size:
            data = self._process.read_now()
            if data is None:
                self._wait(until, deadline)
            elif data:
                self._buffer += data
            else:
                tail = self._process.error_tail()
                if "MemoryError" in tail:
                    raise WorkerError("it takes too much memory")
                raise WorkerError("the worker ended, probably for lack of memory")
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _wait(self, until: float, deadline: float) -> None:
        left = min(until - self._process.cpu_time(), deadline - time.monotonic())
        if left <= 0:
            raise WorkerError("it takes too long")
        await_readable(self._process.output, max(left, _LEAST_WAIT_SECONDS))

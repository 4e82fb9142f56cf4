"""One guest process: raw pipes, limits set from outside, and an end that is certain.

Streams of an event loop cost four times what a raw descriptor costs per message, so the pipes are read and written
directly, without blocking. Limits are set with prlimit(2) on the running child: no code of ours runs between fork and
exec, which in a threaded host would not be safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from corral.errors import StartFailed
from corral.sandboxes.loops import readable

__all__ = ["GuestProcess", "can_limit"]

T = TypeVar("T")

can_limit = sys.platform == "linux"
"""Whether this system can set another process's limits (prlimit) and read its processor clock."""

_PIPE_BYTES = 1 << 20
"""Linux lets an unprivileged process have pipes of one mebibyte (/proc/sys/fs/pipe-max-size)."""
_READ_BYTES = 1 << 16
"""More would make the allocator map and unmap memory for every read."""
_GARBAGE_MB = 32
"""Room for what an engine has dropped and not collected yet: with 64 MB of memory, a loop over buffers of 0.7 MB, of
which one is alive at a time, needs more than 0 and less than 16 (V8 15)."""
_STDERR_TAIL_BYTES = 16_384


class GuestProcess:
    """A child with pipes on its standard streams, in a session of its own so that Ctrl-C does not reach it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._input = process.stdin.fileno()
        self._output = process.stdout.fileno()
        self._errors = process.stderr.fileno()
        for descriptor in (self._input, self._output, self._errors):
            os.set_blocking(descriptor, False)
        for descriptor in (self._input, self._output):
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._closed = False

    @classmethod
    async def spawn(cls, command: Sequence[str], env: Mapping[str, str]) -> GuestProcess:
        """Starts `command` with exactly `env`.

        Raises:
            StartFailed: the program does not exist or cannot be executed.
        """

        birth = _Birth(command, env)
        try:
            return cls(await _in_thread(birth.start))
        except OSError as error:
            raise StartFailed(f"cannot start the engine {command[0]}: {error.strerror or error}") from error
        except BaseException:
            birth.abandon()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self) -> bytes:
        """Some bytes of its output, or `b""` at its end."""
        while True:
            try:
                return os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._output)

    def reading(self, receive: Callable[[bytes], None]) -> AbstractAsyncContextManager[None]:
        """Within the block, `receive` gets its output as it comes, and `b""` once at its end. It must not raise."""

        def notify() -> bool:
            try:
                data = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                return True
            receive(data)
            return bool(data)

        return readable(self._output, notify)

    def write_now(self, data: bytes | bytearray) -> int:
        """Writes what the pipe takes at once, and returns how many bytes that was."""
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)

    async def write(self, data: bytes | bytearray) -> None:
        """Writes all of `data`. A guest that is gone takes it silently: its end shows in what is read."""
        written = self.write_now(data)
        while written < len(data):
            await anyio.wait_writable(self._input)
            written += self.write_now(data[written:])

    def limit(self, *, cpu_seconds: float, memory_mb: int) -> None:
        """Bounds what it may use from now on: `cpu_seconds` rounded up, a backstop for `cpu_time`; memory exactly.

        The kernel counts private writable memory (RLIMIT_DATA). An engine reserves hundreds of megabytes of it while it
        stands still, so the limit is what it has now plus `memory_mb` and some room for garbage.
        """
        if not can_limit:
            return
        data = _data_bytes(self.pid) + (memory_mb + _GARBAGE_MB) * (1 << 20)
        cpu = int(self.cpu_time() + cpu_seconds) + 1
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_CORE, (0, 0))
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (cpu, cpu + 1))
            resource.prlimit(self.pid, resource.RLIMIT_DATA, (data, data))

    def cpu_time(self) -> float:
        """Processor seconds of all its threads, 0 once it is gone.

        The clock of another process has the number `~pid << 3 | 2` (CPUCLOCK_SCHED in the kernel's posix-timers.h, as
        clock_getcpuclockid(3) computes it).
        """
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0

    def error_tail(self) -> str:
        """The last of what the engine itself wrote to its standard error. Diagnostics only; a guest may write it."""
        tail = b""
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._errors, _READ_BYTES):
                tail = (tail + data)[-_STDERR_TAIL_BYTES:]
        return tail.decode("utf-8", "replace")

    def kill(self) -> None:
        """Ends it at once. Idempotent."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def wait(self, grace_seconds: float) -> int:
        """Its exit status, the code or minus the signal. What has not ended by itself within the grace is killed."""
        if (status := self._process.poll()) is not None:
            return status

        def reap() -> int:
            try:
                return self._process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                return self._process.wait()

        return await _in_thread(reap)

    async def aclose(self) -> None:
        """Kills it, reaps it and closes the pipes. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        try:
            if self._process.poll() is None:
                await _in_thread(self._process.wait)
        finally:
            _close_pipes(self._process)


class _Birth:
    """Starts a process in a thread. If whoever waits for it goes away, the process is ended, however late it comes.

    anyio's shield does not hold off asyncio's own cancellation (`asyncio.timeout`, `Task.cancel`), so a child that
    nobody knows of would be left behind.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env
        self._lock = threading.Lock()
        self._abandoned = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            env=self._env,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
            if self._abandoned:
                _end(process)
        return process

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._process is not None:
                _end(self._process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    _close_pipes(process)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


async def _in_thread(function: Callable[[], T]) -> T:
    """Runs `function` in a thread, not given up when the task is cancelled.

    The thread is not one of those that sync tools share, or those could keep a guest from starting or ending.
    """
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await anyio.to_thread.run_sync(function, limiter=anyio.CapacityLimiter(1)))
    return results[0]


def _data_bytes(pid: int) -> int:
    """VmData: the sixth field of /proc/PID/statm, in pages (proc_pid_statm(5))."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[5])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")

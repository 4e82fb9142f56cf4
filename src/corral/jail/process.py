"""Contained process: raw streams, limits set from outside, and guaranteed termination.

Pipes and connections are read and written directly, without blocking, because a message through an event loop's streams
costs four times as much.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self

import anyio

from corral.concurrency.descriptors import why_no_descriptors
from corral.concurrency.event_loop import watch_readable
from corral.errors import StartFailed
from corral.jail.launcher import ERRORS_BYTES, receive
from corral.jail.launcher_client import Child, LauncherClient, Plan

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl
    import resource

can_limit = sys.platform == "linux"
"""True if this system can bound a process's memory and read its processor clock."""

_PIPE_BYTES = 1 << 20
"""Largest pipe that Linux allows an unprivileged process (/proc/sys/fs/pipe-max-size)."""
_READ_BYTES = 1 << 16
"""Maximum bytes per read. With more, the allocator would map and unmap memory for every read."""
_SAID_LINES, _SAID_CHARS = 2, 400
_LIFELINE_BYTES = ERRORS_BYTES + 1
_INFO_BYTES = 4096
_PROC_BYTES = 4096


class ContainedProcess:
    """Guest with pipes or a connection as its standard streams, in its own session so that Ctrl-C does not reach it.

    Created by `spawn`, which does not wait. `await_output` waits; call it in a thread.
    """

    def __init__(self, child: Child) -> None:
        self._end_by = signal.SIGKILL
        self.input = child.stdin
        self.output = child.stdout
        self._errors = child.stderr
        self._lifeline = child.lifeline
        self._info = child.info
        """Pipe on which the wrapper reports the guest's process; None after the report."""
        self._wrapped = child.info is not None
        self._control: socket.socket | None = None
        """Connection of a guest that forks."""
        self._process: int | None = None
        """Descriptor of the guest's process or, while `_info` is open, of its wrapper's. The wrapper ends with the
        guest."""
        self._status: int | None = None
        self.failure: str | None = None
        """Reason why the process was not created."""
        self._closed = False
        self._cpu_seconds: float | None = None
        self._cpu_again = False
        self._killed = False
        self._waiting: anyio.Event | None = None
        self._tail = b""
        self.pid = 0
        """Process number of the guest itself; 0 until it is known."""
        os.set_blocking(self.output, False)
        if self._errors is None:
            return
        os.set_blocking(self.input, False)
        os.set_blocking(self._errors, False)
        for descriptor in (self.input, self.output):
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @classmethod
    def spawn(cls, launcher: LauncherClient, plan: Plan, *, options: int | None = None) -> Self:
        """Starts a process through the launcher. For `options` see `LauncherClient.spawn`.

        Raises:
            StartFailed: the launcher is unavailable, or no descriptors are left.
        """
        try:
            made = cls(launcher.spawn(plan, options=options))
        except OSError as error:
            raise StartFailed(f"cannot start a sandbox: {why_no_descriptors(error)}") from error
        if plan.supervise:
            made._end_by = signal.SIGTERM
        return made

    def await_output(self, seconds: float) -> bytes:
        """Blocks until the guest has written something, and returns it.

        Raises:
            StartFailed: it did not start, ended without output, or took longer than `seconds`.
        """
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        poll.poll(seconds * 1000)
        data = self.read_now()
        if data is None:
            raise StartFailed(f"the engine did not report that it is ready within {seconds:g} s")
        if not data:
            poll.unregister(self.output)
            poll.register(self._lifeline, select.POLLIN)
            while self._status is None and self.failure is None and poll.poll(seconds * 1000):
                self._hear()
            reason = self.failure or f"status {self._status}"
            raise StartFailed(f"the engine did not start: {reason} {self.last_words()}".strip())
        self._hear()
        if self._info is not None:
            try:
                pid = _wrapped_pid(self._info)
                self._unwrap(pid, os.pidfd_open(pid))  # the guest has just written, so its wrapper is alive too
            except (OSError, ValueError, KeyError) as error:
                raise StartFailed(f"the engine ended as soon as it had started: {error}") from error
        return data

    def take_streams(self) -> tuple[int, int, int]:
        """Returns the pipes of standard input, output and error, which the caller has to close."""
        assert self._errors is not None
        streams = self.input, self.output, self._errors
        self.input = self.output = self._errors = -1
        return streams

    async def await_wrapped(self) -> None:
        """Waits until the wrapper has reported the guest's process, and stores its `pid`.

        Raises:
            StartFailed: the wrapper failed first; the message has its reason.
        """
        assert self._info is not None
        report = b""
        while b"}" not in report:  # the report arrives in pieces
            await anyio.wait_readable(self._info)
            piece = os.read(self._info, _INFO_BYTES)
            if not piece:
                await self._ended()
                raise StartFailed(f"the command did not start: {self.failure or self._status}")
            report += piece
        self._hear()
        wrapper, self.pid = self.pid, json.loads(report)["child-pid"]
        with contextlib.suppress(OSError):  # the guest has ended, and another process may have its number
            guest = os.pidfd_open(self.pid)
            if _parent(self.pid) == wrapper:
                self._unwrap(self.pid, guest)
            else:
                os.close(guest)

    def _unwrap(self, pid: int, process: int) -> None:
        """Watches the guest's process in place of the wrapper's. The lifeline still reports on the wrapper."""
        self.pid = pid
        for descriptor in (self._process, self._info):
            if descriptor is not None:
                os.close(descriptor)
        self._process, self._info = process, None

    async def await_born(self) -> None:
        """Waits until the process exists and its `pid` is known.

        Raises:
            StartFailed: it was not created.
        """
        while self._process is None and self.failure is None and self._status is None:
            await anyio.wait_readable(self._lifeline)
            self._hear()
        if self._process is None:
            raise StartFailed(f"the command did not start: {self.failure or self._status}")

    def first_process(self) -> int | None:
        """Returns a new descriptor of the process of the wrapper's child, or of the supervisor; None if it has
        ended."""
        return None if self._process is None or self._info is not None else os.dup(self._process)

    async def await_gone(self) -> int:
        """Waits until the process and everything in its namespaces has ended. Returns the status as `wait` does."""
        await self._ended()
        if self._wrapped and self._process is not None:
            await anyio.wait_readable(self._process)
        assert self._status is not None
        return self._status

    def reading(self, receive: Callable[[bytes], None]) -> AbstractAsyncContextManager[None]:
        """During the block, passes output to `receive` as it arrives, and `b""` once at its end. `receive` must not
        raise."""

        def notify() -> bool:
            data = self.read_now()
            if data is not None:
                receive(data)
            return data != b""

        return watch_readable(self.output, notify)

    def read_now(self) -> bytes | None:
        """Returns output that has arrived: `b""` at its end, None if no output has arrived yet."""
        try:
            return os.read(self.output, _READ_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # it ended without reading everything
            return b""

    def write_now(self, data: bytes | bytearray | memoryview) -> int:
        """Writes as much as the pipe takes at once, and returns the number of bytes."""
        try:
            return os.write(self.input, data)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):
            return len(data)

    async def write(self, data: bytes | bytearray) -> None:
        """Writes all of `data`. If the guest has ended, the bytes are dropped; reading will show its end."""
        written = self.write_now(data)
        if written == len(data):
            return
        rest = memoryview(bytes(data))
        while written < len(rest):
            await anyio.wait_writable(self.input)
            written += self.write_now(rest[written:])

    def limit_cpu(self, seconds: float, *, again: bool = False) -> None:
        """Has the kernel end it after another `seconds` of processor time, rounded up, if the host is permitted to.

        With `again`, later calls can raise the limit; so could the process itself.

        Root without CAP_SYS_RESOURCE is not, as its guests are another user's. This backs up the caller's watch on
        `cpu_time`, for when the host is too busy. Before the process exists, the limit is deferred until it does.
        """
        self._cpu_seconds, self._cpu_again = seconds, again
        if self.pid == 0:
            return
        cpu = int(self.cpu_time() + seconds) + 1
        with contextlib.suppress(OSError):
            hard = resource.prlimit(self.pid, resource.RLIMIT_CPU)[1] if again else cpu + 1
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (cpu, hard))

    def suspend(self) -> None:
        """Stops all its threads until `resume`; does nothing for a guest in a wrapper, which would not pass it on."""
        if self._end_by == signal.SIGKILL and not self._wrapped:
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._end_by == signal.SIGKILL and not self._wrapped:
            self._signal(signal.SIGCONT)

    def limit_data(self, bytes_: int) -> bool:
        """Limits the memory of the process (RLIMIT_DATA). Returns False if it has ended or the host may not, as in
        `limit_cpu`."""
        try:
            resource.prlimit(self.pid, resource.RLIMIT_DATA, (bytes_, bytes_))
        except OSError:
            return False
        return True

    def data_bytes(self) -> int:
        """Returns VmData, which RLIMIT_DATA limits: the sixth field of /proc/PID/statm, in pages (proc_pid_statm(5)).

        Raises:
            OSError: the process has ended, or this system hides it.
        """
        return int(_read(f"/proc/{self.pid}/statm").split()[5]) * os.sysconf("SC_PAGESIZE")

    def cpu_time(self) -> float:
        """Returns the processor seconds of all its threads; 0 before the process is known and after its end.

        The clock of another process has the number `~pid << 3 | 2` (CPUCLOCK_SCHED in the kernel's posix-timers.h, as
        clock_getcpuclockid(3) computes it).
        """
        if self.pid == 0:
            self._hear()
        if self.pid == 0:
            return 0.0
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0

    def threads(self) -> int:
        """Returns the number of threads; 0 once the process has ended. Field 20 of /proc/PID/stat
        (proc_pid_stat(5))."""
        try:
            return int(_read(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()[17])
        except (OSError, IndexError):
            return 0

    def error_tail(self) -> str:
        """Returns the end of the engine's standard error. Guests can write to it, so use it for diagnostics only.

        With a connection, it is available once the process has ended.
        """
        with contextlib.suppress(BlockingIOError, OSError):
            while self._errors is not None and (data := os.read(self._errors, _READ_BYTES)):
                self._tail = (self._tail + data)[-ERRORS_BYTES:]
        return self._tail.decode("utf-8", "replace")

    def last_words(self) -> str:
        """Returns why the process ended, in its own words: its first lines, or the last line of a traceback."""
        lines = [line for line in (each.strip("# \t.") for each in self.error_tail().splitlines()) if line]
        traceback = any(line.startswith("Traceback (most recent") for line in lines)
        return (lines[-1] if traceback else " ".join(lines[:_SAID_LINES]))[:_SAID_CHARS]

    @property
    def alive(self) -> bool:
        """True from the confirmed start until the process has exited or lost its launcher.

        A wrapper that is killed with its launcher in its first milliseconds leaves its guest behind.
        """
        if self._closed or self._process is None:
            return False
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        poll.register(self._lifeline, 0)  # POLLHUP is always reported: the other end is closed
        return not poll.poll(0)

    @property
    def ended(self) -> bool:
        """True once the process has exited or failed to start; False while the start is pending.

        The launcher may report the end later.
        """
        self._hear()
        over = self._closed or self._status is not None or self.failure is not None
        return over or (self._process is not None and not self.alive)

    def kill(self) -> None:
        """Kills the process now or, if it does not exist yet, as soon as it does. Idempotent."""
        self._killed = True
        self._signal(self._end_by)

    def _signal(self, number: int) -> None:
        self._hear()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    def ask(self, message: bytes, descriptors: list[int]) -> None:
        """Sends a message to a guest whose connection is of SOCK_SEQPACKET.

        Raises:
            OSError: the guest has ended, or does not keep up.
        """
        if self._control is None:
            self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(self.input))
        socket.send_fds(self._control, [message], descriptors, socket.MSG_NOSIGNAL)

    async def wait(self, grace_seconds: float) -> int:
        """Returns the exit code, or minus the signal. Kills the process if it has not ended after the grace period."""
        with anyio.move_on_after(grace_seconds):
            await self._ended()
        if self._status is None:
            self.kill()
            await self._ended()
        assert self._status is not None
        return self._status

    def close(self) -> None:
        """Kills the process and closes its streams. The launcher reaps it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        for descriptor in {self.input, self.output, self._errors, self._process, self._info}:
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._process = None
        self._lifeline.close()
        if self._control is not None:
            self._control.close()

    async def _ended(self) -> None:
        while self._status is None:
            if self._waiting is not None:  # only one task can wait for a descriptor
                await self._waiting.wait()
                continue
            self._waiting = anyio.Event()
            try:
                await anyio.wait_readable(self._lifeline)
                self._hear()
            finally:
                self._waiting.set()
                self._waiting = None

    def _hear(self) -> None:
        """Processes messages that have arrived on the lifeline."""
        if self._closed:
            return
        while self._status is None:
            try:
                data, descriptors = receive(self._lifeline, _LIFELINE_BYTES, 1)
            except BlockingIOError:
                return
            except ConnectionError:
                data, descriptors = b"", []
            if data.startswith(b"!"):
                self._tail = data[1:]
                continue
            message: dict[str, Any] = json.loads(data) if data else {"status": -signal.SIGKILL}  # the launcher is gone
            if "pid" in message:
                try:
                    self.pid = _pid_of(descriptors[0])
                except (IndexError, OSError):
                    self.failure = "this process has no descriptors left"
                    for each in descriptors:
                        os.close(each)
                    continue
                self._process = descriptors[0]
                if self._cpu_seconds is not None:
                    self.limit_cpu(self._cpu_seconds, again=self._cpu_again)
                if self._killed:
                    self.kill()
            elif "error" in message:
                self.failure = message["error"]
            else:
                self._status = _unwrapped(message["status"]) if self._wrapped else message["status"]


def _pid_of(process: int) -> int:
    """Returns a process's number in our PID namespace; 0 once it has ended.

    The kernel reports -1 then (proc_pid_fdinfo(5)), which other functions would take for this process itself.
    """
    _, _, rest = _read(f"/proc/self/fdinfo/{process}").partition(b"\nPid:")
    return max(0, int(rest.partition(b"\n")[0]))


def _read(path: str) -> bytes:
    """Reads a small file of /proc. `Path.read_text` takes five times as long."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _PROC_BYTES)
    finally:
        os.close(descriptor)


def _unwrapped(status: int) -> int:
    """Converts a status from bubblewrap, which like a shell reports a signal as 128 plus its number."""
    return 128 - status if 128 < status <= 128 + signal.NSIG else status


def _parent(pid: int) -> int:
    """Returns a process's parent: the fourth field of /proc/PID/stat (proc_pid_stat(5)).

    Raises:
        OSError: the process has ended.
    """
    return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


def _wrapped_pid(info: int) -> int:
    """Reads the guest's process number in our PID namespace. bubblewrap writes it, as JSON, before it starts the
    guest."""
    return json.loads(os.read(info, _INFO_BYTES))["child-pid"]

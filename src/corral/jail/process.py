"""One contained process: raw streams, limits set from outside, and an end that is certain.

Streams of an event loop cost four times what a raw descriptor costs per message, so pipes and connections are read and
written directly, without blocking.
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
from corral.jail import Child, LauncherClient, Plan
from corral.jail.launcher import ERRORS_BYTES, receive

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl
    import resource

can_limit = sys.platform == "linux"
"""True if this system can bound a process's memory and read its processor clock."""

_PIPE_BYTES = 1 << 20
"""Linux lets an unprivileged process have pipes of one mebibyte (/proc/sys/fs/pipe-max-size)."""
_READ_BYTES = 1 << 16
"""More would make the allocator map and unmap memory for every read."""
_SAID_LINES, _SAID_CHARS = 2, 400
_LIFELINE_BYTES = ERRORS_BYTES + 1
_INFO_BYTES = 4096
_PROC_BYTES = 4096


class ContainedProcess:
    """A guest with pipes or a connection as its standard streams, in a session of its own so that Ctrl-C does not reach
    it.

    Made by `spawn`, which does not wait; `await_output` does, in a thread.
    """

    def __init__(self, child: Child) -> None:
        self._end_by = signal.SIGKILL
        self.input = child.stdin
        self.output = child.stdout
        self._errors = child.stderr
        self._lifeline = child.lifeline
        self._info = child.info
        """Pipe by which the wrapper of the guest says which process that is, until it has."""
        self._wrapped = child.info is not None
        self._control: socket.socket | None = None
        """The connection of a guest that forks."""
        self._process: int | None = None
        """A descriptor of the guest; while `_info` is there, of its wrapper, which ends with it."""
        self._status: int | None = None
        self.failure: str | None = None
        """Reason that it was not born."""
        self._closed = False
        self._cpu_seconds: float | None = None
        self._killed = False
        self._waiting: anyio.Event | None = None
        self._tail = b""
        self.pid = 0
        """Of the guest itself; 0 until it has said something."""
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
        """Has it started by the launcher, with `options` as `LauncherClient.spawn` takes them.

        Raises:
            StartFailed: there is no launcher, or no descriptor left.
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
            StartFailed: it ended without, was not born at all, or took longer than `seconds`.
        """
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        poll.poll(seconds * 1000)
        data = self.read_now()
        if data is None:
            raise StartFailed(f"the engine did not say that it is ready within {seconds:g} s")
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
                self._unwrap(pid, os.pidfd_open(pid))  # it has just written, and its wrapper lives as long as it does
            except (OSError, ValueError, KeyError) as error:
                raise StartFailed(f"the engine ended as soon as it had started: {error}") from error
        return data

    def take_streams(self) -> tuple[int, int, int]:
        """Pipes of standard input, output and error, which are the caller's to close from now on."""
        assert self._errors is not None
        streams = self.input, self.output, self._errors
        self.input = self.output = self._errors = -1
        return streams

    async def await_wrapped(self) -> None:
        """Waits until it is known which process the wrapper of the guest has made, as `pid`, or that there is none.

        Raises:
            StartFailed: the wrapper did not come so far; the message has its reason.
        """
        assert self._info is not None
        said = b""
        while b"}" not in said:  # it comes in pieces
            await anyio.wait_readable(self._info)
            piece = os.read(self._info, _INFO_BYTES)
            if not piece:
                await self._ended()
                raise StartFailed(f"the command did not start: {self.failure or self._status}")
            said += piece
        self._hear()
        wrapper, self.pid = self.pid, json.loads(said)["child-pid"]
        with contextlib.suppress(OSError):  # it has ended already, and its number may be another's
            guest = os.pidfd_open(self.pid)
            if _parent(self.pid) == wrapper:
                self._unwrap(self.pid, guest)
            else:
                os.close(guest)

    def _unwrap(self, pid: int, process: int) -> None:
        """Takes the guest's process for its wrapper's. The latter goes on to be heard of on the lifeline."""
        self.pid = pid
        for descriptor in (self._process, self._info):
            if descriptor is not None:
                os.close(descriptor)
        self._process, self._info = process, None

    async def await_born(self) -> None:
        """Waits until it is known which process it is, as `pid`.

        Raises:
            StartFailed: it is none.
        """
        while self._process is None and self.failure is None and self._status is None:
            await anyio.wait_readable(self._lifeline)
            self._hear()
        if self._process is None:
            raise StartFailed(f"the command did not start: {self.failure or self._status}")

    def first_process(self) -> int | None:
        """A new descriptor of the process that a wrapper has made, or of the supervisor; None if it has ended."""
        return None if self._process is None or self._info is not None else os.dup(self._process)

    async def await_gone(self) -> int:
        """Waits for the end of the process and of all within its namespaces; returns the status as `wait` does."""
        await self._ended()
        if self._wrapped and self._process is not None:
            await anyio.wait_readable(self._process)
        assert self._status is not None
        return self._status

    def reading(self, receive: Callable[[bytes], None]) -> AbstractAsyncContextManager[None]:
        """Within the block, `receive` gets its output as it comes, and `b""` once at its end. It must not raise."""

        def notify() -> bool:
            data = self.read_now()
            if data is not None:
                receive(data)
            return data != b""

        return watch_readable(self.output, notify)

    def read_now(self) -> bytes | None:
        """Output that has arrived; `b""` at its end, None if there is nothing yet."""
        try:
            return os.read(self.output, _READ_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # it has ended, and not read all that was written to it
            return b""

    def write_now(self, data: bytes | bytearray | memoryview) -> int:
        """Writes what the pipe takes at once, and returns how many bytes that was."""
        try:
            return os.write(self.input, data)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):
            return len(data)

    async def write(self, data: bytes | bytearray) -> None:
        """Writes all of `data`. A guest that is gone takes it silently: its end shows in what is read."""
        written = self.write_now(data)
        if written == len(data):
            return
        rest = memoryview(bytes(data))
        while written < len(rest):
            await anyio.wait_writable(self.input)
            written += self.write_now(rest[written:])

    def limit_cpu(self, seconds: float) -> None:
        """Has the kernel end it after `seconds` more of processor time, rounded up, if the host may say so.

        It may not as root without CAP_SYS_RESOURCE, whose guests are another user's. This is a backstop for whoever
        watches `cpu_time`, in case the host is too busy to. One that is not born yet is limited then.
        """
        self._cpu_seconds = seconds
        if self.pid == 0:
            return
        cpu = int(self.cpu_time() + seconds) + 1
        with contextlib.suppress(OSError):
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (cpu, cpu + 1))

    def limit_data(self, bytes_: int) -> bool:
        """Bounds its memory (RLIMIT_DATA). False if the host may not, as in `limit_cpu`, or it has ended."""
        try:
            resource.prlimit(self.pid, resource.RLIMIT_DATA, (bytes_, bytes_))
        except OSError:
            return False
        return True

    def data_bytes(self) -> int:
        """VmData, what RLIMIT_DATA counts: the sixth field of /proc/PID/statm, in pages (proc_pid_statm(5)).

        Raises:
            OSError: it has ended, or this system hides it.
        """
        return int(_read(f"/proc/{self.pid}/statm").split()[5]) * os.sysconf("SC_PAGESIZE")

    def cpu_time(self) -> float:
        """Processor seconds of all its threads; 0 before it is known, and once it is gone.

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
        """Number of threads, 0 once it is gone: the twentieth field of /proc/PID/stat (proc_pid_stat(5))."""
        try:
            return int(_read(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()[17])
        except (OSError, IndexError):
            return 0

    def error_tail(self) -> str:
        """The last of what the engine itself wrote to its standard error. Diagnostics only; a guest may write it.

        With a connection it is known at the end.
        """
        with contextlib.suppress(BlockingIOError, OSError):
            while self._errors is not None and (data := os.read(self._errors, _READ_BYTES)):
                self._tail = (self._tail + data)[-ERRORS_BYTES:]
        return self._tail.decode("utf-8", "replace")

    def last_words(self) -> str:
        """The process's own reason for its end: its first lines, or the last line of a traceback."""
        lines = [line for line in (each.strip("# \t.") for each in self.error_tail().splitlines()) if line]
        traceback = any(line.startswith("Traceback (most recent") for line in lines)
        return (lines[-1] if traceback else " ".join(lines[:_SAID_LINES]))[:_SAID_CHARS]

    @property
    def alive(self) -> bool:
        """False once the process has exited, or nobody is there any more to reap it; and before its start is confirmed.

        A wrapper that is killed with its launcher within its first milliseconds leaves its guest behind.
        """
        if self._closed or self._process is None:
            return False
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        poll.register(self._lifeline, 0)  # POLLHUP, which is always reported, says that its other end is closed
        return not poll.poll(0)

    @property
    def ended(self) -> bool:
        """True once the process has exited or failed to start; False while the start is pending.

        Whoever reaps it may say so later.
        """
        self._hear()
        over = self._closed or self._status is not None or self.failure is not None
        return over or (self._process is not None and not self.alive)

    def kill(self) -> None:
        """Ends it at once, or as soon as it is born. Idempotent."""
        self._killed = True
        self._hear()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, self._end_by)

    def ask(self, message: bytes, descriptors: list[int]) -> None:
        """Sends a message to a guest whose connection is one of messages.

        Raises:
            OSError: it has ended, or it does not keep up.
        """
        if self._control is None:
            self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(self.input))
        socket.send_fds(self._control, [message], descriptors, socket.MSG_NOSIGNAL)

    async def wait(self, grace_seconds: float) -> int:
        """Its exit status, the code or minus the signal. What has not ended by itself within the grace is killed."""
        with anyio.move_on_after(grace_seconds):
            await self._ended()
        if self._status is None:
            self.kill()
            await self._ended()
        assert self._status is not None
        return self._status

    def close(self) -> None:
        """Kills it and closes its streams; the launcher reaps it. Idempotent."""
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
            if self._waiting is not None:  # only one task may wait for a descriptor
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
        """Takes what has been said on the lifeline."""
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
                    self.limit_cpu(self._cpu_seconds)
                if self._killed:
                    self.kill()
            elif "error" in message:
                self.failure = message["error"]
            else:
                self._status = _unwrapped(message["status"]) if self._wrapped else message["status"]


def _pid_of(process: int) -> int:
    """The number by which this process knows another, which may know itself by another one; 0 once that has ended.

    The kernel then says -1, which elsewhere means this process itself (proc_pid_fdinfo(5)).
    """
    _, _, rest = _read(f"/proc/self/fdinfo/{process}").partition(b"\nPid:")
    return max(0, int(rest.partition(b"\n")[0]))


def _read(path: str) -> bytes:
    """A small file of /proc. `Path.read_text` takes five times as long."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _PROC_BYTES)
    finally:
        os.close(descriptor)


def _unwrapped(status: int) -> int:
    """A guest's status as bubblewrap passes it on: 128 and the signal's number, as a shell does."""
    return 128 - status if 128 < status <= 128 + signal.NSIG else status


def _parent(pid: int) -> int:
    """Number of a process's parent: the fourth field of /proc/PID/stat (proc_pid_stat(5)).

    Raises:
        OSError: it has ended.
    """
    return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


def _wrapped_pid(info: int) -> int:
    """The process in the jail, which bubblewrap writes as JSON before it starts it; as this process numbers it."""
    return json.loads(os.read(info, _INFO_BYTES))["child-pid"]

"""Limits that the kernel does not enforce: the memory of all commands together, processes, directories on disk."""

from __future__ import annotations

import itertools
import os
import select
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from corral.jail.launcher_client import processes_below
from corral.sessions.quota import Quota, QuotaWatch

_SECONDS = 0.1


class _Command(Protocol):
    reason: str | None


_SIGKILL = 9  # Windows does not define it


class CommandWatch:
    """Ends the largest command while all together exceed `most_bytes` of memory. Also ends commands that have too many
    processes.

    Ends all commands while a directory exceeds its quota. `end_by` is the signal to send to a command's first process.
    The kernel also limits the number of processes (RLIMIT_NPROC, getrlimit(2)), but not for the machine's root, and
    counts them per command only in namespaces.

    Memory is the anonymous and shared memory of every process below the first one of each command, from /proc (RssAnon
    and RssShmem, proc_pid_status(5)), checked by a thread that runs while commands do.
    """

    def __init__(
        self, most_bytes: int, most_processes: int, quotas: Sequence[Quota] = (), *, end_by: int = _SIGKILL
    ) -> None:
        self._most_bytes = most_bytes
        self._most_processes = most_processes
        self._quotas = quotas
        self._quota_watch: QuotaWatch | None = None
        self._measuring = anyio.Lock()
        self._end_by = end_by
        self._lock = threading.Lock()
        self._commands: dict[int, tuple[int, _Command]] = {}
        """Process number and command, by the descriptor of the first process."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    async def measure_quotas(self, *, anew: bool) -> None:
        """Measures the directories before a command begins, if `anew` says that no other command is running."""
        if not self._quotas:
            return
        async with self._measuring:
            if anew:
                self._quota_watch = await anyio.to_thread.run_sync(QuotaWatch, self._quotas)

    def add(self, pid: int, descriptor: int, command: _Command) -> None:
        """Watches a command until it has ended, by the number and descriptor of its first process.

        Takes over the descriptor. If it has to end the command, it sets the command's `reason`.
        """
        with self._lock:
            self._commands[descriptor] = pid, command
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="corral-shell-memory", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._closed.set()

    def _watch(self) -> None:
        wait = 0.0 if self._quotas else _SECONDS
        while True:
            closed = self._closed.wait(wait)
            with self._lock:
                ended = _readable(self._commands)
                for descriptor in self._commands if closed else ended:
                    os.close(descriptor)
                if closed:
                    self._commands.clear()
                for descriptor in ended:
                    self._commands.pop(descriptor, None)
                if not self._commands:
                    self._thread = None
                    return
                commands = dict(self._commands)
            self._look_at(commands)
            wait = _SECONDS
            if self._quota_watch is not None:
                reason, soon = self._quota_watch.look()
                wait = min(wait, soon)
                for descriptor, (_, command) in commands.items() if reason is not None else ():
                    self._end(descriptor, command, reason or "")

    def _look_at(self, commands: Mapping[int, tuple[int, _Command]]) -> None:
        sizes: dict[int, int] = {}
        for descriptor, (pid, command) in commands.items():
            sizes[descriptor], count = _used(pid, self._most_processes)
            if count > self._most_processes:
                self._end(descriptor, command, f"the command had more than {self._most_processes} processes")
        if sum(sizes.values()) > self._most_bytes:
            largest = max(sizes, key=lambda descriptor: sizes[descriptor])
            _, command = commands[largest]
            most = self._most_bytes >> 20
            self._end(largest, command, f"the commands used more than {most} MB of memory together")

    def _end(self, descriptor: int, command: _Command, reason: str) -> None:
        command.reason = reason
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, self._end_by)


def _readable(descriptors: Iterable[int]) -> list[int]:
    """Returns the readable descriptors. select(2) does not support descriptors above 1,023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(0)]


def _used(root: int, most_processes: int) -> tuple[int, int]:
    """Returns the memory and number of the processes below `root`. Incomplete if there are more than
    `most_processes`."""
    total = 0
    descendants = [*itertools.islice(processes_below(root), most_processes + 1)]
    for pid in (root, *descendants):
        with suppress(OSError):  # it has ended
            for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    total += int(line.split()[1]) << 10
    return total, len(descendants)

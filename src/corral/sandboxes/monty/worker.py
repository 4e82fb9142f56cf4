"""Processes of Monty: one for each execution at a time, and idle ones that wait for their tenant's next."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pydantic_monty import ExternalModule, Monty, MontyError, MontySession

from corral.concurrency.forks import ProcessOwner
from corral.containment.process import can_limit
from corral.errors import StartFailed
from corral.sandboxes.pool import idle_surplus
from corral.types import TrustDomain

if TYPE_CHECKING or sys.platform != "win32":
    import resource

__all__ = ["IdleWorkers", "Worker", "can_limit"]

_SUSPENSIONS = 10**9
"""Monty requires a bound; the real ones are those on calls and on processor time."""


class Worker:
    """A process of Monty with a fresh session in it, and the thread that uses it. Making and closing one blocks.

    Raises:
        StartFailed: Monty's engine is not there, or does not start.
    """

    def __init__(self, memory_mb: int) -> None:
        self.memory_mb = memory_mb
        self._pool = Monty(min_processes=0, max_processes=1)
        try:
            self._pool.__enter__()
            self._enter()
        except (MontyError, OSError, RuntimeError) as error:
            raise StartFailed(f"Monty did not start: {error}") from error
        pid = self.session.worker_pid
        assert pid is not None
        self.pid = pid
        self._process = os.pidfd_open(pid) if can_limit else -1
        self._closed = False
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="corral-monty", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Has the worker's thread do something, which must not raise."""
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _enter(self) -> None:
        self.modules: dict[str, ExternalModule] = {}
        """Modules beside Monty's own that the program can import; filled when the program is known."""
        self.session: MontySession = self._pool.checkout(
            limits={"max_memory": self.memory_mb << 20, "max_suspensions": _SUSPENSIONS},
            assert_message_annotations=False,
            external_modules=self.modules,
        )
        self.session.__enter__()

    @property
    def alive(self) -> bool:
        if self._closed or self._process < 0:
            return not self._closed
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return not poll.poll(0)

    def renew(self) -> bool:
        """Ends the session and has the process begin another one, of which the interpreter starts afresh.

        False: it cannot be used further.
        """
        try:
            self.session.__exit__(None, None, None)
            self._enter()
        except (MontyError, OSError, RuntimeError):
            return False
        return self.session.worker_pid == self.pid

    def limit_cpu(self, seconds: float) -> None:
        """As a backstop for whoever watches `cpu_time`: the kernel ends the process one second later."""
        if not can_limit:
            return
        cpu = int(self.cpu_time() + seconds) + 1
        with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))

    def cpu_time(self) -> float:
        """Processor seconds that it has used; of a process that is gone, none. `process.py` explains the number."""
        if not can_limit:
            return 0.0
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0

    def kill(self) -> None:
        """Ends the process at once, whatever it does; whoever waits for it gets a `MontyCrashedError`."""
        with contextlib.suppress(ProcessLookupError):
            if self._process >= 0:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            elif not self._closed:
                os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def close(self) -> None:
        """Ends the process and the thread. Idempotent."""
        if self._closed:
            return
        self.kill()
        self._closed = True
        self._work.put(None)
        self._thread.join()
        with contextlib.suppress(MontyError, OSError, RuntimeError):
            self.session.__exit__(None, None, None)
        with contextlib.suppress(MontyError, OSError, RuntimeError):
            self._pool.__exit__(None, None, None)
        if self._process >= 0:
            os.close(self._process)
            self._process = -1


class IdleWorkers:
    """Workers that wait for the next execution of the same trust domain and memory limit. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = ProcessOwner()
        self._workers: list[tuple[tuple[TrustDomain, int], float, Worker]] = []  # the longest idle first

    def take(self, domain: TrustDomain | None, memory_mb: int) -> Worker | None:
        with self._lock:
            if self._owner.take_over():
                self._workers.clear()
            for place in reversed(range(len(self._workers))):
                if self._workers[place][0] == (domain, memory_mb):
                    return self._workers.pop(place)[2]
        return None

    def put(self, domain: TrustDomain, worker: Worker) -> list[Worker]:
        """Keeps a renewed worker. Returns those that are no longer kept, for the caller to close."""
        with self._lock:
            self._workers.append(((domain, worker.memory_mb), time.monotonic(), worker))
            dropped = idle_surplus([(since, worker) for _, since, worker in self._workers])
            self._workers = [entry for entry in self._workers if entry[2] not in dropped]
            return dropped

    def clear(self) -> list[Worker]:
        with self._lock:
            workers = [worker for _, _, worker in self._workers]
            self._workers.clear()
            return workers if self._owner.is_current else []

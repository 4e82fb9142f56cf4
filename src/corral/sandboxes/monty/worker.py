"""Processes of Monty: one for each running execution, and idle ones that wait for their owner's next execution."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pydantic_monty import ExternalModule, Monty, MontyError, MontySession
from typing_extensions import override

from corral.concurrency.descriptors import await_readable, process_descriptor
from corral.concurrency.threads import run_shielded_in_thread
from corral.errors import StartFailed
from corral.jail.process import can_limit
from corral.sandboxes.pool import Box

if TYPE_CHECKING or sys.platform != "win32":
    import resource

_SUSPENSIONS = 10**9
"""Nominal limit, which Monty requires. The effective limits are those on calls and on processor time."""


class Worker:
    """Process of Monty with a fresh session, and the thread that uses it. Creating and closing one blocks.

    Raises:
        StartFailed: Monty's engine is missing, or does not start.
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
        descriptor = process_descriptor(pid)
        self._process = -1 if descriptor is None else descriptor
        self._closed = False
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="corral-monty", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Runs `work` in the worker's thread. It must not raise."""
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        with contextlib.suppress(MontyError, OSError, RuntimeError):
            self.session.__exit__(None, None, None)
        with contextlib.suppress(MontyError, OSError, RuntimeError):
            self._pool.__exit__(None, None, None)
        process, self._process = self._process, -1
        if process >= 0:
            os.close(process)

    def _enter(self) -> None:
        self.modules: dict[str, ExternalModule] = {}
        """Modules that the program can import besides Monty's own. Filled once the program is known."""
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
        return not await_readable(self._process, 0)

    def renew(self) -> bool:
        """Starts another session in the process, with a fresh interpreter. Returns False if the process is unusable."""
        try:
            self.session.__exit__(None, None, None)
            self._enter()
        except (MontyError, OSError, RuntimeError):
            return False
        return self.session.worker_pid == self.pid

    def limit_cpu(self, seconds: float) -> None:
        """Sets a backup for callers that watch `cpu_time`: the kernel ends the process one second later."""
        if not can_limit:
            return
        cpu = int(self.cpu_time() + seconds) + 1
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))

    def cpu_time(self) -> float:
        """Returns the process's processor seconds; 0 once it has ended. jail/process.py explains the clock's number."""
        if not can_limit:
            return 0.0
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0

    def kill(self) -> None:
        """Ends the process at once, even if it is busy. Callers that wait for it get a `MontyCrashedError`."""
        if self._closed:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._process >= 0:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            else:
                os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def end(self) -> None:
        """Ends the process and the thread without waiting for them. Idempotent."""
        if self._closed:
            return
        self.kill()
        self._closed = True
        self._work.put(None)

    def close(self) -> None:
        """Ends the process and the thread. Idempotent."""
        self.end()
        self._thread.join()


class WorkerBox(Box["WorkerBox"]):
    """Worker that serves one execution at a time."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.worker = worker

    @override
    def enter(self) -> WorkerBox | None:
        if self.worker.alive:
            return self
        self.retire()
        return None

    @override
    def end(self) -> None:
        self.worker.end()

    async def finish(self, *, renewed: bool) -> None:
        """Ends an execution. A worker that was not renewed ends with it."""
        self.retired = self.retired or not renewed
        self.leave()
        if self.retired:
            await run_shielded_in_thread(self.worker.close)

"""One job in a guest of ours, alone in it or not: from START to an `Exit` in the model's own terms."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from corral.concurrency.event_loop import periodic
from corral.containment.process import ContainedProcess
from corral.errors import BridgeError, MalformedMessage, MemoryExceeded, ProgramTimeout, SandboxLost
from corral.logs import get_logger
from corral.sandboxes.base import Job
from corral.sandboxes.framed.exits import cut_short, failed_exit, read_exit
from corral.sandboxes.framed.session import Channel, GuestExit, GuestSession
from corral.sandboxes.framed.stack_traces import located_text
from corral.types import Exit, LogEntry, PipeEndpoint

__all__ = ["GuestRun"]

logger = get_logger("corral.sandboxes")

_OUT_OF_MEMORY = ("out of memory", "Out of memory", "OOM", "memory allocation of")
"""Texts that V8, or the engine around it, writes to standard error before it gives up."""
_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGTRAP, signal.SIGILL, signal.SIGBUS})
"""Signals by which V8 ends without a text when memory runs out."""
_CORES = os.cpu_count() or 1
_LEAST_WAIT_SECONDS = 0.005
_MOST_WAIT_SECONDS = 0.25
_MAX_THREADS = 64
"""Deno has nine, and a program cannot make any. There is no other limit for them: RLIMIT_NPROC counts all processes of
a user."""
_GRACE_SECONDS = 0.2
"""Time for a process whose pipe has closed to exit by itself, so that its status gives the reason."""


class GuestRun:
    """Runs one job over a channel to `process`, and reads what came of it."""

    def __init__(
        self, channel: Channel, process: ContainedProcess, job: Job, endpoint: PipeEndpoint, *, memory_mb: int
    ) -> None:
        self._process = process
        self._job = job
        self._memory_mb = memory_mb
        self._out_of_cpu = False
        self._cpu_until = 0.0
        self._run = channel.run
        self._session = GuestSession(channel, _with_positions(job), endpoint)
        self.content: GuestExit | BridgeError | None = None
        """End of the session: EXIT as it came, a violation, or None if the process ended without an EXIT."""

    async def execute(self) -> Exit:
        job = self._job
        start: dict[str, object] = {
            "run": self._run,
            "code": job.program.code,
            "tools": [str(name) for name in job.tools],
            "env": None if job.env is None else dict(job.env),
            "limits": job.limits.model_dump(
                include={"calls", "calls_in_flight", "value_bytes", "log_bytes", "tool_input_bytes"}
            ),
        }
        try:
            self._cpu_until = self._process.cpu_time() + job.limits.cpu_seconds
            async with periodic(self._watch_cpu):
                try:
                    self.content = await self._session.run(start)
                except BridgeError as violation:
                    self.content = violation
        finally:
            if self._session.held is not None:
                job.on_outcome(self._read(self._session.held))
        exit = await self._lost() if self.content is None else self._read(self.content)
        return cut_short(exit, self._session.cut_short)

    @property
    def clean(self) -> bool:
        """True if the guest can serve further executions: it has sent its EXIT, and has memory left."""
        match self.content:
            case ["error", [MemoryExceeded.code, *_], *_]:
                return False
            case _:
                return isinstance(self.content, list)

    def _read(self, content: GuestExit | BridgeError) -> Exit:
        if isinstance(content, BridgeError):
            return failed_exit(content)
        try:
            return read_exit(content, self._job.program, self._session.seen)
        except MalformedMessage as violation:
            self.content = violation
            return failed_exit(violation)

    def _watch_cpu(self) -> float | None:
        """Ends the process when its processor time is used up, or if it has threads that no engine makes.

        Else says when to look again: when the time could be up, on that many cores.
        """
        left = self._cpu_until - self._process.cpu_time()
        if left > 0 and self._process.threads() <= _MAX_THREADS:
            return min(max(left / _CORES, _LEAST_WAIT_SECONDS), _MOST_WAIT_SECONDS)
        self._out_of_cpu = left <= 0
        self._process.kill()
        return None

    async def _lost(self) -> Exit:
        """The process ended without a result: says why, as far as the engine left a trace."""
        status = await self._process.wait(_GRACE_SECONDS)
        tail = self._process.error_tail()
        if self._out_of_cpu or status == -signal.SIGXCPU:
            seconds = self._job.limits.cpu_seconds
            return failed_exit(ProgramTimeout(f"the program used {seconds:g} s of processor time, all it may"))
        crashed = -status in _CRASHES and self._job.program.language == "typescript" and not tail.strip()
        if crashed or any(sign in tail for sign in _OUT_OF_MEMORY):
            return failed_exit(
                MemoryExceeded(f"the program needed more than the {self._memory_mb} MB of memory it may use")
            )
        said = f": {tail.strip()}" if tail.strip() else ""
        logger.warning("the engine of %s ended with status %d%s", self._job.execution_id, status, said)
        how = f"status {status}" if status >= 0 else f"signal {-status}, {signal.strsignal(-status)}"
        return failed_exit(SandboxLost(f"the sandbox's process ended without a result ({how})"))


def _with_positions(job: Job) -> Job:
    """The same job, with places of the program in its console output as the model wrote them."""

    def on_log(entry: LogEntry) -> None:
        text = located_text(entry.text, job.program)
        job.on_log(entry if text is entry.text else replace(entry, text=text))

    return replace(job, on_log=on_log)

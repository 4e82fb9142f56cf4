"""Runs one job in a guest, from START to an `Exit` that refers to the model's own source."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import replace

from corral.concurrency.event_loop import periodic
from corral.errors import BridgeError, MalformedMessage, MemoryExceeded, ProgramTimeout, SandboxLost
from corral.logs import get_logger
from corral.sandboxes.base import Job
from corral.sandboxes.channel import PostMortem
from corral.sandboxes.framed.engines import ENGINES
from corral.sandboxes.framed.exits import cut_short, failed_exit, read_exit
from corral.sandboxes.framed.link import Link
from corral.sandboxes.framed.session import GuestExit, GuestSession
from corral.types import Exit, LogEntry, PipeEndpoint

logger = get_logger("corral.sandboxes")

_OUT_OF_MEMORY = ("out of memory", "Out of memory", "OOM", "memory allocation of")
"""Texts that V8 or its host process writes to standard error before it aborts."""
_CRASHES = frozenset(getattr(signal, f"SIG{name}", 0) for name in ("ABRT", "SEGV", "TRAP", "ILL", "BUS")) - {0}
"""Signals with which V8 ends, without a text, when memory runs out, if this system has them."""
_OUT_OF_CPU = getattr(signal, "SIGXCPU", 24)
"""Also the status of an engine that measures its time itself, on a system without the signal."""
_CORES = os.cpu_count() or 1
_LEAST_WAIT_SECONDS = 0.005
_MOST_WAIT_SECONDS = 0.25
_IDLE_WAIT_SECONDS = 1.0
"""Seconds until the next check of a guest that used no processor time since the last one. With 1,000 of them, checks
take a tenth of a processor."""
_GUEST_LIMITS = ("calls", "calls_in_flight", "value_bytes", "log_bytes", "tool_input_bytes")
_MAX_THREADS = 64
"""Maximum number of threads. Deno has nine, and programs cannot create any. Nothing else limits them, because
RLIMIT_NPROC counts all processes of a user."""


class GuestRun:
    """Runs one job over a link to a guest, and reads its outcome."""

    def __init__(self, link: Link, job: Job, endpoint: PipeEndpoint, *, memory_mb: int) -> None:
        self._link = link
        self._job = job
        self._memory_mb = memory_mb
        self._out_of_cpu = False
        self._cpu_until = 0.0
        self._cpu_used = 0.0
        self._session = GuestSession(link, _with_positions(job), endpoint)
        self.content: GuestExit | BridgeError | None = None
        """End of the session: an unparsed EXIT, a protocol violation, or None if the process ended without an
        EXIT."""

    @property
    def is_clean(self) -> bool:
        """True if the guest can run a notebook's next cell."""
        return isinstance(self.content, list) and self._session.is_clean

    async def execute(self) -> Exit:
        job = self._job
        start: dict[str, object] = {
            "code": job.program.code,
            "tools": [str(name) for name in job.tools],
            "env": None if job.env is None else dict(job.env),
            "mounts": job.mounts,
            "services": job.services,
            "limits": {name: getattr(job.limits, name) for name in _GUEST_LIMITS},
        }
        if job.program.cell:
            start["cell"] = job.program.cell
        if job.durable is not None:
            start["durable"] = dict(job.durable.start)
        if job.types:
            start["types"] = job.types
        if (modules := job.modules) is not None:
            texts = {specifier: {"code": code} for specifier, code in modules.texts.items()}
            start["modules"] = {"allowed": modules.allowed, "texts": texts, "failures": modules.failures}
        try:
            self._cpu_until = (self._link.cpu_time() or 0.0) + job.limits.cpu_seconds
            reported = self._link.reports_cpu(self._watch_cpu)
            first = _wait_seconds(job.limits.cpu_seconds)
            async with nullcontext() if reported else periodic(self._watch_cpu, first=first):
                try:
                    self.content = await self._session.run(start)
                except BridgeError as violation:
                    self.content = violation
        finally:
            if self._session.held is not None:
                job.on_outcome(self._read(self._session.held))
        exit = await self._lost() if self.content is None else self._read(self.content)
        return cut_short(exit, self._session.cut_short)

    def _read(self, content: GuestExit | BridgeError) -> Exit:
        if isinstance(content, BridgeError):
            return failed_exit(content)
        try:
            return read_exit(content, self._job.program, self._session.seen)
        except MalformedMessage as violation:
            self.content = violation
            return failed_exit(violation)

    def _watch_cpu(self) -> float | None:
        """Ends the process if its processor time is used up, or if it has more threads than any engine creates.

        Otherwise returns the seconds until the next check, which is when its threads could have used up the time.
        """
        used = self._link.cpu_time()
        if used is None:
            return None
        left = self._cpu_until - used
        if left > 0 and self._link.threads() <= _MAX_THREADS:
            idle, self._cpu_used = used == self._cpu_used, used
            return _wait_seconds(left, _IDLE_WAIT_SECONDS if idle else _MOST_WAIT_SECONDS)
        self._out_of_cpu = left <= 0
        self._link.kill()
        return None

    async def _lost(self) -> Exit:
        """Returns the reason why the guest ended without a result, if anything shows it."""
        traces = PostMortem() if self._out_of_cpu else await self._link.post_mortem()
        if traces.lost:
            return replace(failed_exit(SandboxLost(f"the sandbox is lost: {traces.lost}")), lost=True)
        status, errors = traces.status, traces.stderr.strip()
        if self._out_of_cpu or (status is not None and -status == _OUT_OF_CPU):
            seconds = self._job.limits.cpu_seconds
            return failed_exit(ProgramTimeout(f"the program used up its {seconds:g} s of processor time"))
        may_crash = ENGINES[self._job.program.language].crashes_out_of_memory and not errors
        crashed = may_crash and status is not None and -status in _CRASHES
        if crashed or traces.out_of_memory or any(sign in errors for sign in _OUT_OF_MEMORY):
            return failed_exit(MemoryExceeded(f"the program needed more than its {self._memory_mb} MB of memory"))
        how = _described(status)
        logger.warning(
            "the guest of %s ended without a result%s%s",
            self._job.execution_id,
            how,
            errors and f": {errors}",
            extra={"execution_id": self._job.execution_id},
        )
        return failed_exit(SandboxLost(f"the sandbox's process ended without a result{how}"))


def _wait_seconds(left: float, most: float = _MOST_WAIT_SECONDS) -> float:
    """Returns the shortest time in which a program could use up its processor time on all cores, within bounds."""
    return min(max(left / _CORES, _LEAST_WAIT_SECONDS), most)


def _described(status: int | None) -> str:
    if status is None:
        return ""
    return f" (status {status})" if status >= 0 else f" (signal {-status}, {signal.strsignal(-status)})"


def _with_positions(job: Job) -> Job:
    """Returns the job with positions in its console output mapped to the model's source."""

    engine = ENGINES[job.program.language]

    def on_log(entry: LogEntry) -> None:
        text = engine.locate(entry.text, job.program)
        job.on_log(entry if text is entry.text else replace(entry, text=text))

    return replace(job, on_log=on_log)

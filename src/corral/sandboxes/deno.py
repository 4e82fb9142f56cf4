"""TypeScript in a Deno process of its own: no permissions, one execution, then ended.

The engine comes from PyPI (`deno`), so nothing is installed by hand. The process is started with an empty environment,
denied everything Deno can deny, and bounded from outside in memory and processor time.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import anyio
import deno

from corral.errors import BridgeError, MalformedMessage, MemoryExceeded, ProgramTimeout, SandboxLost, StartFailed
from corral.guest import FrameKind, FrameReader, RuntimeDirectory, decode_value
from corral.guest.frames import NO_NONCE, PROTOCOL
from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.outcomes import failed_exit, read_exit
from corral.sandboxes.process import GuestProcess, can_limit
from corral.sandboxes.session import GuestExit, GuestSession
from corral.sandboxes.traces import located_text
from corral.types import Capabilities, Endpoint, Exit, LimitName, LogEntry, SandboxConfig

__all__ = ["DenoSandbox"]

logger = logging.getLogger("corral.sandboxes")

_READY_BYTES = 100
_HEAP_RESERVE_MB = 16
"""What the guest runtime and the engine's own bookkeeping need of V8's heap, above the program's memory."""
_OUT_OF_MEMORY = ("out of memory", "Out of memory", "OOM", "memory allocation of")
"""What V8, or the engine around it, writes to standard error before it gives up."""
_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGTRAP, signal.SIGILL, signal.SIGBUS})
"""How an engine ends when memory runs out where nobody checks; it then writes nothing."""
_GRACE_SECONDS = 0.2
"""For a process whose pipe has closed to end by itself, so that its status says why."""
_ENFORCED: frozenset[LimitName] = frozenset(
    {"calls", "calls_in_flight", "value_bytes", "log_bytes", "tool_input_bytes", "tool_output_bytes"}
)


class DenoSandbox(SandboxProvider):
    """Starts one Deno process per execution.

    `allow_eval` lets programs make code from strings (`eval`, `Function`); `allow_wasm` leaves them `WebAssembly`.
    """

    name: ClassVar[str] = "deno"

    def __init__(self, *, allow_eval: bool = False, allow_wasm: bool = False) -> None:
        self.allow_eval = allow_eval
        self.allow_wasm = allow_wasm
        self._runtime = RuntimeDirectory()

    @property
    def capabilities(self) -> Capabilities:
        held: frozenset[LimitName] = frozenset({"cpu_seconds", "memory_mb"}) if can_limit else frozenset()
        return Capabilities(languages=frozenset({"typescript"}), enforces=_ENFORCED | held, isolation="process")

    async def start(self, config: SandboxConfig) -> Sandbox:
        try:
            runtime = self._runtime.prepare()
        except OSError as error:
            raise StartFailed(f"cannot write the guest's code to a temporary directory: {error}") from error
        env = {"DENO_DIR": str(runtime / "cache"), "NO_COLOR": "1"}
        process = await GuestProcess.spawn(self._command(config, runtime / "main.js"), env)
        try:
            await _ready(process)
        except BaseException:
            await process.aclose()
            raise
        return _DenoProcess(process, config, self._runtime, allow_wasm=self.allow_wasm)

    async def aclose(self) -> None:
        self._runtime.close()

    def _command(self, config: SandboxConfig, main: Path) -> list[str]:
        flags = [f"--max-old-space-size={config.memory_mb + _HEAP_RESERVE_MB}"]
        if not self.allow_eval:
            flags.append("--disallow-code-generation-from-strings")
        return [
            _engine(),
            "run",
            "--quiet",
            "--no-prompt",
            "--no-config",
            "--no-lock",
            "--no-npm",
            "--no-remote",
            "--no-code-cache",
            f"--v8-flags={','.join(flags)}",
            str(main),
        ]


@cache
def _engine() -> str:
    try:
        return deno.find_deno_bin()
    except FileNotFoundError as error:
        raise StartFailed(f"the Deno engine is not where its package should be: {error}; pip install deno") from error


async def _ready(process: GuestProcess) -> None:
    """Waits until the guest runtime has said READY."""
    reader = FrameReader(NO_NONCE, {FrameKind.READY: _READY_BYTES})
    while data := await process.read():
        try:
            for frame in reader.feed(data):
                if decode_value(frame.payload, tagged=False) != [PROTOCOL]:
                    raise StartFailed("the guest speaks another version of the protocol")
                return
        except BridgeError as error:
            raise StartFailed(f"the engine did not start the guest: {error}") from error
    status = await process.wait(_GRACE_SECONDS)
    raise StartFailed(f"the engine ended with status {status} before it was ready: {process.error_tail().strip()}")


class _DenoProcess(Sandbox):
    """One process; executes one job and is then used up."""

    isolation = "process"

    def __init__(
        self, process: GuestProcess, config: SandboxConfig, runtime: RuntimeDirectory, *, allow_wasm: bool
    ) -> None:
        self._process = process
        self._runtime = runtime
        self._compiles = False
        self._config = config
        self._allow_wasm = allow_wasm
        self._out_of_cpu = False

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        limits = job.limits
        self._compiles = job.program.form == "module"
        self._process.limit(cpu_seconds=limits.cpu_seconds, memory_mb=self._config.memory_mb)
        session = GuestSession(self._process, _with_positions(job), bridge.handler)
        start: dict[str, object] = {
            "code": job.program.code,
            "form": job.program.form,
            "tools": [str(name) for name in job.tools],
            "env": None if job.env is None else dict(job.env),
            "allow_wasm": self._allow_wasm,
            "limits": limits.model_dump(
                include={"calls", "calls_in_flight", "value_bytes", "log_bytes", "tool_input_bytes"}
            ),
        }
        content: GuestExit | BridgeError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_cpu, limits.cpu_seconds)
                try:
                    content = await session.run(start)
                except BridgeError as violation:
                    content = violation
                tasks.cancel_scope.cancel()
        finally:
            if session.held is not None:
                job.on_outcome(self._read(session.held, job))
        return await self._lost(job) if content is None else self._read(content, job)

    async def aclose(self) -> None:
        await self._process.aclose()
        if self._compiles:
            self._runtime.forget_compiled()

    def _read(self, content: GuestExit | BridgeError, job: Job) -> Exit:
        if isinstance(content, BridgeError):
            return failed_exit(content)
        try:
            return read_exit(content, job.program)
        except MalformedMessage as violation:
            return failed_exit(violation)

    async def _watch_cpu(self, seconds: float) -> None:
        """Ends the process when it has used `seconds` more of processor time than now, on however many cores."""
        until = self._process.cpu_time() + seconds
        while (left := until - self._process.cpu_time()) > 0:
            await anyio.sleep(max(left / (os.cpu_count() or 1), 0.005))
        self._out_of_cpu = True
        self._process.kill()

    async def _lost(self, job: Job) -> Exit:
        """The process ended without a result: says why, as far as the engine left a trace."""
        status = await self._process.wait(_GRACE_SECONDS)
        tail = self._process.error_tail()
        if self._out_of_cpu or status == -signal.SIGXCPU:
            return failed_exit(
                ProgramTimeout(f"the program used {job.limits.cpu_seconds:g} s of processor time, all it may")
            )
        if any(sign in tail for sign in _OUT_OF_MEMORY) or (-status in _CRASHES and not tail.strip()):
            return failed_exit(
                MemoryExceeded(f"the program needed more than the {self._config.memory_mb} MB of memory it may use")
            )
        logger.warning("the engine of %s ended with status %d: %s", job.execution_id, status, tail.strip())
        return failed_exit(SandboxLost(f"the sandbox's process ended without a result (status {status})"))


def _with_positions(job: Job) -> Job:
    """The same job, with places of the program in its console output as the model wrote them."""

    def on_log(entry: LogEntry) -> None:
        text = located_text(entry.text, job.program)
        job.on_log(entry if text is entry.text else replace(entry, text=text))

    return replace(job, on_log=on_log)

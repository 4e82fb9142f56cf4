"""TypeScript in a Deno process of its own: in a jail, no permissions, one execution, then ended.

The engine comes from PyPI (`deno`), so nothing is installed by hand. It is denied everything Deno can deny, which is
the lesser wall; the jail around it is the boundary. Memory and processor time are bounded from outside.
"""

from __future__ import annotations

import logging
import os
import signal
import weakref
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Literal

import anyio
import deno

from corral.errors import (
    BridgeError,
    ConfigError,
    MalformedMessage,
    MemoryExceeded,
    ProgramTimeout,
    SandboxLost,
    StartFailed,
)
from corral.guest import RuntimeDirectory
from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.loops import in_thread
from corral.sandboxes.outcomes import failed_exit, read_exit
from corral.sandboxes.pool import Pool, default_size
from corral.sandboxes.process import can_limit
from corral.sandboxes.session import GuestExit, GuestSession
from corral.sandboxes.starter import MAIN, Guest, GuestStarter, Order
from corral.sandboxes.traces import located_text
from corral.types import TIERS, Capabilities, Endpoint, Exit, LimitName, LogEntry, SandboxConfig, Tier

__all__ = ["DenoSandbox"]

logger = logging.getLogger("corral.sandboxes")

_ENVIRONMENT = {"DENO_DIR": "/dev/null/deno", "NO_COLOR": "1"}
"""All that the engine has: no cache, so that nothing of one program is left for the next, and nothing is written."""
_SETTLE_SECONDS = 30.0
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
    """Starts one Deno process per execution, in a jail.

    `tier` is the jail: "auto" takes the best that this system has, down to the one that is required. `pool_size` is how
    many processes are kept ready; by default one per processor, at most four. `allow_eval` lets programs make code from
    strings (`eval`, `Function`); `allow_wasm` leaves them `WebAssembly`.
    """

    name: ClassVar[str] = "deno"

    def __init__(
        self,
        *,
        tier: Tier | Literal["auto"] = "auto",
        allow_eval: bool = False,
        allow_wasm: bool = False,
        pool_size: int | None = None,
    ) -> None:
        if tier not in (*TIERS, "auto"):
            raise ConfigError(f"tier={tier!r} is none of auto, {', '.join(TIERS)}")
        if pool_size is not None and pool_size < 0:
            raise ConfigError(f"pool_size={pool_size} is negative; 0 keeps none ready")
        self.tier = tier
        self.allow_eval = allow_eval
        self.allow_wasm = allow_wasm
        self._starter = GuestStarter(tier, _engine, RuntimeDirectory(), _ENVIRONMENT)
        self._pool = Pool(self._starter.start, default_size() if pool_size is None else pool_size)
        weakref.finalize(self, _end, self._pool, self._starter)

    @property
    def capabilities(self) -> Capabilities:
        held: frozenset[LimitName] = frozenset({"cpu_seconds", "memory_mb"}) if can_limit else frozenset()
        return Capabilities(languages=frozenset({"typescript"}), enforces=_ENFORCED | held)

    async def warm(self, config: SandboxConfig) -> None:
        if self._pool.size == 0:
            return
        order = self._order(config)
        self._pool.put(order, await self._pool.take(order))

    async def start(self, config: SandboxConfig) -> Sandbox:
        self._starter.hold()
        try:
            guest = await self._pool.take(self._order(config))
        except BaseException:
            await _release(self._starter)
            raise
        return _DenoProcess(guest, config, self._starter, allow_wasm=self.allow_wasm)

    async def settled(self) -> None:
        """Waits until as many sandboxes are ready as the pool holds."""
        await in_thread(partial(self._pool.full, _SETTLE_SECONDS))

    async def aclose(self) -> None:
        await in_thread(partial(_close, self._pool, self._starter))

    def _order(self, config: SandboxConfig) -> Order:
        return Order(config, ("run", *self._flags(config), MAIN))

    def _flags(self, config: SandboxConfig) -> list[str]:
        """Deno's own options."""
        flags = [f"--max-old-space-size={config.memory_mb + _HEAP_RESERVE_MB}"]
        if not self.allow_eval:
            flags.append("--disallow-code-generation-from-strings")
        return [
            "--quiet",
            "--no-prompt",
            "--no-config",
            "--no-lock",
            "--no-npm",
            "--no-remote",
            "--no-code-cache",
            f"--v8-flags={','.join(flags)}",
        ]


def _close(pool: Pool[Order, Guest], starter: GuestStarter) -> None:
    pool.close()
    starter.close()


def _end(pool: Pool[Order, Guest], starter: GuestStarter) -> None:
    pool.close()
    starter.end()


async def _release(starter: GuestStarter) -> None:
    if starter.release():
        await in_thread(starter.close)


@cache
def _engine() -> Path:
    try:
        return Path(deno.find_deno_bin())
    except FileNotFoundError as error:
        raise StartFailed(f"the Deno engine is not where its package should be: {error}; pip install deno") from error


class _DenoProcess(Sandbox):
    """One process; executes one job and is then used up."""

    def __init__(self, guest: Guest, config: SandboxConfig, starter: GuestStarter, *, allow_wasm: bool) -> None:
        self.isolation = guest.tier
        self._process = guest.process
        self._starter: GuestStarter | None = starter
        self._config = config
        self._allow_wasm = allow_wasm
        self._out_of_cpu = False

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        limits = job.limits
        self._process.limit_cpu(limits.cpu_seconds)
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
        self._process.close()
        if self._starter is not None:
            starter, self._starter = self._starter, None
            await _release(starter)

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

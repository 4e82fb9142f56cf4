"""Python in Monty, an interpreter of Pydantic's that reaches nothing but what it is handed.

There is no jail: the interpreter is the boundary, in a process of its own, bounded in memory by itself and in processor
time from outside. It starts in milliseconds and runs a part of Python; docs/design/monty.md tells which.
"""

from __future__ import annotations

from typing import ClassVar

from corral.arguments import checked
from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread
from corral.errors import ConfigError, StartFailed
from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.monty.run import MontyRun
from corral.sandboxes.monty.worker import IdleWorkers, Worker, can_limit
from corral.sandboxes.pool import Pool, default_size
from corral.types import LIMITS_OF_SANDBOXES, Capabilities, Endpoint, Exit, Isolation, PipeEndpoint, SandboxConfig

__all__ = ["MontySandbox"]

_ISOLATION = Isolation("interpreter", "interpreter")


@checked
class MontySandbox(SandboxProvider):
    """Starts Monty's processes.

    `pool_size` is how many are kept ready; by default one per processor, at most four. An execution has a process to
    itself while it runs. With `reuse`, the process serves later executions of the same user of the same organization,
    each with an interpreter that starts afresh; without, it ends with the one.

    Raises:
        ConfigError: an argument has no such value.
    """

    name: ClassVar[str] = "monty"

    def __init__(self, *, pool_size: int | None = None, reuse: bool = True) -> None:
        if pool_size is not None and pool_size < 0:
            raise ConfigError(f"pool_size={pool_size} is negative; 0 keeps none ready")
        self.reuse = reuse
        self._pool = Pool(_make, default_size() if pool_size is None else pool_size)
        self._idle = IdleWorkers()
        self._open = False
        finalize_in_owner(self, _close, self._pool, self._idle)

    @property
    def capabilities(self) -> Capabilities:
        enforced = LIMITS_OF_SANDBOXES if can_limit else LIMITS_OF_SANDBOXES - {"cpu_seconds"}
        return Capabilities(languages=frozenset({"python"}), enforces=enforced)

    async def warm(self, config: SandboxConfig) -> None:
        self._open = True
        await self._pool.warm(config.memory_mb)

    async def start(self, config: SandboxConfig) -> Sandbox:
        if not _ISOLATION.reaches(config.required_tier):
            raise StartFailed(
                f"Monty is an interpreter without a jail, not of tier {config.required_tier!r}; accept it with "
                "Corral(required_tier='landlock'), or use CPythonSandbox"
            )
        worker = self._idle.take(config.trust_domain, config.memory_mb)
        if worker is None or not worker.alive:
            worker = await self._pool.take(config.memory_mb)
        return _InMonty(self, worker, config)

    async def aclose(self) -> None:
        self._open = False
        await run_shielded_in_thread(lambda: _close(self._pool, self._idle))

    def keeps(self, config: SandboxConfig) -> bool:
        """True if a worker may serve another execution of the same user."""
        return self.reuse and self._open and config.trust_domain is not None

    async def returned(self, worker: Worker, config: SandboxConfig, *, renewed: bool) -> None:
        """Takes back a worker of which the execution has ended."""
        dropped = [worker]
        if renewed and config.trust_domain is not None and self.keeps(config):
            dropped = self._idle.put(config.trust_domain, worker)
        for each in dropped:
            await run_shielded_in_thread(each.close)


class _InMonty(Sandbox):
    """A worker; executes one job."""

    def __init__(self, provider: MontySandbox, worker: Worker, config: SandboxConfig) -> None:
        self.isolation = _ISOLATION
        self._provider: MontySandbox | None = provider
        self._worker = worker
        self._config = config
        self._renewed = False

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        renew = self._provider is not None and self._provider.keeps(self._config)
        run = MontyRun(self._worker, job, bridge, renew=renew)
        exit = await run.execute()
        self._renewed = run.renewed
        return exit

    async def aclose(self) -> None:
        if self._provider is not None:
            provider, self._provider = self._provider, None
            await provider.returned(self._worker, self._config, renewed=self._renewed)


def _make(memory_mb: int, _in_advance: bool) -> Worker:
    return Worker(memory_mb)


def _close(pool: Pool[int, Worker], idle: IdleWorkers) -> None:
    pool.close()
    for worker in idle.clear():
        worker.close()

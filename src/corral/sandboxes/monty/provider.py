"""Python in Monty, an interpreter of Pydantic's that reaches nothing but what it is handed.

There is no jail: the interpreter is the boundary, in a process of its own, bounded in memory by itself and in processor
time from outside. It starts in milliseconds and runs a part of Python; docs/design/monty.md tells which.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from corral.arguments import checked
from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread
from corral.errors import ConfigError, StartFailed
from corral.isolation import Isolation, Space
from corral.jail import LauncherClient
from corral.jail.spaces import LauncherSpaces, SpaceHost
from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.monty.run import MontyRun
from corral.sandboxes.monty.worker import Worker, WorkerBox, can_limit
from corral.sandboxes.pool import Pool, default_size
from corral.sandboxes.tenant_boxes import TenantBoxes
from corral.types import LIMITS_OF_SANDBOXES, Capabilities, Endpoint, Exit, PipeEndpoint, SandboxConfig

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
        self._boxes = TenantBoxes[WorkerBox](shared=False)
        self._launcher = LauncherClient()
        """For directories of sessions; it starts with the first one."""
        self._open = False
        finalize_in_owner(self, _close, self._pool, self._boxes, self._launcher)

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
        if config.packages is not None:
            raise ConfigError("Monty loads no packages; leave out `packages`, or use CPythonSandbox")
        kept = self.reuse and self._open
        return _InMonty(await self._boxes.reserve(config if kept else config.unowned, self._new_box))

    async def _new_box(self, config: SandboxConfig) -> WorkerBox:
        return WorkerBox(await self._pool.take(config.memory_mb))

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:  # noqa: ARG002
        return _Spaces(self.warm, self._boxes, self._launcher) if can_limit else None

    async def aclose(self) -> None:
        self._open = False
        await run_shielded_in_thread(lambda: _close(self._pool, self._boxes, self._launcher))


class _Spaces(LauncherSpaces):
    """Has the directories of sessions made. The interpreter sees none of them: it asks the host."""

    def __init__(
        self,
        warm: Callable[[SandboxConfig], Awaitable[None]],
        boxes: TenantBoxes[WorkerBox],
        launcher: LauncherClient,
    ) -> None:
        super().__init__(launcher)
        self._warm = warm
        self._boxes = boxes

    async def placement(self, config: SandboxConfig) -> None:
        """None: there are files in any tier."""

    async def prepare_space(self, config: SandboxConfig) -> None:
        await self._warm(config)

    def forget(self, space: Space) -> None:
        self._boxes.retire(space)


class _InMonty(Sandbox):
    """A worker; executes one job."""

    def __init__(self, box: WorkerBox) -> None:
        self.isolation = _ISOLATION
        self._box = box
        self._renewed = False
        self._closed = False

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        run = MontyRun(self._box.worker, job, bridge, renew=not self._box.retired)
        exit = await run.execute()
        self._renewed = run.renewed
        return exit

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._box.leave(renewed=self._renewed)


def _make(memory_mb: int, _in_advance: bool) -> Worker:
    return Worker(memory_mb)


def _close(pool: Pool[int, Worker], boxes: TenantBoxes[WorkerBox], launcher: LauncherClient) -> None:
    launcher.close()
    pool.close()
    for box in boxes.close():
        if isinstance(box, WorkerBox) and box.idle_since is not None:
            box.worker.close()

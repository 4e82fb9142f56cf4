"""Base of providers whose guests run in a jail: a starter, and a pool of ready guests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import ContainmentKind, Space, Tier
from corral.errors import ConfigError
from corral.jail.launcher_client import Programs
from corral.jail.process import can_limit
from corral.jail.spaces import SpaceHost
from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.framed.provider import ENFORCED_BY_SESSION
from corral.sandboxes.framed.run import GuestRun
from corral.sandboxes.jailed.guest_starter import GuestProcess, GuestStarter, StartedGuest
from corral.sandboxes.pool import Pool
from corral.types import LIMITS_OF_SANDBOXES, Capabilities, Endpoint, Exit, Language, PipeEndpoint, SandboxConfig

T = TypeVar("T")


class JailedGuest(Protocol):
    """Process for one execution, either started for it or forked."""

    @property
    def process(self) -> GuestProcess: ...
    @property
    def tier(self) -> Tier: ...
    @property
    def preloaded(self) -> Mapping[str, frozenset[str]]:
        """npm packages that it has already evaluated, each with the names of the environment variables that it read."""
        ...

    def close(self) -> None: ...


class JailedProvider(SandboxProvider):
    """Keeps the launcher alive while a sandbox is in use. `aclose` frees everything, as does garbage collection.

    Raises:
        ConfigError: `tier` or `pool_size` has an invalid value.
    """

    language: ClassVar[Language]

    def __init__(
        self,
        *,
        tier: Tier | Literal["auto"],
        pool_size: int,
        starter: GuestStarter,
        start: Callable[[SandboxConfig, bool], StartedGuest] | None = None,
        close_servers: Callable[[], object] = lambda: None,
    ) -> None:
        if pool_size < 0:
            raise ConfigError(f"pool_size={pool_size} is negative; 0 keeps none ready")
        self.tier: Tier | Literal["auto"] = tier
        self._starter = starter
        self._pool = Pool(start or starter.start, pool_size)
        self._close_servers = close_servers
        self._live = 0
        """Number of sandboxes that were requested and are not closed yet."""
        self._capabilities = Capabilities(
            languages=frozenset({self.language}), enforces=LIMITS_OF_SANDBOXES if can_limit else ENFORCED_BY_SESSION
        )
        finalize_in_owner(self, _end, close_servers, self._pool, self._starter)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def warm(self, config: SandboxConfig) -> None:
        self._starter.retain()
        try:
            await self._pool.warm(config.unowned)
        finally:
            await self.released()

    async def start(self, config: SandboxConfig) -> Sandbox:
        return _Jailed(await self.guest(config), config.memory_mb)

    async def guest(self, config: SandboxConfig) -> LocalGuest:
        """Starts a guest, and returns it as bytes for whoever speaks frames with it. The caller has to close it.

        Raises:
            StartFailed: see `start`.
        """
        self._starter.retain()
        self._live += 1
        try:
            return LocalGuest(await self._guest(config), self.ended)
        except BaseException:
            await self.ended()
            raise

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:  # noqa: ARG002
        return self if can_limit else None

    async def placement(self, config: SandboxConfig) -> Tier:
        return await self._with_starter(partial(self._starter.placement, config.unowned))

    async def starts_as_nobody(self, config: SandboxConfig) -> bool:
        return await self._with_starter(partial(self._starter.starts_as_nobody, config))

    async def make_space(
        self, sizes: Sequence[tuple[int, int]], place: Path, user: int | None, programs: Programs | None = None
    ) -> list[int]:
        return await self._with_starter(partial(self._starter.make_space, sizes, place, user, programs))

    async def prepare_space(self, config: SandboxConfig) -> None:
        """Does nothing if each execution starts its own engine."""

    def forget(self, space: Space) -> None:
        self._starter.forget(space)

    async def aclose(self) -> None:
        self._close_servers()
        await run_shielded_in_thread(self._pool.close)
        await run_shielded_in_thread(self._starter.close)

    async def _with_starter(self, work: Callable[[], T]) -> T:
        self._starter.retain()
        try:
            return await run_shielded_in_thread(work)
        finally:
            await self.released()

    async def ended(self) -> None:
        """Counts one live sandbox less."""
        self._live -= 1
        await self.released()

    async def released(self) -> None:
        """Counts one sandbox in use less."""
        if self._starter.release():
            await run_shielded_in_thread(self._starter.close)

    async def _guest(self, config: SandboxConfig) -> JailedGuest:
        return await self._pool.take(config.unowned, kept=config.space is None)


class LocalGuest:
    """Guest in a jail of this machine that has sent READY, for one execution.

    `process` is its pipes and its clock: `reading(receive)` passes output on as it arrives, `write_now` and `write`
    take input, `cpu_time()` and `threads()` measure it, `limit_cpu(seconds)` has the kernel end it, `kill()` ends it
    now, and `post_mortem()` tells how it ended.
    """

    def __init__(self, guest: JailedGuest, ended: Callable[[], Awaitable[None]]) -> None:
        self.process: GuestProcess = guest.process
        self.tier: Tier = guest.tier
        self.preloaded = guest.preloaded
        """npm packages that it has already evaluated, each with the names of the environment variables that it read."""
        self._guest = guest
        self._ended: Callable[[], Awaitable[None]] | None = ended

    async def aclose(self) -> None:
        """Ends the guest and frees its resources. Idempotent."""
        self._guest.close()
        if self._ended is not None:
            ended, self._ended = self._ended, None
            await ended()


class _Jailed(Sandbox):
    """Process in a jail. Executes one job."""

    def __init__(self, guest: LocalGuest, memory_mb: int) -> None:
        self.containment = ContainmentKind.of_tier(guest.tier)
        self._guest = guest
        self._memory_mb = memory_mb
        self._is_clean = False

    @property
    def is_usable(self) -> bool:
        return self._is_clean and not self._guest.process.ended

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        process = self._guest.process
        if job.modules is not None and self._guest.preloaded:
            job = replace(job, modules=job.modules.without(self._guest.preloaded, job.env or {}))
        process.limit_cpu(job.limits.cpu_seconds, again=job.program.cell > 0)
        if job.program.cell > 1:
            process.renew_nonce()
            process.resume()
        self._is_clean = False
        run = GuestRun(process, job, bridge, memory_mb=self._memory_mb)
        exit = await run.execute()
        if job.program.cell and run.is_clean:
            process.suspend()
            self._is_clean = True
        return exit

    async def aclose(self) -> None:
        await self._guest.aclose()


def _end(close_servers: Callable[[], object], pool: Pool[SandboxConfig, StartedGuest], starter: GuestStarter) -> None:
    close_servers()
    pool.close()
    starter.end()

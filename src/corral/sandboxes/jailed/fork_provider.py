"""Base of providers whose guests fork: a server for each trust domain, a process for each execution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

from corral.sandboxes.base import Job, Sandbox
from corral.sandboxes.framed.run import GuestRun
from corral.sandboxes.jailed.fork_server import Fork, ForkServer
from corral.sandboxes.jailed.guest_starter import GuestKind, GuestStarter, StartedGuest
from corral.sandboxes.jailed.provider import JailedProvider
from corral.sandboxes.pool import default_size
from corral.types import Endpoint, Exit, Isolation, PipeEndpoint, SandboxConfig, Tier

__all__ = ["ForkProvider"]


class ForkProvider(JailedProvider[Fork]):
    """Keeps `pool_size` servers ready for users who are new; one by default.

    Raises:
        ConfigError: as `JailedProvider`.
    """

    def __init__(
        self,
        *,
        tier: Tier | Literal["auto"],
        pool_size: int | None,
        starter: GuestStarter,
        start: Callable[[GuestKind, bool], StartedGuest] | None = None,
    ) -> None:
        size = min(1, default_size()) if pool_size is None else pool_size
        super().__init__(tier=tier, pool_size=size, starter=starter, serve=ForkServer, start=start)

    async def start(self, config: SandboxConfig) -> Sandbox:
        self._starter.retain()
        try:
            return _InFork(self, await self.reserve(config), config)
        except BaseException:
            await self.released()
            raise

    @abstractmethod
    def guest_kind(self, config: SandboxConfig) -> GuestKind: ...


class _InFork(Sandbox):
    """A process; executes one job and is then used up."""

    def __init__(self, provider: ForkProvider, fork: Fork, config: SandboxConfig) -> None:
        self.isolation = Isolation.of_tier(fork.tier)
        self._provider: ForkProvider | None = provider
        self._fork = fork
        self._config = config

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        process = self._fork.process
        process.limit_cpu(job.limits.cpu_seconds)
        return await GuestRun(process, job, bridge, memory_mb=self._config.memory_mb).execute()

    async def aclose(self) -> None:
        self._fork.close()
        if self._provider is not None:
            provider, self._provider = self._provider, None
            await provider.released()

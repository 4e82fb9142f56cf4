"""Base of providers whose guests run in a jail: a starter, a pool, and servers by tenant."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, Literal, TypeVar

from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment.process import can_limit
from corral.errors import ConfigError
from corral.sandboxes.base import SandboxProvider
from corral.sandboxes.framed.provider import ENFORCED_BY_SESSION
from corral.sandboxes.jailed.guest_starter import GuestKind, GuestStarter, StartedGuest
from corral.sandboxes.pool import Pool
from corral.sandboxes.tenant_boxes import Box, TenantBoxes
from corral.types import LIMITS_OF_SANDBOXES, Capabilities, Language, SandboxConfig, Tier

__all__ = ["JailedProvider"]

S = TypeVar("S")


class JailedProvider(SandboxProvider, Generic[S]):
    """Keeps the launcher alive while a sandbox is in use, and frees all that there is with `aclose`, or with itself.

    Raises:
        ConfigError: `tier` or `pool_size` has no such value.
    """

    language: ClassVar[Language]

    def __init__(
        self,
        *,
        tier: Tier | Literal["auto"],
        pool_size: int,
        starter: GuestStarter,
        serve: Callable[[StartedGuest], Box[S]],
        start: Callable[[GuestKind, bool], StartedGuest] | None = None,
    ) -> None:
        if pool_size < 0:
            raise ConfigError(f"pool_size={pool_size} is negative; 0 keeps none ready")
        self.tier: Tier | Literal["auto"] = tier
        self._starter = starter
        self._serve = serve
        self._pool = Pool(start or starter.start, pool_size)
        self._servers = TenantBoxes[S]()
        finalize_in_owner(self, _end, self._servers, self._pool, self._starter)

    @property
    def capabilities(self) -> Capabilities:
        enforced = LIMITS_OF_SANDBOXES if can_limit else ENFORCED_BY_SESSION
        return Capabilities(languages=frozenset({self.language}), enforces=enforced)

    async def reserve(self, config: SandboxConfig) -> S:
        """A place in a server of this configuration."""
        return await self._servers.reserve(config, self._new_server)

    async def _new_server(self, config: SandboxConfig) -> Box[S]:
        return self._serve(await self._pool.take(self.guest_kind(config)))

    async def warm(self, config: SandboxConfig) -> None:
        self._starter.retain()
        try:
            await self._pool.warm(self.guest_kind(config))
        finally:
            await self.released()

    async def aclose(self) -> None:
        self._servers.close()
        await run_shielded_in_thread(self._pool.close)
        await run_shielded_in_thread(self._starter.close)

    async def released(self) -> None:
        """One sandbox fewer is in use."""
        if self._starter.release():
            await run_shielded_in_thread(self._starter.close)

    @abstractmethod
    def guest_kind(self, config: SandboxConfig) -> GuestKind:
        """The kind of guest that this configuration needs."""


def _end(servers: TenantBoxes[S], pool: Pool[GuestKind, StartedGuest], starter: GuestStarter) -> None:
    servers.close()
    pool.close()
    starter.end()

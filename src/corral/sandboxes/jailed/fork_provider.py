"""Base of providers whose guests fork: a server for each trust domain, a process for each execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from corral.isolation import NO_SPACE, Space, Tier
from corral.logs import get_logger
from corral.sandboxes.jailed.fork_server import Fork, ForkServer
from corral.sandboxes.jailed.guest_starter import GuestKind, GuestStarter, StartedGuest
from corral.sandboxes.jailed.preloading import PreloadFailed, preload
from corral.sandboxes.jailed.provider import JailedGuest, JailedProvider
from corral.sandboxes.pool import default_size
from corral.sandboxes.tenant_boxes import TenantBoxes
from corral.types import SandboxConfig

logger = get_logger("corral.sandboxes")


class ForkProvider(JailedProvider):
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
        self._servers = TenantBoxes[Fork]()
        super().__init__(
            tier=tier,
            pool_size=min(1, default_size()) if pool_size is None else pool_size,
            starter=starter,
            start=start,
            close_servers=self._servers.close,
        )

    def prepare(self, config: SandboxConfig) -> bool:
        """Has a server for this configuration started in the background. True if there is one at once."""
        return self._servers.has(config) or self._pool.want(self.guest_kind(config))

    async def _guest(self, config: SandboxConfig) -> JailedGuest:
        return await self._servers.reserve(config, self._new_server)

    async def _new_server(self, config: SandboxConfig) -> ForkServer:
        space = config.space or NO_SPACE
        guest = await self._new_guest(config)
        if config.preloads is not None:
            try:
                guest = await preload(guest, config.preloads, space)
            except PreloadFailed as error:
                logger.warning("no package is preloaded: %s", error)
                guest.close()
                guest = await self._new_guest(config)
            except BaseException:
                guest.close()
                raise
        return ForkServer(guest, writes=space.writes)

    async def _new_guest(self, config: SandboxConfig) -> StartedGuest:
        return await self._pool.take(self.guest_kind(config), kept=config.space is None)

    async def prepare_space(self, config: SandboxConfig) -> None:
        self._starter.retain()
        try:
            await self._servers.prepare(config, self._new_server)
        finally:
            await self.released()

    def forget(self, space: Space) -> None:
        self._servers.retire(space)
        super().forget(space)

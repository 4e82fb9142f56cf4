"""Base of providers that reach their guests over a byte channel."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from corral.containment import ContainmentKind
from corral.errors import CorralError, StartFailed
from corral.sandboxes.base import Job, Sandbox, SandboxProvider, below_required_tier
from corral.sandboxes.channel import GuestChannel, GuestFiles
from corral.sandboxes.framed.guest_files import guest_files
from corral.sandboxes.framed.link import ChannelLink
from corral.sandboxes.framed.run import GuestRun
from corral.types import Capabilities, Endpoint, Exit, Language, LimitName, PipeEndpoint, SandboxConfig

ENFORCED_BY_SESSION: frozenset[LimitName] = frozenset({"value_bytes", "log_bytes"})
"""Limits enforced for every guest that speaks frames."""


class FramedProvider(SandboxProvider):
    """Runs programs on any machine on which `connect` can start an engine and exchange bytes with it.

    A subclass declares its properties and implements `connect`. The base handles calls, console output, results, error
    positions, limits and cleanup.
    """

    languages: ClassVar[frozenset[Language]]
    """Languages whose engine is available: Deno for TypeScript, CPython for Python."""
    containment: ContainmentKind
    """Containment of the machine. Results show it, and its strength is compared with `Containment.required`."""
    enforces: frozenset[LimitName] = frozenset()
    """Limits that the machine enforces: `memory_mb`, and `cpu_seconds` if it enforces that or its channels measure
    it."""
    start_timeout_seconds: float = 30.0
    """Maximum seconds for `connect`, and for the guest to get ready."""

    @abstractmethod
    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        """Starts a guest for one program and returns the channel to it. Must leave nothing behind if it fails."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            languages=self.languages,
            enforces=self.enforces | ENFORCED_BY_SESSION,
            start_timeout_seconds=self.start_timeout_seconds,
        )

    async def warm(self, config: SandboxConfig) -> None:
        self.check_tier(config)

    async def start(self, config: SandboxConfig) -> Sandbox:
        self.check_tier(config)
        try:
            link = ChannelLink(await self.connect(config, self.guest_files(config)))
            try:
                await link.ready()
            except BaseException:
                await link.aclose()
                raise
        except CorralError:
            raise
        except Exception as error:
            raise StartFailed(f"sandbox {self.name!r} did not start a guest: {error}") from error
        return Connected(link, self.containment, config.memory_mb)

    def guest_files(self, config: SandboxConfig) -> GuestFiles:
        """Returns the guest that `connect` starts."""
        return guest_files(config)

    def check_tier(self, config: SandboxConfig) -> None:
        """Raises `StartFailed` if the machine's containment is below the required tier."""
        if not self.containment.reaches(config.required_tier):
            raise below_required_tier(self.name, self.containment, config.required_tier)


class Connected(Sandbox):
    """Guest behind a channel. Executes one job."""

    def __init__(self, link: ChannelLink, containment: ContainmentKind, memory_mb: int) -> None:
        self.containment = containment
        self._link = link
        self._memory_mb = memory_mb

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        self._link.limit_cpu(job.limits.cpu_seconds)
        return await GuestRun(self._link, job, bridge, memory_mb=self._memory_mb).execute()

    async def aclose(self) -> None:
        await self._link.aclose()

"""Default engine for Python: CPython if a jail works, else Monty, which needs none."""

from __future__ import annotations

from typing import ClassVar

import anyio

from corral.errors import MissingExtra, StartFailed
from corral.jail.process import can_limit
from corral.jail.spaces import SpaceHost
from corral.logs import get_logger
from corral.plugins import load_by_name
from corral.sandboxes.base import Sandbox, SandboxProvider
from corral.sandboxes.cpython import CPythonSandbox
from corral.types import Capabilities, SandboxConfig

logger = get_logger("corral.sandboxes")


class PythonSandbox(SandboxProvider):
    """CPython if it starts in a jail here, else Monty if installed, else CPython if the required tier permits.

    Raises:
        MissingExtra: Monty is not installed, on a system without jails.
    """

    name: ClassVar[str] = "python"

    def __init__(self) -> None:
        self._cpython = CPythonSandbox()
        self._chosen: SandboxProvider | None = None if can_limit else load_by_name("corral.sandboxes", "monty")
        self._choosing = anyio.Lock()
        self.without_cpython: str | None = None
        """Reason why programs run in Monty; None if they do not, or none has run yet."""

    @property
    def capabilities(self) -> Capabilities:
        return (self._chosen or self._cpython).capabilities

    async def warm(self, config: SandboxConfig) -> None:
        await (await self._choose(config)).warm(config)

    async def start(self, config: SandboxConfig) -> Sandbox:
        return await (await self._choose(config)).start(config)

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:
        return await (await self._choose(config)).space_host(config)

    async def aclose(self) -> None:
        if self._chosen is not None:
            await self._chosen.aclose()

    async def _choose(self, config: SandboxConfig) -> SandboxProvider:
        async with self._choosing:
            if self._chosen is None:
                self._chosen = await self._first_that_works(config)
            return self._chosen

    async def _first_that_works(self, config: SandboxConfig) -> SandboxProvider:
        jailed = config.model_copy(update={"required_tier": "landlock"}) if config.required_tier == "none" else config
        try:
            await self._cpython.warm(jailed)
        except StartFailed as error:
            await self._cpython.aclose()
            try:
                monty: SandboxProvider = load_by_name("corral.sandboxes", "monty")
                self.without_cpython = str(error)
                logger.warning("programs in Python run in Monty, which has few modules, as CPython fails: %s", error)
                return monty
            except MissingExtra:
                if config.required_tier == "none":
                    return self._cpython
                raise StartFailed(
                    f"{error}; without a jail Python runs in Monty: pip install 'corral[monty]'"
                ) from error
        return self._cpython

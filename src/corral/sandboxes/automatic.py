"""Sandboxes of `sandbox="auto"`: a jailed engine where one starts, else an engine that needs no jail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Lock
from typing import TypeVar

from typing_extensions import override

from corral.errors import MissingExtra, StartFailed
from corral.jail.process import can_limit
from corral.jail.spaces import SpaceHost
from corral.logs import get_logger
from corral.plugins import load_by_name
from corral.sandboxes.base import Sandbox, SandboxProvider
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.jailed.guest_starter import NO_JAIL, WITHOUT_JAIL, JailRetries
from corral.types import LIMITS_OF_SANDBOXES, Capabilities, SandboxConfig

logger = get_logger("corral.sandboxes")
T = TypeVar("T")


class AutomaticSandbox(SandboxProvider):
    """Runs programs of one language. The first start decides where: in `jailed` if it starts here, else in the provider
    named `portable` if its extra is installed, else in `jailed` without a jail if the required tier permits that.

    While programs run in `portable`, a later start tries `jailed` again from time to time, and returns to it for good
    once it starts.
    """

    def __init__(self, jailed: SandboxProvider, portable: str, effect: str) -> None:
        self._jailed = jailed
        self._portable = portable
        self._effect = effect
        """Effect of the portable engine, for the log."""
        self._chosen: SandboxProvider | None = None
        self._without: SandboxProvider | None = None
        self._loading = Lock()  # programs of several threads can be the first
        self._retries = JailRetries()
        self.without_jail: str | None = None
        """Reason why no jailed engine is used; None if one is, or if nothing has started yet."""
        if not can_limit:
            self.without_jail = NO_JAIL
            with suppress(MissingExtra):
                engine: SandboxProvider = load_by_name("corral.sandboxes", portable)
                if engine.capabilities.enforces >= LIMITS_OF_SANDBOXES:
                    self._chosen = self._without = engine

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - of the engine, so it can change
        """Name of the engine."""
        return self._engine.name

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @override
    def for_durable(self) -> SandboxProvider:
        """Returns the jailed engine where there are jails, even while others run in another one."""
        return self._jailed if can_limit else self

    @property
    def _engine(self) -> SandboxProvider:
        return self._chosen or self._jailed

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        return self._engine.engine_version(config)

    async def warm(self, config: SandboxConfig) -> None:
        await self._first_that_works(lambda provider, config: provider.warm(config), config)

    async def start(self, config: SandboxConfig) -> Sandbox:
        return await self._first_that_works(lambda provider, config: provider.start(config), config)

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:
        return await self._first_that_works(self._working_space_host, config)

    async def aclose(self) -> None:
        for engine in filter(None, (self._jailed, self._without)):
            await engine.aclose()

    async def _first_that_works(
        self, action: Callable[[SandboxProvider, SandboxConfig], Awaitable[T]], config: SandboxConfig
    ) -> T:
        if config.space is not None and config.space.served and self._without is not None:
            return await action(self._without, config)  # others may not see its directories
        if self._chosen is None or (self._is_replaced and can_limit and self._retries.begin()):
            required = "landlock" if config.required_tier == "none" else config.required_tier
            try:
                result = await action(self._jailed, config.model_copy(update={"required_tier": required}))
            except StartFailed as error:
                if self._chosen is not self._jailed:
                    return await self._without_jail(action, config, error)
            else:
                if self._is_replaced:
                    logger.warning("programs run in %s again", self._jailed.name)
                self._chosen, self.without_jail = self._jailed, None
                return result
        return await action(self._engine, config)

    @property
    def _is_replaced(self) -> bool:
        return self._chosen not in (None, self._jailed)

    async def _without_jail(
        self,
        action: Callable[[SandboxProvider, SandboxConfig], Awaitable[T]],
        config: SandboxConfig,
        error: StartFailed,
    ) -> T:
        """Uses the engine for a system on which the jailed one fails.

        Raises:
            StartFailed: none works whose containment is sufficient.
        """
        with suppress(MissingExtra, StartFailed):
            with self._loading:
                portable: SandboxProvider = self._without or load_by_name("corral.sandboxes", self._portable)
                self._without = portable
            result = await action(portable, config)
            if self._chosen is None:
                self._chosen, self.without_jail = portable, str(error)
                self._retries.fail()
                logger.warning("programs in %s, as %s fails: %s", self._effect, self._jailed.name, error)
            return result
        if config.required_tier == "none":
            result = await action(self._jailed, config)
            self._chosen = self._chosen or self._jailed
            return result
        reason = str(error) if can_limit else NO_JAIL
        raise StartFailed(reason if WITHOUT_JAIL in reason else f"{reason}. {WITHOUT_JAIL}") from error

    async def _working_space_host(self, provider: SandboxProvider, config: SandboxConfig) -> SpaceHost | None:
        host = await provider.space_host(config)
        if host is not None:
            await host.placement(config)  # starts a guest
        elif self._chosen is None:
            raise StartFailed(f"sandbox {provider.name!r} does not support session files")
        return host


class PythonSandbox(AutomaticSandbox):
    """Runs Python programs in CPython, or in Monty."""

    def __init__(self, jailed: SandboxProvider | None = None) -> None:
        super().__init__(jailed or CPythonSandbox(), "monty", "Python run in Monty, which has few modules")


class TypeScriptSandbox(AutomaticSandbox):
    """Runs TypeScript programs in Deno, or in WebAssembly."""

    def __init__(self, jailed: SandboxProvider | None = None) -> None:
        super().__init__(jailed or DenoSandbox(), "wasm", "TypeScript run in WebAssembly, which computes slowly")

"""Measures one of Corral's own engines: `python -m bench.corral_driver ENGINE`, started by `python -m bench`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version

from bench.driver import HostTools, Unavailable, drive, run_with_loop
from bench.engines import CORRAL_ENGINES, PYTHON_ENGINES, CorralEngine
from corral import Corral, Limits, tool
from corral.errors import MissingExtra
from corral.plugins import load_by_name
from corral.sandboxes import SandboxProvider
from corral.types import SandboxConfig

__all__ = ["CorralSubject", "settle"]

_LIMITS = Limits(calls=100_000, value_bytes=4_000_000)


async def settle(provider: SandboxProvider) -> None:
    """Waits until a provider's pool is full again, if it has one and says so."""
    settled = getattr(provider, "settled", None)
    if settled is not None:
        await settled()


class CorralSubject:
    def __init__(self, engine: CorralEngine) -> None:
        self._engine = engine
        self._provider: SandboxProvider | None = None
        self._corral: Corral | None = None

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("corral", *self._engine.packages)}

    async def start(self, tools: HostTools) -> None:
        try:
            self._provider = load_by_name("corral.sandboxes", self._engine.provider, **self._engine.options)
        except (TypeError, MissingExtra) as error:
            raise Unavailable(str(error)) from error
        defined = [tool(tools.add), tool(tools.text), tool(tools.slow), tool(tools.hold)]
        assert self._provider is not None
        corral = Corral(defined, sandbox=self._provider, limits=_LIMITS, containment="none", check=False)
        self._corral = await corral.__aenter__()

    async def settle(self) -> None:
        assert self._provider is not None
        await settle(self._provider)

    async def run(self, program: str) -> object:
        assert self._corral is not None
        return (await self._corral.execute(program, language=self._engine.language)).raise_for_error().value

    def idle(self) -> AbstractAsyncContextManager[object]:
        return self._started()

    @asynccontextmanager
    async def _started(self) -> AsyncGenerator[None]:
        assert self._provider is not None
        async with await self._provider.start(
            SandboxConfig(language=self._engine.language, memory_mb=_LIMITS.memory_mb)
        ):
            yield

    async def close(self) -> None:
        if self._corral is not None:
            await self._corral.aclose()
        if self._provider is not None:
            await self._provider.aclose()


if __name__ == "__main__":
    run_with_loop(drive(CorralSubject({**CORRAL_ENGINES, **PYTHON_ENGINES}[sys.argv[1]])))

"""pydantic-monty: Python programs in a pool of its worker processes. Runs in the peers' own environment."""

from __future__ import annotations

import importlib
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

from bench.driver import HostTools, drive, run_with_loop

__all__ = ["MontySubject"]


_PROCESSES = 64
"""As many as executions at once; by default it has one for each processor, and others wait."""
_LIMITS = {"max_suspensions": 100_000}


class MontySubject:
    def __init__(self) -> None:
        self._pool: Any = None
        self._tools: dict[str, object] = {}

    def versions(self) -> dict[str, str]:
        return {"pydantic-monty": version("pydantic-monty")}

    async def start(self, tools: HostTools) -> None:
        self._tools = {"add": tools.add, "text": tools.text, "slow": tools.slow, "hold": tools.hold}
        # By name: corral's own environment, where the types are checked, does not have it.
        self._pool = await importlib.import_module("pydantic_monty").AsyncMonty(max_processes=_PROCESSES).__aenter__()

    async def settle(self) -> None:
        pass

    async def run(self, program: str) -> object:
        async with self._pool.checkout(limits=_LIMITS) as session:
            return await session.feed_run(program.replace("tools.", ""), external_lookup=self._tools)

    def idle(self) -> AbstractAsyncContextManager[object]:
        return self._pool.checkout(limits=_LIMITS)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.__aexit__(None, None, None)


if __name__ == "__main__":
    run_with_loop(drive(MontySubject()))

"""smolagents' LocalPythonExecutor: an interpreter of Python's syntax tree, inside the host's own process.

It knows no `await`, so tools are plain functions here, and a program's calls are made without. Runs in the peers' own
environment.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any

from bench.driver import HostTools, Unavailable, drive, run_with_loop

__all__ = ["SmolagentsSubject"]


class SmolagentsSubject:
    def __init__(self) -> None:
        self._make: Any = None
        self._tools: dict[str, object] = {}

    def versions(self) -> dict[str, str]:
        try:
            return {"smolagents": version("smolagents")}
        except PackageNotFoundError:
            return {}

    async def start(self, tools: HostTools) -> None:
        try:
            self._make = importlib.import_module("smolagents.local_python_executor").LocalPythonExecutor
        except ModuleNotFoundError as error:
            raise Unavailable(f"{error}; bench/peers/setup installs it") from error

        def add(a: int, b: int) -> int:
            tools.stamps.append(perf_counter())
            return a + b

        self._tools = {"add": add}

    async def settle(self) -> None:
        pass

    async def run(self, program: str) -> object:
        executor = self._make([])
        executor.send_tools(self._tools)
        return executor(program.replace("await tools.", "")).output

    def idle(self) -> AbstractAsyncContextManager[object]:
        return self._made()

    @asynccontextmanager
    async def _made(self) -> AsyncGenerator[None]:
        yield self._make([])

    async def close(self) -> None:
        pass


if __name__ == "__main__":
    run_with_loop(drive(SmolagentsSubject()))

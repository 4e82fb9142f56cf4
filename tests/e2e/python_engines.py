"""The engines that run Python, each in one open Corral for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionResult, Limits, define_tool
from corral.sandboxes import CPythonSandbox, SandboxProvider
from corral.sandboxes.monty import MontySandbox
from tests.conftest import TOOLS

__all__ = ["Python", "code_of", "cpython", "provider", "python"]


def provider(engine: str) -> SandboxProvider:
    return CPythonSandbox() if engine == "cpython" else MontySandbox(pool_size=1)


@dataclass(frozen=True)
class Python:
    """One engine, and what its programs sent to the tool `accept`."""

    engine: str
    corral: Corral
    received: list[Any]

    async def run(self, program: str, **options: Any) -> ExecutionResult:
        return await self.corral.execute(program, language="python", **options)

    async def value(self, program: str, **options: Any) -> Any:
        result = await self.run(program, **options)
        assert (result.status, result.error) == ("succeeded", None)
        return result.value


async def _open(engine: str, sandbox: SandboxProvider) -> AsyncIterator[Python]:
    received: list[Any] = []

    async def accept(input: Any) -> None:
        received.append(input)

    async def meet(input: Any) -> int:
        """Returns when so many calls of an execution are under way at the same time."""
        nonlocal waiting, met
        waiting += 1
        if waiting == input["calls"]:
            waiting = 0
            met.set()
            met = anyio.Event()
            return input["calls"]
        await met.wait()
        return input["calls"]

    waiting, met = 0, anyio.Event()
    tools = [*TOOLS, define_tool(name="accept", execute=accept), define_tool(name="meet", execute=meet)]
    async with Corral(tools, sandbox=sandbox, limits=Limits(wall_seconds=60), check=False) as corral:
        yield Python(engine, corral, received)


@pytest.fixture(scope="module", params=["cpython", "monty"])
async def python(request: pytest.FixtureRequest, warm_cpython: CPythonSandbox) -> AsyncIterator[Python]:
    """Either engine."""
    async for opened in _open(request.param, warm_cpython if request.param == "cpython" else provider("monty")):
        yield opened


@pytest.fixture(scope="module")
async def cpython(warm_cpython: CPythonSandbox) -> AsyncIterator[Python]:
    """What only all of Python can do."""
    async for opened in _open("cpython", warm_cpython):
        yield opened


def code_of(result: ExecutionResult) -> str | None:
    return result.error and result.error.code

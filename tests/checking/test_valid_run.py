"""The programs that a check must let pass run well: what fails when it runs is no measure of a check."""

from __future__ import annotations

import anyio
import pytest

from corral import Corral, ExecutionResult
from tests.checking.tools import TOOLS
from tests.checking.typescript import valid_programs

pytestmark = pytest.mark.anyio

AT_ONCE = 8


async def test_every_valid_typescript_program_succeeds() -> None:
    results: dict[str, ExecutionResult] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(corral: Corral, name: str, program: str) -> None:
        async with limiter:
            results[name] = await corral.execute(program)

    async with Corral(TOOLS, check=False) as corral, anyio.create_task_group() as tasks:
        for name, program in valid_programs().items():
            tasks.start_soon(run, corral, name, program)

    assert len(results) > 400
    assert {name: result.error for name, result in results.items() if result.status != "succeeded"} == {}

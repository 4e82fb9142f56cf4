"""Every program of the corpus in Python runs to its end: what a check must let pass is what works."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from corral import Corral, ExecutionResult, Tool
from tests.checking.business import BUSINESS
from tests.checking.tools import TOOLS

pytestmark = pytest.mark.anyio

AT_ONCE = 8
_MARKER = re.compile(r"^=== (\w+)\n", re.MULTILINE)


def programs(folder: str = "python") -> dict[str, str]:
    """Name to source: a file holds several programs, each behind a line `=== name`.

    Those in `business` are for the tools of `tests.checking.business`.
    """
    found: dict[str, str] = {}
    for file in sorted((Path(__file__).parent / "valid" / folder).glob("*.txt")):
        _, *parts = _MARKER.split(file.read_text(encoding="utf-8"))
        for name, source in zip(parts[::2], parts[1::2], strict=True):
            assert f"{file.stem}/{name}" not in found, f"two programs are called {file.stem}/{name}"
            found[f"{file.stem}/{name}"] = source
    return found


@pytest.mark.parametrize(("folder", "tools", "least"), [("python", TOOLS, 475), ("business", BUSINESS, 200)])
async def test_every_valid_program_succeeds(folder: str, tools: list[Tool], least: int) -> None:
    results: dict[str, ExecutionResult] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(corral: Corral, name: str, source: str) -> None:
        async with limiter:
            results[name] = await corral.execute(source, language="python")

    async with Corral(tools, sandbox="cpython", check=False) as corral, anyio.create_task_group() as tasks:
        for name, source in programs(folder).items():
            tasks.start_soon(run, corral, name, source)
    assert len(results) >= least
    assert {name: result.error for name, result in results.items() if result.status != "succeeded"} == {}

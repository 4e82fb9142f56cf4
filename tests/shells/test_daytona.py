"""`DaytonaShell` with the real SDK against a server that speaks its wire; held to the suites of shells and sandboxes."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager

import deno
import pytest

from corral import Corral, Language, tool
from corral.sandboxes import SandboxProvider, ShellSandbox
from corral.shells import DaytonaShell, Shell
from corral.testing import FilesSuite, SandboxSuite, ShellSuite
from corral.types import Isolation
from tests.shells.faults import served
from tests.shells.stub_daytona import StubDaytona

pytestmark = pytest.mark.anyio

STUB = StubDaytona()
ENGINES: Mapping[Language, str] = {"python": "python3", "typescript": deno.find_deno_bin()}


@pytest.fixture(scope="module", autouse=True)
def service() -> Generator[None]:
    if "CORRAL_REAL_CLOUD" in os.environ:
        yield
        return
    with served(STUB.app()) as url, pytest.MonkeyPatch.context() as patch:
        STUB.base = url
        patch.setenv("DAYTONA_API_KEY", "key")
        patch.setenv("DAYTONA_API_URL", f"{url}/api")
        patch.setenv("DAYTONA_TARGET", "us")
        yield
    assert not STUB.left


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class _Daytona:
    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        async with await DaytonaShell.create() as shell:
            yield shell


class TestCommands(_Daytona, ShellSuite):
    pass


class TestFiles(_Daytona, FilesSuite):
    pass


class TestPython(SandboxSuite):
    language = "python"

    def provider(self) -> SandboxProvider:
        return ShellSandbox(DaytonaShell.create, engines=ENGINES, isolation=Isolation("daytona", "kernel"))


async def test_a_program_in_typescript() -> None:
    @tool
    async def double(n: int) -> int:
        """Doubles a number."""
        return 2 * n

    sandbox = ShellSandbox(DaytonaShell.create, engines=ENGINES, isolation=Isolation("daytona", "kernel"))
    async with Corral([double], sandbox=sandbox, accept_unenforced={"cpu_seconds", "memory_mb"}, check=False) as corral:
        result = await corral.execute("return await Promise.all([1, 2].map((n) => tools.double({ n })))")
        assert (result.value, result.isolation) == ([2, 4], "daytona"), result


async def test_short_and_marked_output_arrives_whole() -> None:
    async with await DaytonaShell.create() as shell:
        for text in ("", "a", "a\n", "corral-end-", "x\n\ncorral", "\\n"):
            assert (await shell.run(f"printf %s '{text}'")).stdout == text

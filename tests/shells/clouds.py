"""Services of computers as tests need them: the server that stands in for each, and programs in its shells."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import deno
import e2b
import pytest
from typing_extensions import override
from vercel.sandbox import SandboxClient, SandboxServiceOptions

from corral import Containment, Corral, ExecutionResult, Limits, tool
from corral.shells import DaytonaShell, E2BShell, Shell, ShellSandbox, VercelShell
from corral.types import Language, LimitName
from tests.shells.faults import served
from tests.shells.shared import SharedShell
from tests.shells.stub_daytona import StubDaytona
from tests.shells.stub_e2b import StubE2B
from tests.shells.stub_vercel import StubVercel

Stub: TypeAlias = StubE2B | StubDaytona | StubVercel

__all__ = ["CLOUDS", "Cloud", "CloudShell", "Stub", "opened_cloud", "run_programs"]

SDK = e2b
"""Imported before any test runs: the native part of its protobuf refuses classes of an import that came late."""
ENGINES: Mapping[Language, str] = {"python": "python3", "typescript": deno.find_deno_bin()}


@dataclass(frozen=True)
class Cloud:
    """A service: its stand-in, the settings of its SDK for that one's URL, and its shell."""

    stub: Callable[[], Stub]
    settings: Callable[[str], Mapping[str, str]]
    open: Callable[[], Awaitable[Shell]]


async def _open_vercel() -> Shell:
    """Its SDK has no variable for the service's address."""
    url = os.environ.get("STUB_VERCEL")
    options = None if url is None else SandboxServiceOptions(base_url=url)
    return await VercelShell.create(client=SandboxClient.create(options=options))


CLOUDS: Mapping[str, Cloud] = {
    "e2b": Cloud(
        StubE2B,
        lambda url: {
            "E2B_API_KEY": "e2b_" + "0" * 40,
            "E2B_HTTP_VERSION": "1.1",
            "E2B_API_URL": url,
            "E2B_SANDBOX_URL": url,
        },
        E2BShell.create,
    ),
    "daytona": Cloud(
        StubDaytona,
        lambda url: {"DAYTONA_API_KEY": "key", "DAYTONA_API_URL": f"{url}/api", "DAYTONA_TARGET": "us"},
        DaytonaShell.create,
    ),
    "vercel": Cloud(
        StubVercel,
        lambda url: {
            "STUB_VERCEL": url,
            "VERCEL_TOKEN": "token",
            "VERCEL_TEAM_ID": "team",
            "VERCEL_PROJECT_ID": "project",
        },
        _open_vercel,
    ),
}


class CloudShell(SharedShell):
    """The factory of the suites, of shells of a service."""

    cloud: Cloud

    @override
    @asynccontextmanager
    async def fresh_shell(self) -> AsyncGenerator[Shell]:
        async with await self.cloud.open() as shell:
            yield shell


@contextmanager
def opened_cloud(cloud: Cloud) -> Generator[Stub]:
    """Serves the stand-in, with the settings that lead there. In the end nothing is left on it."""
    stub = cloud.stub()
    with served(stub.app()) as url, pytest.MonkeyPatch.context() as patch:
        stub.base = url
        for name, value in cloud.settings(url).items():
            patch.setenv(name, value)
        yield stub
    assert not stub.left


PROGRAMS: Mapping[Language, tuple[str, str]] = {
    "python": (
        "import asyncio\nprint('größer')\nawait asyncio.gather(*(tools.double(n=n) for n in [1, 2]))",
        "a = 1\nb = 2\nraise ValueError('too far')",
    ),
    "typescript": (
        "console.log('größer'); return await Promise.all([1, 2].map((n) => tools.double({ n })))",
        "1;\n2;\nthrow new RangeError('too far');",
    ),
}


async def run_programs(shell: Shell) -> None:
    """Runs programs of both languages in the shell: value, console, calls, the line of an error, a time-out."""

    @tool
    async def double(n: int) -> int:
        """Doubles a number."""
        return 2 * n

    sandbox = ShellSandbox(shell, engines=ENGINES)
    accepted: set[LimitName] = {"cpu_seconds", "memory_mb"}
    async with Corral(
        [double], sandbox=sandbox, containment=Containment(accept_unenforced=accepted), check=False
    ) as corral:
        for language, (program, failing) in PROGRAMS.items():
            result = await corral.execute(program, language=language)
            assert (result.value, [entry.text for entry in result.logs]) == ([2, 4], ["größer"]), result
            assert result.containment == sandbox.containment
            failed: ExecutionResult = await corral.execute(failing, language=language)
            assert failed.error is not None
            assert failed.error.line == 3, failed
        endless = await corral.execute("while True: pass", language="python", limits=Limits(wall_seconds=0.3))
        assert endless.status == "timed_out"

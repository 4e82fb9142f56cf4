"""`VercelShell` with the real SDK against a server that speaks its wire, held to the suites of shells."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from corral.testing import FilesSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell, opened_cloud, run_programs
from tests.shells.shared import ENDS_AND_STREAMS, gate_has

pytestmark = pytest.mark.anyio


class _Vercel(CloudShell):
    cloud = CLOUDS["vercel"]


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    with opened_cloud(_Vercel.cloud):
        async with _Vercel.shared():
            yield


@gate_has(*ENDS_AND_STREAMS, rest="the gate has the whole suite in E2B, and here what the services differ in")
class TestCommands(_Vercel, ShellSuite):
    pass


@gate_has("bytes_are_exact", rest="files of all services are commands: the gate has the whole suite in E2B")
class TestFiles(_Vercel, FilesSuite):
    many_files = 1_000


@pytest.mark.matrix("programs are run by commands, whose input and output the suite has: the gate has them in E2B")
async def test_programs_run_there() -> None:
    await run_programs(_Vercel.opened)

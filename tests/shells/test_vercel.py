"""`VercelShell` with the real SDK against a server that speaks its wire, held to the suites of shells."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from corral.testing import FilesSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell, opened_cloud, run_programs

pytestmark = pytest.mark.anyio


class _Vercel(CloudShell):
    cloud = CLOUDS["vercel"]


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    with opened_cloud(_Vercel.cloud):
        async with _Vercel.shared():
            yield


class TestCommands(_Vercel, ShellSuite):
    pass


class TestFiles(_Vercel, FilesSuite):
    many_files = 1_000


async def test_programs_run_there() -> None:
    await run_programs(_Vercel.opened)

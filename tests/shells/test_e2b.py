"""`E2BShell` with the real SDK against a server that speaks its wire, held to the suites of shells."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from corral.testing import FilesSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell, opened_cloud, run_programs

pytestmark = pytest.mark.anyio


class _E2B(CloudShell):
    cloud = CLOUDS["e2b"]


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    with opened_cloud(_E2B.cloud):
        async with _E2B.shared():
            yield


class TestCommands(_E2B, ShellSuite):
    pass


class TestFiles(_E2B, FilesSuite):
    many_files = 1_000


async def test_programs_run_there() -> None:
    await run_programs(_E2B.opened)

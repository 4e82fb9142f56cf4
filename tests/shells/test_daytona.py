"""`DaytonaShell` with the real SDK against a server that speaks its wire, held to the suites of shells."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from corral.testing import FilesSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell, opened_cloud, run_programs

pytestmark = pytest.mark.anyio


class _Daytona(CloudShell):
    cloud = CLOUDS["daytona"]


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    with opened_cloud(_Daytona.cloud):
        async with _Daytona.shared():
            yield


class TestCommands(_Daytona, ShellSuite):
    pass


class TestFiles(_Daytona, FilesSuite):
    many_files = 1_000


async def test_programs_run_there() -> None:
    await run_programs(_Daytona.opened)


async def test_short_and_marked_output_arrives_whole() -> None:
    for text in ("", "a", "a\n", "corral-end-", "x\n\ncorral", "\\n"):
        assert (await _Daytona.opened.run(f"printf %s '{text}'")).stdout == text

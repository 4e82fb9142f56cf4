"""The suites of shells, files and sandboxes against the services themselves, with your key and at your cost.

`python -m pytest tests/shells/real_clouds.py -k e2b`, or `daytona` or `vercel`. Nothing else runs this file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from corral.sandboxes import SandboxProvider
from corral.shells import ShellSandbox
from corral.testing import FilesSuite, SandboxSuite, ShellSuite
from tests.shells.clouds import CLOUDS, CloudShell

pytestmark = pytest.mark.anyio


class _E2B(CloudShell):
    cloud = CLOUDS["e2b"]


class _Daytona(CloudShell):
    cloud = CLOUDS["daytona"]


class _Vercel(CloudShell):
    cloud = CLOUDS["vercel"]


@pytest.fixture(scope="class", autouse=True)
async def opened(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncGenerator[None]:
    kind = cast("type[CloudShell]", request.cls)  # pyright: ignore[reportUnknownMemberType]
    async with kind.shared():
        yield


class TestE2BCommands(_E2B, ShellSuite):
    pass


class TestE2BFiles(_E2B, FilesSuite):
    pass


class TestE2BPrograms(_E2B, SandboxSuite):
    language = "python"

    def provider(self) -> SandboxProvider:
        return ShellSandbox(self.opened)


class TestDaytonaCommands(_Daytona, ShellSuite):
    pass


class TestDaytonaFiles(_Daytona, FilesSuite):
    pass


class TestDaytonaPrograms(TestE2BPrograms):
    cloud = CLOUDS["daytona"]


class TestVercelCommands(_Vercel, ShellSuite):
    pass


class TestVercelFiles(_Vercel, FilesSuite):
    pass


class TestVercelPrograms(TestE2BPrograms):
    cloud = CLOUDS["vercel"]

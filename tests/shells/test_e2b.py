"""`E2BShell` with the real SDK against a server that speaks its wire; held to the suites of shells and sandboxes."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager

import deno
import pytest

from corral import Language
from corral.sandboxes import SandboxProvider, ShellSandbox
from corral.shells import E2BShell, Shell
from corral.testing import FilesSuite, SandboxSuite, ShellSuite
from corral.types import Isolation
from tests.shells.faults import served
from tests.shells.stub_e2b import StubE2B

pytestmark = pytest.mark.anyio

STUB = StubE2B()


@pytest.fixture(scope="module", autouse=True)
def service() -> Generator[None]:
    if "CORRAL_REAL_CLOUD" in os.environ:
        yield
        return
    with served(STUB.app()) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
        patch.setenv("E2B_HTTP_VERSION", "1.1")
        patch.setenv("E2B_API_URL", url)
        patch.setenv("E2B_SANDBOX_URL", url)
        yield
    assert not STUB.left


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class _E2B:
    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        async with await E2BShell.create() as shell:
            yield shell


class TestCommands(_E2B, ShellSuite):
    pass


class TestFiles(_E2B, FilesSuite):
    pass


class TestPython(SandboxSuite):
    language = "python"

    def provider(self) -> SandboxProvider:
        found = os.environ.get("CORRAL_REAL_DENO") or deno.find_deno_bin()
        engines: Mapping[Language, str] = {"python": "python3", "typescript": found}
        return ShellSandbox(E2BShell.create, engines=engines, isolation=Isolation("e2b", "vm"))


class TestTypeScript(TestPython):
    language = "typescript"

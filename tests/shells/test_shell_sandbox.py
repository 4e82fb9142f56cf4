"""Programs in shells of this machine, held to the suite of sandboxes."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

import deno
import pytest

from corral import Corral, Language
from corral.sandboxes import SandboxProvider, ShellSandbox
from corral.shells import LocalShell, Shell
from corral.testing import SandboxSuite
from corral.types import Isolation

pytestmark = pytest.mark.anyio

ENGINES: Mapping[Language, str] = {"python": "python3", "typescript": deno.find_deno_bin()}


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest) -> Generator[None]:
    """Working directory of the shell; programs and guests leave nothing there."""
    with tempfile.TemporaryDirectory() as folder:
        if request.instance is not None:
            request.instance.folder = folder
        yield
        assert not list(Path(folder).iterdir())


class TestPython(SandboxSuite):
    language = "python"
    folder: str

    def provider(self) -> SandboxProvider:
        return ShellSandbox(LocalShell(self.folder), engines=ENGINES)


class TestTypeScript(TestPython):
    language = "typescript"


class _Counted(LocalShell):
    closed = 0

    async def aclose(self) -> None:
        await super().aclose()
        type(self).closed += 1


def _corral(sandbox: SandboxProvider) -> Corral:
    return Corral(sandbox=sandbox, required_tier="none", accept_unenforced={"cpu_seconds", "memory_mb"}, check=False)


async def test_a_shell_that_is_opened_for_programs_is_closed_with_them(tmp_path: Path) -> None:
    async def open_shell() -> Shell:
        return _Counted(tmp_path)

    sandbox = ShellSandbox(open_shell, isolation=Isolation("local", "process"))
    async with _corral(sandbox) as corral:
        result = await corral.execute("1 + 1", language="python")
        assert (result.value, result.isolation) == (2, "local")
    assert _Counted.closed == 1


async def test_a_command_that_ends_without_a_result_is_a_lost_sandbox(tmp_path: Path) -> None:
    programs = ("import os\nos._exit(3)", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    async with LocalShell(tmp_path) as shell, _corral(ShellSandbox(shell)) as corral:
        for program in programs:
            result = await corral.execute(program, language="python")
            assert result.error is not None
            assert result.error.code == "sandbox_lost", result
        native = await corral.execute("import os\nos.write(1, b'no frame')\n7", language="python")
        assert native.value == 7, native
        crowded = await corral.execute("len(bytearray(300_000_000))", language="python")
        assert crowded.error is not None
        assert crowded.error.code == "memory_exceeded", crowded

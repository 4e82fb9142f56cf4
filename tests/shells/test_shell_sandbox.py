"""Programs in shells of this machine, held to the suite of sandboxes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import deno
import pytest

from corral import Containment, Corral, ExecutionResult, Limits
from corral.containment import ContainmentKind
from corral.errors import StartFailed
from corral.sandboxes import SandboxProvider
from corral.shells import LocalShell, Process, Shell, ShellSandbox
from corral.testing import SandboxSuite
from corral.types import Language
from tests.bridges.http.engines import NODE
from tests.shells.shared import gate_has

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


class TestTypeScript(SandboxSuite):
    language = "typescript"
    folder: str

    def provider(self) -> SandboxProvider:
        return ShellSandbox(LocalShell(self.folder), engines=ENGINES)


@gate_has(
    "a_value_and_the_console_leave_the_program",
    "calls_run_at_the_same_time_and_their_errors_can_be_caught",
    "a_program_without_end_is_timed_out_and_the_next_one_runs",
    rest="the gate has the suite in TypeScript, and here what depends on how the engine is started",
)
class TestPython(TestTypeScript):
    language = "python"


@gate_has(rest="the gate has the suite in Deno, and that programs do the same in Node")
class TestTypeScriptInNode(TestTypeScript):
    def provider(self) -> SandboxProvider:
        return ShellSandbox(LocalShell(self.folder), engines={"typescript": NODE})


class _Counted(LocalShell):
    closed = 0

    async def aclose(self) -> None:
        await super().aclose()
        type(self).closed += 1


def _corral(sandbox: SandboxProvider) -> Corral:
    return Corral(sandbox=sandbox, containment=Containment.development(), check=False)


async def test_a_shell_that_is_opened_for_programs_is_closed_with_them(tmp_path: Path) -> None:
    async def open_shell() -> Shell:
        return _Counted(tmp_path)

    sandbox = ShellSandbox(open_shell, containment=ContainmentKind("local", "process"))
    async with _corral(sandbox) as corral:
        result = await corral.execute("1 + 1", language="python")
        assert (result.value, result.containment) == (2, "local")
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


ENGINES_OWN = (
    "await new Promise(() => {})",
    "return eval('1')",
    "return [typeof process, typeof require, typeof Deno, typeof globalThis.global]",
    "Promise.reject(new Error('lost')); return 6",
    "const late = Promise.reject(new Error('x')); await null; try { await late } catch (e) { return e.message }",
    "setTimeout(() => { throw new Error('in a timer') }, 1); await new Promise((done) => setTimeout(done, 9)); return 7",
    "return (await crypto.subtle.digest('SHA-256', new Uint8Array(2))).byteLength",
    "return await fetch('http://127.0.0.1')",
    "await import('node:fs')",
    "setInterval(() => {}, 5); return 1",
    "const kept = []; while (true) kept.push(new Array(100000).fill(1.5))",
)
"""Programs about what one engine could have or do in another way."""
PLAIN = (
    "const a = 1;\nconst x = ;\nreturn 1",
    "return { a: 1",
    "await new Promise((done) => setTimeout(done, 5)); return 'x'.repeat(100_000).length",
    "console.log('a %s', 'b', new Map([[1, 2n]])); return [2n ** 70n, new Uint8Array([1, 2])]",
    "interface X { y: number }\nconst x: X = { y: 1 };\nthrow new TypeError('bad ' + x.y)",
    "return 'x'.repeat(2000)",
)


def _outcome(result: ExecutionResult) -> tuple[object, ...]:
    error = result.error and (result.error.code, result.error.name, result.error.message, result.error.line)
    return result.status, result.value, error, [(entry.level, entry.text) for entry in result.logs]


class _Recorded(LocalShell):
    """Keeps the last command."""

    last = ""

    async def spawn(self, command: str, **options: Any) -> Process:
        self.last = command
        return await super().spawn(command, **options)


@pytest.mark.matrix("each of the two runs the suite in the gate; side by side")
@pytest.mark.parametrize(
    "programs",
    [
        pytest.param(ENGINES_OWN, id="of engines"),
        pytest.param(
            PLAIN, id="plain", marks=pytest.mark.matrix("the gate has programs in which engines could differ")
        ),
    ],
)
async def test_programs_do_the_same_in_node_as_in_deno(tmp_path: Path, programs: tuple[str, ...]) -> None:
    async with LocalShell(tmp_path) as shell:
        seen: list[list[object]] = []
        for engine in (ENGINES["typescript"], NODE):
            async with _corral(ShellSandbox(shell, engines={"typescript": engine})) as corral:
                limits = Limits(value_bytes=1000, memory_mb=64)
                seen.append([_outcome(await corral.execute(program, limits=limits)) for program in programs])
        for program, in_deno, in_node in zip(programs, *seen, strict=True):
            assert in_deno == in_node, program


async def test_an_engine_for_typescript_is_found_in_the_shell(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("both", "node", "neither")}
    for folder in folders.values():
        folder.mkdir()
    for name in ("both", "node"):
        (folders[name] / "node").symlink_to(NODE)
    (folders["both"] / "deno").symlink_to(ENGINES["typescript"])
    for name, engine in (("both", "deno"), ("node", "node"), ("neither", None)):
        path = {"PATH": f"{folders[name]}:{_tools(tmp_path)}"}
        async with _Recorded(tmp_path, env=path) as shell, _corral(ShellSandbox(shell)) as corral:
            if engine is None:
                with pytest.raises(StartFailed, match="no engine for TypeScript"):
                    await corral.execute("return 1")
            else:
                assert (await corral.execute("return 1")).value == 1
                assert f"exec {folders[name] / engine} " in shell.last


def _tools(folder: Path) -> Path:
    tools = folder / "tools"
    if not tools.exists():
        tools.mkdir()
        for name in ("bash", "mktemp", "rm", "head", "base64"):
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
    return tools

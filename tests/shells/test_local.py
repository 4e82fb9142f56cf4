"""Shells of this machine, held to the public suites."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from docs_src.reference.shells import CAPABILITIES

from corral import ConfigError
from corral.errors import FileError
from corral.sessions import Mount, Scratch
from corral.shells import JailedShell, LocalShell, Shell, ShellLimits
from corral.testing import FilesSuite, ShellSuite
from tests.shells.attempts import jailed
from tests.shells.shared import ENDS_AND_STREAMS, ROUND_TRIPS, SharedShell, gate_has

pytestmark = pytest.mark.anyio

REST = "the gate has the whole suite in namespaces, and here what depends on where commands run"


class _Local(SharedShell):
    @asynccontextmanager
    async def fresh_shell(self) -> AsyncGenerator[Shell]:
        with tempfile.TemporaryDirectory() as folder:
            async with LocalShell(folder) as shell:
                yield shell


class _Jailed(SharedShell):
    @asynccontextmanager
    async def fresh_shell(self) -> AsyncGenerator[Shell]:
        async with JailedShell([Mount("/workspace", Scratch(files=20_000))]) as shell:
            yield shell


class _Landlocked(SharedShell):
    @asynccontextmanager
    async def fresh_shell(self) -> AsyncGenerator[Shell]:
        async with jailed("landlock", files=[Mount("/workspace", Scratch(files=20_000))]) as shell:
            yield shell


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    async with _Local.shared(), _Jailed.shared(), _Landlocked.shared():
        yield


def test_the_reference_has_the_capabilities_of_a_jailed_shell() -> None:
    assert _Jailed.opened.capabilities == CAPABILITIES["JailedShell"]


@gate_has(*ENDS_AND_STREAMS, rest=REST)
class TestLocalCommands(_Local, ShellSuite):
    pass


class TestLocalFiles(_Local, FilesSuite):
    many_files = 1_000

    @pytest.mark.matrix("many files are made in a jail; those of this shell are read in the same way")
    async def test_10000_files(self) -> None:
        await super().test_10000_files()


class TestJailedCommands(_Jailed, ShellSuite):
    pass


class TestJailedFiles(_Jailed, FilesSuite):
    pass


@gate_has(*ENDS_AND_STREAMS, rest=REST)
class TestLandlockedCommands(_Landlocked, ShellSuite):
    pass


@gate_has(*ROUND_TRIPS, rest=REST)
class TestLandlockedFiles(_Landlocked, FilesSuite):
    many_files = 1_000


async def test_no_file_of_the_environment_runs_before_the_bounds() -> None:
    async with JailedShell(limits=ShellLimits(processes=20), env={"BASH_ENV": "/workspace/first"}) as shell:
        await shell.files.write_text("first", "echo $(ulimit -u)\n")
        assert (await shell.run("true")).stdout == "20\n"


async def test_a_command_that_is_being_started_ends_with_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[subprocess.Popen[bytes]] = []
    started, closed = threading.Event(), threading.Event()
    make = subprocess.Popen[bytes]

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made.append(make(*arguments, **options))
        started.set()
        closed.wait()
        return made[0]

    monkeypatch.setattr(subprocess, "Popen", popen)
    shell = LocalShell(tmp_path)

    async def spawn() -> None:
        with pytest.raises(ConfigError, match="this shell is closed"):
            await shell.spawn("sleep 60")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawn)
        await anyio.to_thread.run_sync(started.wait)
        await shell.aclose()
        closed.set()
    assert made[0].returncode is not None


async def test_no_fifo_holds_a_thread_of_the_host(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    async with LocalShell(tmp_path) as shell:
        with pytest.raises(FileError, match="fifo: it is not a regular file"):
            await shell.files.write_text("fifo", "x")
        with pytest.raises(FileError, match="fifo: it is not a regular file"):
            await shell.files.read_text("fifo")
        reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        try:
            with pytest.raises(FileError, match="fifo: it is not a regular file"):
                await shell.files.write_text("fifo", "x")
        finally:
            os.close(reader)


async def test_no_script_goes_on_as_its_children_are_killed(tmp_path: Path) -> None:
    nested = "nest() { [ $1 = 0 ] && { echo deep; sleep 1000; } || (nest $(($1 - 1)); touch late); }"
    async with LocalShell(tmp_path) as shell:
        async with await shell.spawn(f"{nested}; export -f nest; setsid bash -c 'nest 30' & wait") as process:
            async for piece in process.stdout:
                assert piece == b"deep\n"
                break
        assert await shell.files.stat("late") is None

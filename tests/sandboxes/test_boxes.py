"""Boxes that outlive an execution: one configuration and one user each, closed in every case."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from corral import Containment, Corral, ExecutionContext, ExecutionResult, Limits
from corral.containment import ContainmentKind
from corral.errors import StartFailed
from corral.events import ConsoleOutput
from corral.sandboxes import BoxProvider, GuestChannel, GuestFiles, SandboxProvider
from corral.testing import SandboxSuite
from corral.types import LimitName, SandboxConfig
from tests.conftest import TOOLS, both_loops
from tests.shells.shared import gate_has
from tests.testing.test_other_suites import plain_example

UNENFORCED: tuple[LimitName, ...] = ("cpu_seconds", "memory_mb")
VISIT = (
    "with open('visits', 'a+') as file:\n    file.write('x')\n    file.seek(0)\n    visits = len(file.read())\nvisits"
)

PlainChannel = plain_example().PlainChannel

pytestmark = [pytest.mark.anyio]


class NoFolder:
    """The folder of a guest that is its box's to remove."""

    def cleanup(self) -> None: ...


class Folders(BoxProvider[Path]):
    """Boxes are folders: a guest is a process whose working directory is its box."""

    name = "folders"
    languages = frozenset({"python"})
    containment = ContainmentKind("folders", "process")

    def __init__(self, *, at_once: int = 1, ready: int = 0) -> None:
        self.executions_at_once = at_once
        self.ready = ready
        self.opened: list[Path] = []
        self.configs: dict[Path, SandboxConfig] = {}
        self.closed: list[Path] = []
        self.changed = anyio.Event()
        super().__init__()

    async def open(self, config: SandboxConfig) -> Path:
        box = Path(tempfile.mkdtemp(prefix="box-"))
        self.opened.append(box)
        self.configs[box] = config
        self._tell()
        return box

    async def connect_in(self, box: Path, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        for name, content in guest.files.items():  # written atomically: another guest of this box may be reading them
            descriptor, whole = tempfile.mkstemp(dir=box)
            os.write(descriptor, content)
            os.close(descriptor)
            Path(whole).replace(box / name)
        process = await anyio.open_process(guest.command(sys.executable, str(box)), env=guest.environment, cwd=box)
        return PlainChannel(process, NoFolder())

    async def close(self, box: Path) -> None:
        shutil.rmtree(box)
        self.closed.append(box)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, *, opened: int = 0, closed: int = 0) -> None:
        with anyio.fail_after(20):
            while len(self.opened) < opened or len(self.closed) < closed:
                await self.changed.wait()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert not list(tmp_path.glob("box-*"))


@gate_has(
    "a_value_and_the_console_leave_the_program",
    "calls_run_at_the_same_time_and_their_errors_can_be_caught",
    "a_program_without_end_is_timed_out_and_the_next_one_runs",
    rest="test_channels.py has all limits over such channels; here a box holds the guest",
)
class TestFolders(SandboxSuite):
    language = "python"

    def provider(self) -> SandboxProvider:
        return Folders(ready=1)


def open_corral(provider: Folders, *more: Callable[[], Awaitable[None]]) -> Corral:
    return Corral([*TOOLS, *more], sandbox=provider, containment=Containment.development(), check=False)


async def run(corral: Corral, user: str | None, program: str = VISIT, limits: Limits | None = None) -> ExecutionResult:
    context = None if user is None else ExecutionContext(user_id=user)
    return await corral.execute(program, language="python", context=context, limits=limits)


@both_loops
async def test_a_user_keeps_a_box_and_nobody_else_sees_it(anyio_backend: str) -> None:
    provider = Folders()
    async with open_corral(provider) as corral:
        users = ("ada", "ada", "bob", None, None, "ada")
        assert [(await run(corral, user)).value for user in users] == [1, 2, 1, 1, 2, 3]
        assert provider.closed == []
    assert set(provider.closed) == set(provider.opened)
    assert len(provider.opened) == 3


async def test_another_configuration_has_another_box() -> None:
    provider = Folders()
    async with open_corral(provider) as corral:
        for memory_mb in (64, 65, 64):
            await run(corral, "ada", limits=Limits(memory_mb=memory_mb))
    assert [config.memory_mb for config in provider.configs.values()] == [64, 65]


@pytest.mark.parametrize(("at_once", "boxes"), [(1, 3), (3, 1)])
async def test_as_many_executions_share_a_box_as_it_takes(at_once: int, boxes: int) -> None:
    provider = Folders(at_once=at_once)
    come: list[None] = []
    all_there = anyio.Event()

    async def meet() -> None:
        come.append(None)
        if len(come) == 3:
            all_there.set()
        await all_there.wait()

    async with open_corral(provider, meet) as corral, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run, corral, "ada", "await tools.meet()")
    assert (len(come), len(provider.opened)) == (3, boxes)


async def test_boxes_are_ready_before_a_user_comes_and_are_replaced() -> None:
    provider = Folders(ready=2)
    async with open_corral(provider) as corral:
        await run(corral, "ada")
        await provider.until(opened=3)
        first = provider.opened[0]
        await run(corral, "ada")
        await run(corral, "bob")
        await provider.until(opened=4)
        assert (await run(corral, "bob")).value == 2
        assert (len(provider.opened), first.exists()) == (4, True)
    assert sorted(provider.closed) == sorted(provider.opened)


async def test_boxes_that_cannot_be_opened_in_advance_give_their_own_reason() -> None:
    class Full(Folders):
        @override
        async def open(self, config: SandboxConfig) -> Path:
            raise StartFailed("no room")

    with pytest.raises(StartFailed, match="no room"):
        async with open_corral(Full(ready=2)):
            pass


async def test_a_box_that_died_while_it_was_idle_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    provider = Folders()

    async def broken(box: Path, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        if box == provider.opened[0]:
            raise OSError("the machine is gone")
        return await Folders.connect_in(provider, box, config, guest)

    async with open_corral(provider) as corral:
        assert (await run(corral, "ada")).status == "succeeded"
        provider.connect_in = broken  # type: ignore[method-assign]
        with caplog.at_level(logging.INFO, "corral.sandboxes"):
            assert (await run(corral, "ada")).status == "succeeded"
        assert len(provider.opened) == 2
        await provider.until(closed=1)
    assert "the machine is gone" in caplog.text


async def test_a_new_box_that_takes_no_guest_is_closed_and_the_reason_told() -> None:
    provider = Folders()

    async def broken(box: Path, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        raise OSError("no space left")

    provider.connect_in = broken  # type: ignore[method-assign]
    async with open_corral(provider) as corral:
        with pytest.raises(StartFailed, match="no space left"):
            await run(corral, "ada")
        await provider.until(closed=1)
    assert provider.closed == provider.opened


async def test_a_box_whose_guest_never_gets_ready_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Folders()
    async with open_corral(provider) as corral:
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/bin/true")
            with pytest.raises(StartFailed, match="before it was ready"):
                await run(corral, "ada")
        await provider.until(closed=1)
        assert (await run(corral, "ada")).value == 1


async def test_idle_boxes_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.sandboxes.pool._MAX_IDLE_SECONDS", 0.0)
    monkeypatch.setattr("corral.sandboxes.framed.boxes._WATCH_SECONDS", 0.01)
    provider = Folders()
    async with open_corral(provider) as corral:
        await run(corral, "ada")
        await provider.until(closed=1)


async def test_without_an_open_corral_no_box_is_left() -> None:
    provider = Folders()
    assert (await run(open_corral(provider), "ada")).status == "succeeded"
    await provider.until(closed=1)


async def test_a_cancelled_execution_leaves_a_box_that_serves_on() -> None:
    provider = Folders()
    async with open_corral(provider) as corral:
        await run(corral, "ada")
        endless = "print('on')\nwhile True: pass"
        async with corral.start(endless, language="python", context=ExecutionContext(user_id="ada")) as execution:
            async for event in execution:
                if isinstance(event, ConsoleOutput):
                    execution.cancel()
        assert (await run(corral, "ada")).status == "succeeded"
    assert len(provider.opened) == 1

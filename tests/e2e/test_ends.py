"""Where a Corral is closed that was the only one, no guest, file or descriptor is left at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

from corral import ConfigError, Corral, ExecutionResult, tool
from corral.errors import StartFailed
from corral.sandboxes import Sandbox
from corral.sandboxes.monty import MontySandbox
from corral.types import SandboxConfig
from tests.conftest import TOOLS
from tests.processes import descriptors, guests
from tests.until import until

pytestmark = pytest.mark.anyio


async def test_closing_ends_what_runs_and_leaves_nothing() -> None:
    results: list[ExecutionResult] = []
    started = anyio.Event()
    others = guests()
    corral = Corral(TOOLS, check=False)

    async def one() -> None:
        results.append(
            await corral.execute("await tools.nothing(); while (true) {}", on_event=lambda event: started.set())
        )

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
        await started.wait()
        await corral.aclose()  # from another task than those that run
        assert guests() <= others
    assert [result.status for result in results] == ["cancelled"] * 3
    with pytest.raises(Exception, match="closed"):
        await corral.execute("return 1")


async def test_a_drain_waits_for_what_runs_takes_nothing_new_and_has_an_end() -> None:
    begun, go = anyio.Event(), anyio.Event()
    ended: list[bool | str] = []

    @tool
    async def wait() -> None:
        begun.set()
        await go.wait()

    async def one(corral: Corral) -> None:
        ended.append((await corral.execute("await tools.wait()", language="python")).status)

    async def drain(corral: Corral, seconds: float) -> None:
        ended.append(await corral.drain(seconds))

    corral = Corral([wait], sandbox="monty", check=False)
    assert corral.unready() == "not open"
    for seconds, outcome in ((60, ["succeeded", True]), (0, ["cancelled", False])):
        async with corral, anyio.create_task_group() as tasks:
            assert corral.unready() is None
            tasks.start_soon(one, corral)
            await begun.wait()
            tasks.start_soon(drain, corral, seconds)
            await until(lambda: corral.unready() == "draining")
            with pytest.raises(ConfigError, match="draining and accepts no new programs"):
                await corral.execute("1", language="python")
            if seconds:
                go.set()
        assert sorted(ended, key=str) == sorted(outcome, key=str)
        begun, go = anyio.Event(), anyio.Event()
        ended.clear()


async def test_sandboxes_that_do_not_start_are_told_to_a_balancer() -> None:
    class Broken(MontySandbox):
        async def start(self, config: SandboxConfig) -> Sandbox:
            raise StartFailed("no memory")

    async with Corral(sandbox=Broken(), check=False) as corral:
        with pytest.raises(StartFailed):
            await corral.execute("1", language="python")
        assert corral.unready() == "sandboxes cannot be started"


async def test_nothing_is_left_after_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    others = guests()
    opened = descriptors()
    async with Corral(TOOLS, check=False) as corral:
        for program in ["return 1", "throw 1", "await tools.fail()", "let x = ;"]:
            await corral.execute(program)
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
    assert guests() <= others
    assert descriptors() <= opened


async def test_native_cancellation_during_a_start_leaves_no_guest() -> None:
    others = guests()
    async with Corral(check=False) as corral:
        for turns in (0, 1, 2, 4, 8, 16, 32, 64, 128):
            task = asyncio.ensure_future(corral.execute("while (true) {}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert guests() <= others

"""Durable executions that lose their sandboxes, on a host that goes on, drains or closes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from threading import Event as ThreadEvent
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionResult
from corral.containment import ContainmentKind
from corral.errors import HeldElsewhere, SandboxLost
from corral.events import Event
from corral.ledger import Ledger, MemoryLedger, StoredExecution
from corral.running import executions
from corral.sandboxes import Job, Sandbox, failed_exit
from corral.testing import FakeGuest, FakeSandbox
from corral.types import Capabilities, Endpoint, Exit, SandboxConfig
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio


class LostSandbox(Sandbox):
    """Is lost once it may be."""

    containment = ContainmentKind("fake", "vm")

    def __init__(self, may_be_lost: Callable[[], Awaitable[object]]) -> None:
        self._may_be_lost = may_be_lost

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        await self._may_be_lost()
        return replace(failed_exit(SandboxLost("the sandbox is lost: rack 7 is dark")), lost=True)

    async def aclose(self) -> None:
        pass


class Losing(FakeSandbox):
    """Loses its first sandboxes. The others return the number of the sandbox."""

    def __init__(self, count: float, may_be_lost: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint) -> None:
        super().__init__(self._number)
        self.started, self._count, self._may_be_lost = 0, count, may_be_lost

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, durable=True)

    async def start(self, config: SandboxConfig) -> Sandbox:
        await anyio.lowlevel.checkpoint()
        self.started += 1
        return LostSandbox(self._may_be_lost) if self.started <= self._count else await super().start(config)

    async def _number(self, _: FakeGuest) -> int:
        return self.started


@pytest.fixture(autouse=True)
def _looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "_LOOK_SECONDS", math.inf)


def corral_on(sandbox: Losing, ledger: Ledger | None = None) -> Corral:
    return Corral(sandbox=sandbox, ledger=ledger or MemoryLedger(), resume_on_loss=True, check=False)


async def run(corral: Corral, events: list[Event] | None = None, results: list[ExecutionResult] | None = None) -> Any:
    on_event = None if events is None else events.append
    result = await corral.execute("return 1", durable=True, execution_id="one", on_event=on_event)
    if results is not None:
        results.append(result)
    return result


def finished(events: list[Event]) -> int:
    assert events[-1].type == "execution_finished"
    return sum(each.type == "execution_finished" for each in events)


async def status_of(corral: Corral) -> str:
    return (await corral.executions.get("one")).status


@pytest.mark.parametrize(("count", "value"), [(2, 3), (3, None), (4, None)])
async def test_a_program_goes_on_until_it_has_lost_three_sandboxes(count: int, value: int | None) -> None:
    sandbox, events = Losing(count), list[Event]()
    async with corral_on(sandbox) as corral:
        result = await run(corral, events)
        assert (result.value, sandbox.started, finished(events)) == (value, 3, 1)
        assert (result.error and result.error.code) == (None if value else "sandbox_lost")
        assert await status_of(corral) == ("succeeded" if value else "running")


async def test_a_program_whose_sandbox_is_lost_goes_on_while_its_host_drains() -> None:
    lose = anyio.Event()
    sandbox, results, events = Losing(1, lose.wait), list[ExecutionResult](), list[Event]()
    async with corral_on(sandbox) as corral, anyio.create_task_group() as tasks:
        tasks.start_soon(run, corral, events, results)
        await until(lambda: sandbox.started)
        tasks.start_soon(corral.drain)
        await until(lambda: corral.unready() == "draining")
        lose.set()
    assert ([each.value for each in results], finished(events)) == ([2], 1)


class Waiting(MemoryLedger):
    """Waits before a claim of what a lost sandbox has left."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = ThreadEvent(), ThreadEvent()

    def claim(self, execution_id: str, *, now: float, lease: float, ended: bool = False) -> StoredExecution | None:
        self.asked.set()
        assert self.released.wait(LIMIT_SECONDS)
        return super().claim(execution_id, now=now, lease=lease, ended=ended)


async def test_a_host_that_closes_while_a_program_moves_leaves_it_to_others() -> None:
    sandbox, ledger, results, events = Losing(1), Waiting(), list[ExecutionResult](), list[Event]()
    corral = corral_on(sandbox, ledger)
    async with anyio.create_task_group() as tasks, corral:
        tasks.start_soon(run, corral, events, results)
        await until(ledger.asked.is_set)
        [execution] = corral._live  # pyright: ignore[reportPrivateUsage]
        tasks.start_soon(corral.aclose)
        await until(lambda: execution._scope.cancel_called)  # pyright: ignore[reportPrivateUsage]
        ledger.released.set()
    assert ([each.status for each in results], sandbox.started, finished(events)) == (["cancelled"], 1, 1)
    async with corral_on(sandbox, ledger) as other:
        with anyio.fail_after(LIMIT_SECONDS):
            while await status_of(other) != "succeeded":
                await anyio.sleep(0.01)
    assert sandbox.started == 2


class Taken(MemoryLedger):
    """Another host is always faster."""

    def claim(self, execution_id: str, *, now: float, lease: float, ended: bool = False) -> None:
        pass


async def test_observers_see_the_end_if_another_host_takes_the_program() -> None:
    events = list[Event]()
    async with corral_on(Losing(1), Taken()) as corral:
        with pytest.raises(HeldElsewhere, match="one runs on another host"):
            await run(corral, events)
    assert finished(events) == 1


async def test_a_host_does_not_take_its_own_program_while_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox, taken = Losing(1), list[ExecutionResult]()
    async with corral_on(sandbox) as corral:
        move = corral._rest  # pyright: ignore[reportPrivateUsage]

        async def take_first(*arguments: Any) -> Any:
            taken.extend(await corral.executions.resume_lost())
            return await move(*arguments)

        monkeypatch.setattr(corral, "_rest", take_first)
        assert (await run(corral)).value == 2
    assert not taken


async def test_a_failure_of_one_resumed_program_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger()
    async with Corral(sandbox=Losing(2), ledger=ledger, check=False) as corral:
        for name in ("bad", "good"):
            await corral.execute("return 1", durable=True, execution_id=name)
        start = corral._runtime.provider("typescript").start  # pyright: ignore[reportPrivateUsage]
        broken = [OSError("no file is left")]

        async def start_or_fail(config: SandboxConfig) -> Sandbox:
            if broken:
                raise broken.pop()
            return await start(config)

        corral._runtime.provider("typescript").start = start_or_fail  # pyright: ignore[reportPrivateUsage]
        results = await corral.executions.resume_lost(at_once=1)
        assert [(each.execution_id, each.value) for each in results] == [("good", 3)]
        assert [each.status for each in await corral.executions.list()].count("running") == 1
    assert "bad has lost its host, and resuming it has failed" in caplog.text
    assert "OSError: no file is left" in caplog.text

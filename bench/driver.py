"""The driver's side of a measurement, for engines whose host is Python: standard library only, so that a peer's own
environment can run it.

A driver is a process that measures one engine once. It reads a `Plan` as one line of JSON, and writes lines of JSON:
`{"pause": ...}` whenever its memory is to be looked at, after which it waits for an empty line, and at last an
`Outcome`. `bench/peers/harness.mjs` is the same in JavaScript.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

if TYPE_CHECKING:
    from bench.workloads import Plan, PlannedWorkload

__all__ = ["HostTools", "Outcome", "Subject", "Unavailable", "drive", "run_with_loop"]

T = TypeVar("T")

_RUN_SECONDS = 60.0
"""More than any sample takes; an engine that hangs loses this sample's workload and not its whole row."""


class Unavailable(Exception):
    """This version or this machine has no such engine."""


class Outcome(TypedDict, total=False):
    """What one driver found: times in milliseconds, and microseconds for the cost of calls."""

    samples: dict[str, list[float]]
    errors: dict[str, str]
    versions: dict[str, str]
    unavailable: str
    """Why there is nothing to measure."""
    failed: str
    """Why not even a trivial program ran."""


class HostTools:
    """What the programs call. `stamps` are the times at which calls of `add` arrived."""

    def __init__(self, text_length: int) -> None:
        self._text = "x" * text_length
        self.stamps: list[float] = []
        self.held = 0
        self._released = asyncio.Event()

    async def add(self, a: int, b: int) -> int:
        self.stamps.append(time.perf_counter())
        return a + b

    async def text(self) -> str:
        return self._text

    async def slow(self, n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    async def hold(self) -> int:
        self.held += 1
        await self._released.wait()
        return 1

    def release(self) -> None:
        self._released.set()


class Subject(Protocol):
    """An engine and its host."""

    def versions(self) -> dict[str, str]: ...

    async def start(self, tools: HostTools) -> None:
        """Makes a fresh provider.

        Raises:
            Unavailable: there is no such engine here.
        """
        ...

    async def settle(self) -> None:
        """Waits until the provider is as ready as it gets."""
        ...

    def run(self, program: str) -> Coroutine[object, object, object]:
        """The value of a program that ran in a fresh sandbox. Raises if it failed."""
        ...

    def idle(self) -> AbstractAsyncContextManager[object]:
        """One sandbox that is ready and does nothing."""
        ...

    async def close(self) -> None: ...


async def drive(subject: Subject) -> None:
    """Measures `subject` as the plan on standard input says."""
    plan: Plan = json.loads(sys.stdin.readline())
    outcome: Outcome = {"samples": {}, "errors": {}, "versions": subject.versions()}
    tools = HostTools(plan["text_length"])
    started = time.perf_counter()
    try:
        try:
            await subject.start(tools)
            _check(await _bounded(subject.run(plan["trivial"])), 1)
        except Unavailable as error:
            _say({"unavailable": str(error)})
            return
        except Exception as error:
            _say({"failed": _reason(error), "versions": outcome["versions"]})
            return
        outcome["samples"]["cold"] = [(time.perf_counter() - started) * 1e3]
        # First, because what an engine has freed it may keep.
        if plan["hold"]:
            try:
                await _show_memory(subject, tools, plan)
            except Exception as error:
                outcome["errors"]["memory"] = _reason(error)
        for workload in plan["workloads"]:
            try:
                outcome["samples"][workload["key"]] = await _measure(subject, tools, workload, plan["skipped"])
            except Exception as error:
                outcome["errors"][workload["key"]] = _reason(error)
    finally:
        await subject.close()
    _say(outcome)


async def _measure(subject: Subject, tools: HostTools, workload: PlannedWorkload, skipped: int) -> list[float]:
    samples: list[float] = []
    for index in range(workload["warmup"] + workload["repeats"]):
        await subject.settle()
        tools.stamps.clear()
        started = time.perf_counter()
        if workload["at_once"] == 1:
            values = [await _bounded(subject.run(workload["program"]))]
        else:
            values = await _bounded(_at_once(subject, workload))
        elapsed = (time.perf_counter() - started) * 1e3
        for value in values:
            _check(value, workload["expected"])
        if index < workload["warmup"]:
            continue
        if workload["of_calls"]:
            counted = tools.stamps[skipped:]
            elapsed = (counted[-1] - counted[0]) / (len(counted) - 1) * 1e6
        samples.append(elapsed)
    return samples


async def _at_once(subject: Subject, workload: PlannedWorkload) -> list[object]:
    return await asyncio.gather(*(subject.run(workload["program"]) for _ in range(workload["at_once"])))


async def _show_memory(subject: Subject, tools: HostTools, plan: Plan) -> None:
    """Keeps some sandboxes, and then more; what comes in between is theirs alone.

    There are more live sandboxes at first than there were idle ones at last: an engine may use those again.
    """
    count = plan["sandboxes"]
    await subject.settle()
    _pause("rest", 0)
    async with AsyncExitStack() as boxes:
        for more in (1, count):
            for _ in range(more):
                await _bounded(boxes.enter_async_context(subject.idle()))
            await subject.settle()
            _pause("idle", 0 if more == 1 else count)
    runs: list[asyncio.Future[object]] = []
    try:
        for more in (1 + count, count):
            runs += [asyncio.ensure_future(subject.run(plan["hold"])) for _ in range(more)]
            await _bounded(_until_held(tools, runs))
            await subject.settle()
            _pause("live", 0 if more > count else count)
    finally:
        tools.release()
        values = await asyncio.gather(*runs)
    for value in values:
        _check(value, 1)


async def _until_held(tools: HostTools, runs: list[asyncio.Future[object]]) -> None:
    while tools.held < len(runs) and not any(run.done() for run in runs):  # one that is done now has failed
        await asyncio.sleep(0.01)


async def _bounded(work: Coroutine[object, object, T]) -> T:
    return await asyncio.wait_for(work, _RUN_SECONDS)


def _check(value: object, expected: int) -> None:
    found = len(value) if isinstance(value, str) else value
    if found != expected:
        raise ValueError(f"the program returned {found!r}, not {expected!r}")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip(": ")


def _pause(state: str, sandboxes: int) -> None:
    _say({"pause": state, "sandboxes": sandboxes})
    sys.stdin.readline()


def _say(message: object) -> None:
    print(json.dumps(message), flush=True)


def run_with_loop(main: Coroutine[object, object, None]) -> None:
    """Runs a driver's main on the event loop that its command line asks for."""
    if "--uvloop" in sys.argv:
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)

"""Runs a mix of executions against one Corral, and looks at the host in between."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from corral import Corral, ExecutionResult
from corral.errors import StartFailed
from corral.sandboxes import DenoSandbox
from tests.soak.gauges import Gauges, deviations, guests, measure
from tests.soak.mix import TOOLS, Planned, plan

__all__ = ["Report", "soak"]

_WARM_UP_ROUNDS = 2
_SETTLE_SECONDS = 20.0
"""For processes that were killed to be reaped, by another process, before the host is measured."""
_MOST_IN_WAITING = 4
"""The most guests that a pool keeps by itself."""
_LATE_SECONDS = 0.5
"""For how long after a kill a guest in waiting may be handed out that does not know yet that it is dead."""


@dataclass(slots=True)
class Report:
    """What happened, and what should not have."""

    ends: Counter[str] = field(default_factory=Counter[str])
    """How often each kind ended in each way."""
    kills: list[float] = field(default_factory=list[float])
    """When a guest was killed from outside."""
    lost: int = 0
    """Executions that ended because of it."""
    measured: list[Gauges] = field(default_factory=list[Gauges])
    wrong: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


async def soak(*, executions: int, seed: int, concurrency: int, round_size: int, temporary: Path) -> Report:
    """Runs `executions` in rounds; between rounds nothing runs and the host is measured.

    `temporary` is where this process keeps its temporary files.
    """
    started = time.monotonic()
    chance = random.Random(seed)  # noqa: S311 - a mix that can be repeated
    report = Report()
    before = measure(0, temporary)
    sandbox = DenoSandbox()
    try:
        async with Corral(TOOLS, sandbox=sandbox) as corral:
            done = 0
            for number in range(_WARM_UP_ROUNDS + -(-executions // round_size)):
                batch = min(round_size, executions + _WARM_UP_ROUNDS * round_size - done)
                await _Round(corral, report, chance, concurrency).run(batch)
                done += batch
                if number >= _WARM_UP_ROUNDS - 1:
                    await _find_the_dead(corral)
                    await sandbox.settled()
                    report.measured.append(await _calm(done, temporary, report.measured))
    finally:
        await sandbox.aclose()
    after = measure(done, temporary)
    report.wrong += deviations(report.measured)
    report.wrong += [
        f"{name} after the end: {getattr(after, name)}, before the start: {getattr(before, name)}"
        for name in ("processes", "descriptors", "files", "tasks")
        if getattr(after, name) > getattr(before, name)
    ]
    if report.lost > len(report.kills):
        report.wrong.append(f"{report.lost} executions were lost to {len(report.kills)} kills")
    report.seconds = time.monotonic() - started
    return report


async def _find_the_dead(corral: Corral) -> None:
    """Takes every guest in waiting, so that those which were killed there are replaced."""
    for _ in range(_MOST_IN_WAITING):
        await corral.execute("return 1")


async def _calm(done: int, temporary: Path, earlier: list[Gauges]) -> Gauges:
    """A measurement when what was ended is gone, or when it still is not after a while."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        gauges = measure(done, temporary)
        flat = not deviations([*earlier[:1], gauges]) if earlier else gauges.zombies == 0
        if flat or time.monotonic() > deadline:
            return gauges
        await anyio.sleep(0.05)


class _Round:
    def __init__(self, corral: Corral, report: Report, chance: random.Random, concurrency: int) -> None:
        self._corral = corral
        self._report = report
        self._chance = chance
        self._concurrency = concurrency
        self._left = 0

    async def run(self, executions: int) -> None:
        self._left = executions
        async with anyio.create_task_group() as tasks:
            for _ in range(self._concurrency):
                tasks.start_soon(self._work)

    async def _work(self) -> None:
        while self._left:
            self._left -= 1
            await self._execute(plan(self._chance))

    async def _execute(self, planned: Planned) -> None:
        began = time.monotonic()
        ended: ExecutionResult | StartFailed | None = None
        async with anyio.create_task_group() as tasks:
            if planned.kill_after is not None:
                tasks.start_soon(self._kill, planned.kill_after)
            with anyio.move_on_after(planned.cancel_after):
                try:
                    ended = await self._corral.execute(planned.source, limits=planned.kind.limits)
                except StartFailed as error:
                    ended = error
        self._judge(planned, began, ended)

    def _judge(self, planned: Planned, began: float, ended: ExecutionResult | StartFailed | None) -> None:
        if ended is None:
            end, legal = "cancelled", planned.cancel_after is not None
        elif isinstance(ended, StartFailed) or (ended.error is not None and ended.error.code == "sandbox_lost"):
            end, legal = "lost", any(kill >= began - _LATE_SECONDS for kill in self._report.kills)
            self._report.lost += 1
        else:
            end, legal = ended.status, planned.kind.legal(ended)
        self._report.ends[f"{planned.kind.name}: {end}"] += 1
        if not legal:
            said = repr(ended.error or ended.value)[:300] if isinstance(ended, ExecutionResult) else repr(ended)
            self._report.wrong.append(f"{planned.kind.name}: {end}, {said}")

    async def _kill(self, seconds: float) -> None:
        """Kills some guest of this process, as the kernel does when memory is short."""
        await anyio.sleep(seconds)
        if found := sorted(guests()):
            try:
                os.kill(self._chance.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                return  # it ended meanwhile
            self._report.kills.append(time.monotonic())

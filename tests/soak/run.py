"""Runs a mix of executions against one Corral, and looks at the host in between."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import anyio

from corral import Corral, ExecutionContext, ExecutionResult
from corral.errors import StartFailed
from corral.sandboxes import DenoSandbox
from corral.sandboxes.jailed.fork_server import ForkServer
from tests.soak.gauges import Gauges, deviations, guests, launchers, measure
from tests.soak.mix import LIMITS, TOOLS, USERS, Planned, plan

__all__ = ["Report", "soak"]

_WARM_UP_ROUNDS = 2
_SETTLE_SECONDS = 60.0
"""For processes that were killed to be reaped, by another process, before the host is measured."""
_OF_PROCESS = {"sandbox_lost", "memory_exceeded"}
"""How an execution ends when its process does; whose memory it was, the engine's last words do not say."""
_LATE_SECONDS = 2.0
"""For how long after a kill a guest in waiting may be handed out that does not know yet that it is dead."""


@dataclass(slots=True)
class Report:
    """What happened, and what should not have."""

    ends: Counter[str] = field(default_factory=Counter[str])
    """How often each kind ended in each way."""
    kills: list[float] = field(default_factory=list[float])
    """When guests that were killed from outside had ended."""
    launcher_kills: list[float] = field(default_factory=list[float])
    """When the launcher had, and with it every guest."""
    lost: int = 0
    """Executions that ended because of these."""
    measured: list[Gauges] = field(default_factory=list[Gauges])
    wrong: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


async def soak(
    *,
    executions: int,
    seed: int,
    concurrency: int,
    round_size: int,
    temporary: Path,
    isolation: Literal["process", "fork"],
) -> Report:
    """Runs `executions` in rounds; between rounds nothing runs and the host is measured.

    `temporary` is where this process keeps its temporary files.
    """
    started = time.monotonic()
    chance = random.Random(seed)  # noqa: S311 - a mix that can be repeated
    report = Report()
    before = measure(0, temporary)
    sandbox = DenoSandbox(isolation=isolation)
    try:
        async with Corral(TOOLS, sandbox=sandbox, limits=LIMITS, check=False) as corral:
            done = 0
            for number in range(_WARM_UP_ROUNDS + -(-executions // round_size)):
                batch = min(round_size, executions + _WARM_UP_ROUNDS * round_size - done)
                await _Round(corral, report, chance, concurrency).run(batch)
                done += batch
                if number >= _WARM_UP_ROUNDS - 1:
                    await _find_the_dead(corral, sandbox)
                    await sandbox.settled()
                    report.measured.append(await _calm(done, temporary, sandbox, report.measured))
    finally:
        await sandbox.aclose()
    after = measure(done, temporary)
    report.wrong += deviations(report.measured)
    report.wrong += [
        f"{name} after the end: {getattr(after, name)}, before the start: {getattr(before, name)}"
        for name in ("processes", "descriptors", "files", "tasks")
        if getattr(after, name) > getattr(before, name)
    ]
    # A server takes along what it has forked, the launcher what runs and what begins just then.
    each = 1 if isolation == "process" else concurrency
    bound = each * len(report.kills) + 2 * concurrency * len(report.launcher_kills)
    if report.lost > bound:
        report.wrong.append(f"{report.lost} executions were lost to kills that explain {bound}")
    report.seconds = time.monotonic() - started
    return report


async def _find_the_dead(corral: Corral, sandbox: DenoSandbox) -> None:
    """Asks for every guest in waiting, and for that of every user, so that those which were killed are replaced."""
    for user in USERS:
        await corral.execute("return 1", context=ExecutionContext(user_id=user))
    pool = (sandbox._forks or sandbox)._pool
    for order in list(pool._ready):
        for guest in [await pool.take(order) for _ in range(pool.size)]:
            pool.put(order, guest)


async def _calm(done: int, temporary: Path, sandbox: DenoSandbox, earlier: list[Gauges]) -> Gauges:
    """A measurement when what was ended is gone, and what begins is there, or when it still is not after a while."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        complete = _have_forked_ahead(sandbox)
        gauges = measure(done, temporary)
        flat = not deviations([*earlier[:1], gauges]) if earlier else gauges.zombies == 0
        if (complete and flat) or time.monotonic() > deadline:
            return gauges
        await anyio.sleep(0.05)


def _have_forked_ahead(sandbox: DenoSandbox) -> bool:
    """True if each server has a process for its next execution."""
    boxes = [] if sandbox._forks is None else [*sandbox._forks._servers._boxes.values()]
    spares = [cast("ForkServer", box)._spare for each in boxes for box in each if not box.retired]
    return all(spare is not None and not spare.ended and spare.alive for spare in spares)


def _code(result: ExecutionResult) -> str | None:
    return result.error and result.error.code


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
                tasks.start_soon(self._kill, planned.kill_after, guests, self._report.kills)
            if planned.launcher_kill_after is not None:
                tasks.start_soon(self._kill, planned.launcher_kill_after, launchers, self._report.launcher_kills)
            with anyio.move_on_after(planned.cancel_after):
                try:
                    context = ExecutionContext(user_id=planned.user)
                    ended = await self._corral.execute(planned.source, context=context, limits=planned.kind.limits)
                except StartFailed as error:
                    ended = error
        self._judge(planned, began, ended)

    def _judge(self, planned: Planned, began: float, ended: ExecutionResult | StartFailed | None) -> None:
        if ended is None:
            end, legal = "cancelled", planned.cancel_after is not None
        elif not isinstance(ended, StartFailed) and planned.kind.legal(ended):
            end, legal = ended.status, True
        elif isinstance(ended, StartFailed) or (ended.error is not None and ended.error.code in _OF_PROCESS):
            kills = [*self._report.kills, *self._report.launcher_kills]
            if any(kill >= began - _LATE_SECONDS for kill in kills):
                end, legal = "lost", isinstance(ended, StartFailed) or _code(ended) == "sandbox_lost"
                self._report.lost += 1
            else:
                end, legal = "lost without a kill", False
        else:
            end, legal = ended.status, False
        self._report.ends[f"{planned.kind.name}: {end}"] += 1
        if not legal:
            said = repr(ended.error or ended.value)[:300] if isinstance(ended, ExecutionResult) else repr(ended)
            self._report.wrong.append(f"{planned.kind.name}: {end}, {said}")

    async def _kill(self, seconds: float, candidates: Callable[[], list[int]], kills: list[float]) -> None:
        """Kills some process below this one, as the kernel does when memory is short."""
        await anyio.sleep(seconds)
        if found := sorted(candidates()):
            with suppress(ProcessLookupError):  # it ended meanwhile
                victim = os.pidfd_open(self._chance.choice(found))
                try:
                    signal.pidfd_send_signal(victim, signal.SIGKILL)
                    place = len(kills)
                    kills.append(time.monotonic())
                    await anyio.wait_readable(victim)
                    kills[place] = time.monotonic()
                finally:
                    os.close(victim)

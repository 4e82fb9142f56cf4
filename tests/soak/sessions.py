"""Sessions that are opened, used, killed at and closed, and what is left of them."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from corral import Corral, ExecutionContext
from corral.errors import ConfigError, FileError, StartFailed
from corral.sessions import Mount, Scratch
from tests.soak.gauges import Gauges, descendants, deviations, guests, launchers, measure, zombies

__all__ = ["SessionReport", "soak_sessions"]

_PYTHON = """
import os
for number in range(20):
    with open(f"{os.getpid()}-{number}", "w") as file:
        file.write("x" * 1000)
"""
_TYPESCRIPT = """
import fs from "fs";
for (let number = 0; number < 20; number++) fs.writeFileSync(`${Math.random()}`, "x".repeat(1000));
"""
_SETTLE_SECONDS = 60.0
_FILES = [Mount("/workspace", Scratch(bytes=1_000_000, files=100))]


@dataclass(slots=True)
class SessionReport:
    """What happened, and what should not have."""

    ends: Counter[str] = field(default_factory=Counter[str])
    kills: int = 0
    measured: list[Gauges] = field(default_factory=list[Gauges])
    wrong: list[str] = field(default_factory=list[str])


async def soak_sessions(*, sessions: int, seed: int, concurrency: int, temporary: Path) -> SessionReport:
    """Opens so many sessions, some at a time, and kills guests, servers and launchers at random meanwhile."""
    report = SessionReport()
    random_ = random.Random(seed)  # noqa: S311
    async with Corral(check=False) as corral:
        await _one(corral, random.Random(0), report, kills=False)  # noqa: S311
        report.measured.append(await _settled(temporary, 0, None))
        turn = anyio.Semaphore(concurrency)

        async def bounded() -> None:
            async with turn:
                await _one(corral, random_, report, kills=True)

        round_size = max(10, sessions // 6)
        for done in range(0, sessions, round_size):
            async with anyio.create_task_group() as tasks:
                for _ in range(min(round_size, sessions - done)):
                    tasks.start_soon(bounded)
            report.measured.append(await _settled(temporary, done + round_size, report.measured[0]))
    # A launcher that was killed is reaped by whoever needs it next, which may be nobody any more.
    report.wrong += [each for each in deviations(report.measured) if "zombies" not in each]
    report.wrong += [f"{count} zombies besides launchers" for count in [len(zombies())] if count]
    if left := _within_sessions():
        report.wrong.append(f"processes {sorted(left)} see a session's directory")
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {temporary}/" in line]
    report.wrong += [f"a mount is left: {line}" for line in mounts]
    return report


async def _one(corral: Corral, random_: random.Random, report: SessionReport, *, kills: bool) -> None:
    """One session: some programs at once, a kill perhaps, files of the host, and its end, in order or not."""
    context = ExecutionContext(user_id=f"user {random_.randrange(3)}")
    with anyio.CancelScope() as scope:
        try:
            async with corral.session(context=context, files=_FILES) as session:
                async with anyio.create_task_group() as tasks:
                    for _ in range(random_.randrange(1, 4)):
                        language = random_.choice(["typescript", "python"])

                        async def run(language: str = language) -> None:
                            source = _PYTHON if language == "python" else _TYPESCRIPT
                            result = await session.execute(source, language=language)
                            report.ends[result.error.code if result.error else "succeeded"] += 1

                        tasks.start_soon(run)
                    if kills and random_.random() < 0.4:
                        await anyio.sleep(random_.random() * 0.3)
                        report.kills += _kill(random_)
                    if kills and random_.random() < 0.2:
                        await anyio.sleep(random_.random() * 0.2)
                        scope.cancel()
                await session.files.write_text("host.txt", "x")
                if await session.files.read_text("host.txt") != "x":
                    report.wrong.append("a file of the host's was lost")
        except* (StartFailed, ConfigError, FileError) as failures:
            report.ends[type(failures.exceptions[0]).__name__] += 1
    report.ends["session cancelled" if scope.cancelled_caught else "session closed"] += 1


def _kill(random_: random.Random) -> int:
    """Kills a guest, a server, or seldom a launcher."""
    chosen = launchers() if random_.random() < 0.1 else [*guests(), *_servers()]
    if not chosen:
        return 0
    with suppress(ProcessLookupError):
        os.kill(random_.choice(chosen), signal.SIGKILL)
    return 1


def _servers() -> list[int]:
    """Processes below this one that are no launchers."""
    return list(descendants().keys() - set(launchers()))


async def _settled(temporary: Path, sessions: int, first: Gauges | None) -> Gauges:
    """A measurement once nothing is left, or the last one before the deadline."""
    found = measure(sessions, temporary)
    with anyio.move_on_after(_SETTLE_SECONDS):
        while _busy(found, first):
            await anyio.sleep(0.1)
            found = measure(sessions, temporary)
    return found


def _busy(found: Gauges, first: Gauges | None) -> bool:
    if zombies():
        return True
    return first is not None and (found.processes > first.processes or found.descriptors > first.descriptors)


def _within_sessions() -> list[int]:
    """Processes that see the directory of a session."""
    left: list[int] = []
    for pid in descendants():
        with suppress(OSError):
            if f" {_FILES[0].path} " in Path(f"/proc/{pid}/mountinfo").read_text():
                left.append(pid)
    return left

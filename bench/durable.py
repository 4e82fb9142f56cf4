"""`python -m bench.durable`: what durable executions cost, next to plain ones of the same run."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from bench.options import names, positive
from corral import Corral, ExecutionResult, tool
from corral.ledger import SqliteLedger
from corral.types import Language

_CALLS = 200
_SOURCES: dict[tuple[Language, str], str] = {
    ("typescript", "in turn"): "let s = 0; for (let n = 0; n < COUNT; n++) s += await tools.NAME({ n }); return s",
    ("typescript", "at once"): "await Promise.all(Array.from({ length: COUNT }, (_, n) => tools.NAME({ n })))",
    ("python", "in turn"): "for n in range(COUNT): await tools.NAME(n=n)",
    ("python", "at once"): "import asyncio\nawait asyncio.gather(*(tools.NAME(n=n) for n in range(COUNT)))",
}
_CHANGES = "for (let n = 0; n < 10; n++) await tools.change({ n })"
_PAUSED = 1_000
_PARTS = ("calls", "loop", "paused")

Run = Callable[[], Awaitable[ExecutionResult]]


@tool(read_only=True)
async def read(n: int) -> int:
    return n


@tool
async def change(n: int) -> int:
    await asyncio.sleep(0)
    return n


@tool(needs_approval=True)
async def ask(n: int) -> int:
    return n


async def _cost(run: Run) -> tuple[float, float]:
    """Seconds of processor time in this process, and by the clock."""
    gc.collect()
    wall, held = time.perf_counter(), time.process_time()
    result = await run()
    assert result.status in ("succeeded", "paused"), result.error
    return time.process_time() - held, time.perf_counter() - wall


async def _calls(corral: Corral, rounds: int) -> None:
    """Calls: processor time of the host for each, without that of an empty program."""
    for language in ("typescript", "python"):

        async def cost(source: str, *, durable: bool, language: Language = language) -> tuple[float, float]:
            return await _cost(lambda: corral.execute(source, language=language, durable=durable))

        for durable in (False, True) * 5:
            await cost("0", durable=durable)
        await asyncio.sleep(2)  # servers fork ahead
        for kind in ("in turn", "at once"):
            for name in ("read", "change"):
                source = _SOURCES[language, kind].replace("COUNT", str(_CALLS)).replace("NAME", name)
                samples: list[tuple[float, ...]] = []
                for _ in range(rounds):
                    costs = [await cost(each, durable=durable) for durable in (False, True) for each in ("0", source)]
                    (p0, pw0), (p1, pw1), (d0, dw0), (d1, dw1) = costs
                    samples.append((p1 - p0, d1 - d0, pw1 - pw0, dw1 - dw0))
                plain, durably, plain_wall, wall = (
                    statistics.median(each) / _CALLS * 1e6 for each in zip(*samples, strict=True)
                )
                ratio = statistics.median(each[1] / each[0] for each in samples)
                shown = f"{plain:.0f} -> {durably:.0f} us, {ratio:.2f} times"
                print(f"{language}, {name} {kind}: {shown}; by the clock {plain_wall:.0f} -> {wall:.0f} us")
        source = _SOURCES[language, "in turn"].replace("COUNT", str(_CALLS)).replace("NAME", "read")
        recorded = await corral.execute(source, language=language, durable=True)
        ratios: list[float] = []
        for _ in range(rounds):
            plain, _ = await cost(source, durable=False)
            replay, _ = await _cost(lambda name=recorded.execution_id: corral.executions.replay(name))
            ratios.append(replay / plain)
        print(f"{language}, replay of {_CALLS} calls: {statistics.median(ratios):.2f} times the plain execution")


async def _loop(corral: Corral, rounds: int) -> None:
    """64 executions of 10 changes at once: how late the event loop is."""

    async def watch(late: list[float]) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - began - 0.001) * 1000)

    for number in range(rounds + 1):
        for durable in (False, True):
            late: list[float] = []
            watching = asyncio.create_task(watch(late))
            held = time.process_time()
            results = await asyncio.gather(*(corral.execute(_CHANGES, durable=durable) for _ in range(64)))
            held = time.process_time() - held
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            assert all(each.success for each in results)
            late.sort()
            quantiles = ", ".join(f"{late[int(len(late) * q)]:.1f}" for q in (0.5, 0.95, 0.99))
            if number:
                kind = "durable" if durable else "plain"
                print(f"64 x 10 changes, {kind}: late by {quantiles}, {late[-1]:.1f} ms; {held * 1000:.0f} ms of CPU")


async def _paused(corral: Corral, _: int) -> None:
    """Executions that wait for a person: memory of this process, processes, threads, and their list."""

    async def pause(count: int) -> None:
        for _ in range(count // 10):
            ended = await asyncio.gather(
                *(corral.execute("return await tools.ask({ n: 1 })", durable=True) for _ in range(10))
            )
            assert all(each.status == "paused" for each in ended)

    await pause(200)  # what is made once
    before, objects = _kilobytes(), len(gc.get_objects())
    await pause(_PAUSED - 200)
    grown = _kilobytes() - before, len(gc.get_objects()) - objects
    print(f"{_PAUSED} paused: {grown[0]} KB and {grown[1]} objects more than with 200")
    times: list[float] = []
    for _ in range(6):
        held = time.process_time()
        waiting = await corral.executions.waiting()
        times.append((time.process_time() - held) * 1000)
        assert len(waiting) == _PAUSED
    print(f"waiting(): {times[0]:.1f} ms of CPU at first, then {statistics.median(times[1:]):.1f} ms")


def _kilobytes() -> int:
    """Private memory of this process, without what the C library only keeps for later."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


async def main(parts: tuple[str, ...], rounds: int) -> None:
    for name, part in (("calls", _calls), ("loop", _loop), ("paused", _paused)):
        if name in parts:
            with tempfile.TemporaryDirectory() as folder:
                ledger = SqliteLedger(Path(folder) / "runs.db", keys={"one": os.urandom(32)})
                async with Corral([read, change, ask], ledger=ledger, check=False) as corral:
                    await part(corral, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.durable", description=__doc__)
    parser.add_argument("--only", metavar="calls,loop", type=names(_PARTS), default=_PARTS)
    parser.add_argument("--rounds", type=positive, default=9)
    options = parser.parse_args()
    asyncio.run(main(options.only, options.rounds))

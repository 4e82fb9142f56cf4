"""`python -m bench.sizing`: executions that all wait for a slow tool, and what calls of others take beside them.

Each count is measured in a process of its own: from cold, where the burst is the first thing that its Corral does, and
warm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.host import describe_host
from bench.memory import tree_memory
from corral import Corral, ExecutionContext, Limits, tool
from corral.types import Language

__all__ = ["burst"]

_LIMITS = Limits(wall_seconds=600, cpu_seconds=60)
_CALLS = 50
_SOURCES: dict[Language, tuple[str, str]] = {
    "typescript": ("await tools.wait(); return 1", "for (let n = 0; n < 50; n++) await tools.touch(); return 1"),
    "python": ("await tools.wait()\n1", "for n in range(50): await tools.touch()\n1"),
}


async def burst(language: Language, count: int, *, cold: bool, descriptors: int) -> dict[str, Any]:
    """Has `count` executions wait at the same time, with so many descriptors for this process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    go_on, arrived = asyncio.Event(), asyncio.Semaphore(0)

    @tool
    async def wait() -> None:
        """Waits for all others."""
        arrived.release()
        await go_on.wait()

    @tool
    async def touch() -> None:
        """Returns at once."""

    waiting, calling = _SOURCES[language]
    ann, bob = ExecutionContext(user_id="ann"), ExecutionContext(user_id="bob")
    async with Corral([wait, touch], check=False, limits=_LIMITS) as corral:

        async def calls() -> float:
            """Milliseconds of a program of 50 calls, its start and end included; the median of five."""
            times: list[float] = []
            for _ in range(5):
                started = time.perf_counter()
                result = await corral.execute(calling, language=language, context=bob)
                assert result.status == "succeeded", result.error
                times.append(1000 * (time.perf_counter() - started))
            return statistics.median(times)

        alone = 0.0
        if not cold:
            for _ in range(6):
                await corral.execute(calling, language=language, context=ann)
            await calls()
            alone = await calls()
        before = sum(each.pss for each in _memory())
        files = _files()
        started = time.perf_counter()
        running = [asyncio.ensure_future(corral.execute(waiting, language=language, context=ann)) for _ in range(count)]
        for each in running:
            each.add_done_callback(lambda _: arrived.release())
        for _ in range(count):
            await arrived.acquire()
        waits = time.perf_counter() - started
        found: dict[str, Any] = {
            "mb_each": round((sum(each.pss for each in _memory()) - before) / count, 2),
            "processes": _memory()[1].processes,
            "descriptors_each": round((_files() - files) / count, 2),
            "wait_s": round(waits, 1),
        }
        if cold:
            await calls()
        beside = await calls()
        started = time.perf_counter()
        go_on.set()
        ends = await asyncio.gather(*running, return_exceptions=True)
        found["end_s"] = round(time.perf_counter() - started, 2)
        found["ends"] = Counter(str(each) if isinstance(each, BaseException) else each.status for each in ends)
        if cold:
            alone = await calls()
        found["calls_ms"] = [round(alone, 1), round(beside, 1)]
        return found


def _memory() -> Any:
    return tree_memory(_pid())


def _pid() -> int:
    return int(Path("/proc/self").readlink().name)


def _files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def main() -> None:
    """Measures each count in a process of its own, or in this one."""
    parser = argparse.ArgumentParser(prog="python -m bench.sizing", description=__doc__)
    parser.add_argument("--language", choices=[*_SOURCES], default="typescript")
    parser.add_argument("--counts", type=int, nargs="+", default=[64, 300, 1000])
    parser.add_argument("--descriptors", type=int, default=4096, help="the limit of this process (default: 4096)")
    parser.add_argument("--here", choices=["cold", "warm"], help="measure the first count in this process")
    options = parser.parse_args()
    if options.here is not None:
        cold = options.here == "cold"
        found = burst(options.language, options.counts[0], cold=cold, descriptors=options.descriptors)
        print(json.dumps(asyncio.run(found)))
        return
    print(describe_host(uvloop=False))
    print("at the same time | from | calls of another program, ms: alone, beside | all else")
    for count in options.counts:
        for way in ("warm", "cold"):
            again = [sys.executable, "-m", "bench.sizing", "--here", way, "--counts", str(count)]
            again += ["--language", options.language, "--descriptors", str(options.descriptors)]
            found = json.loads(subprocess.run(again, stdout=subprocess.PIPE, check=True).stdout)
            print(count, way, found.pop("calls_ms"), found, sep=" | ", flush=True)


if __name__ == "__main__":
    main()

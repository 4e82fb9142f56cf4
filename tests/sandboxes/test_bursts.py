"""Executions that come at once, before anything is warm."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

BURST = """
import asyncio, os, resource, sys
from collections import Counter
from pathlib import Path
from corral import Corral, tool
from corral.errors import StartFailed

count, descriptors = map(int, sys.argv[1:])
go_on, arrived = asyncio.Event(), asyncio.Semaphore(0)

@tool
async def wait() -> None:
    arrived.release()
    await go_on.wait()

def engines():
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append((int(stat.parent.name), command))
    found, left = [], [os.getpid()]
    while left:
        for pid, command in children.get(left.pop(), ()):
            left.append(pid)
            found.append(command)
    return sum(b"main.js" in command and b"bwrap" not in command.split(b"\\0")[0] for command in found)

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    async with Corral([wait], check=False, sandbox="deno") as corral:
        running = [asyncio.ensure_future(corral.execute("await tools.wait()")) for _ in range(count)]
        for task in running:
            task.add_done_callback(lambda task: arrived.release())
        for _ in range(count):
            await arrived.acquire()
        seen = engines()
        go_on.set()
        ends = await asyncio.gather(*running, return_exceptions=True)
    kinds = Counter(str(end) if isinstance(end, StartFailed) else end.status for end in ends)
    print(seen, *kinds.items(), sep="\\n")

asyncio.run(main())
"""


def burst(count: int, descriptors: int) -> tuple[int, Counter[str]]:
    """The engines that a burst took, and how its executions ended."""
    done = subprocess.run(
        [sys.executable, "-c", BURST, str(count), str(descriptors)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    engines, *ends = done.stdout.splitlines()
    return int(engines), Counter(dict(map(eval, ends)))


@pytest.mark.skipif(sys.platform != "linux", reason="engines fork on Linux")
@pytest.mark.matrix("tests/e2e/test_forks has many at once from a server that is there; from none")
def test_a_burst_from_cold_is_forked_but_for_a_few() -> None:
    engines, ends = burst(40, 1_024)
    assert ends == {"succeeded": 40}
    assert engines <= 10


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted by Linux")
def test_what_a_burst_has_no_descriptors_for_is_refused_with_the_remedy() -> None:
    _, ends = burst(30, 80)
    refused = [end for end in ends if end != "succeeded"]
    assert refused
    assert ends["succeeded"] > 5
    assert all("this process can have 80" in each and "ulimit -n" in each for each in refused)

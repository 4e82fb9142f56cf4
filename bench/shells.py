"""`python -m bench.shells`: a command in each local shell beside bare bash, and the end of a tree that resists."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from tempfile import TemporaryDirectory

from bench.options import positive
from corral.shells import JailedShell, LocalShell, MemoryShell, Shell, ShellLimits

_RESISTS = """
trap '' TERM INT HUP
setsid bash -c "trap '' TERM INT HUP; sleep 100 & setsid sleep 100 & echo up; wait" &
sleep 100 & sleep 100 & wait
"""
"""A tree of seven processes in three sessions; bash and what it starts ignore signals that can be ignored."""


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", "echo hello", stdout=asyncio.subprocess.PIPE)
    await process.communicate()


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def _end(shell: Shell) -> float:
    """Milliseconds from `kill` of a tree that resists until all of it is gone."""
    async with await shell.spawn(_RESISTS) as process:
        async for _ in process.stdout:
            break
        return await _timed(process.kill)


async def _opened() -> None:
    async with MemoryShell() as shell:
        await shell.run("echo hello")


async def _measure(rounds: int) -> None:
    async with AsyncExitStack() as stack, MemoryShell() as memory:
        shells: dict[str, Shell] = {
            "LocalShell": LocalShell(stack.enter_context(TemporaryDirectory())),
            "JailedShell, namespaces": await stack.enter_async_context(
                JailedShell(limits=ShellLimits(tier="namespaces"))
            ),
            "JailedShell, landlock": await stack.enter_async_context(
                JailedShell(limits=ShellLimits(tier="landlock", accept_unenforced=("disk", "locks", "processes")))
            ),
        }
        bare: list[float] = []
        in_memory: list[float] = []
        opened: list[float] = []
        commands: dict[str, list[float]] = {name: [] for name in shells}
        ends: dict[str, list[float]] = {name: [] for name in shells}
        for _ in range(rounds):
            bare.append(await _timed(_bare))
            in_memory.append(await _timed(lambda: memory.run("echo hello")))
            opened.append(await _timed(_opened))
            for name, shell in shells.items():
                commands[name].append(await _timed(lambda shell=shell: shell.run("echo hello")))
                ends[name].append(await _end(shell))
    print(f"bare bash: a command {statistics.median(bare):.1f} ms")
    print(
        f"MemoryShell: a command {statistics.median(in_memory):.1f} ms; "
        f"opened for one, and closed {statistics.median(opened):.1f} ms"
    )
    for name in shells:
        print(
            f"{name}: a command {statistics.median(commands[name]):.1f} ms; "
            f"the end of a tree {statistics.median(ends[name]):.1f} ms, worst {max(ends[name]):.1f} ms"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.shells", description="Medians, in turns.")
    parser.add_argument("--rounds", type=positive, default=50, metavar="N", help="how many rounds (default: 50)")
    asyncio.run(_measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()

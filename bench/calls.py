"""What a tool call costs: `python -m bench.calls [--uvloop] [--json]`.

The floor is a bare echo: a Deno process that answers every message, and a task per message on this side, over the same
kind of pipes. Everything is a median over rounds that alternate between floor and corral, so that both see the same
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import anyio
import deno

from corral import Corral, Limits, tool

ROUNDS = 7
CALLS = 1500

SEQUENTIAL = f"""
for (let i = 0; i < 200; i++) await tools.add({{a: i, b: 1}});
const started = performance.now();
for (let i = 0; i < {CALLS}; i++) await tools.add({{a: i, b: 1}});
return (performance.now() - started) / {CALLS} * 1000;
"""
AFTER_A_TIMER = "await new Promise(resolve => setTimeout(resolve, 1));" + SEQUENTIAL
CONCURRENT = """
const all = () => Promise.all(Array.from({length: 100}, (_, i) => tools.add({a: i, b: 1})));
for (let i = 0; i < 5; i++) await all();
const started = performance.now();
for (let i = 0; i < 20; i++) await all();
return (performance.now() - started) / 20 * 1000;
"""


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def floor() -> float:
    """Microseconds for one echo."""
    script = Path(__file__).with_name("echo.js")
    command = [deno.find_deno_bin(), "run", "--quiet", "--no-config", "--no-lock", str(script)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    source, target = process.stdout.fileno(), process.stdin.fileno()
    loop = asyncio.get_running_loop()
    times: list[float] = []
    done = loop.create_future()
    tasks: set[asyncio.Task[None]] = set()

    async def answer() -> None:
        os.write(target, b'[1,true,{"value":3}]')

    def readable() -> None:
        assert os.read(source, 65536), "the echo ended"
        times.append(time.perf_counter())
        if len(times) > CALLS:
            loop.remove_reader(source)
            done.set_result(None)
            return
        task = loop.create_task(answer())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_reader(source, readable)
    await done
    process.stdin.close()
    process.wait()
    process.stdout.close()
    return (times[-1] - times[200]) / (len(times) - 201) * 1e6


async def measure() -> dict[str, float]:
    measured: dict[str, list[float]] = {}
    async with Corral([add], limits=Limits(calls=1_000_000)) as corral:

        async def run(program: str) -> float:
            return float((await corral.execute(program)).raise_for_error().value)

        for _ in range(ROUNDS):
            measured.setdefault("floor: echo with a task per call", []).append(await floor())
            measured.setdefault("sequential call", []).append(await run(SEQUENTIAL))
            measured.setdefault("sequential call after a timer", []).append(await run(AFTER_A_TIMER))
            measured.setdefault("100 concurrent calls", []).append(await run(CONCURRENT))
            started = time.perf_counter()
            await run("return 1")
            measured.setdefault("cold start to result", []).append((time.perf_counter() - started) * 1e6)
    return {name: statistics.median(values) for name, values in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    medians = anyio.run(measure, backend_options={"use_uvloop": options.uvloop})
    if options.json:
        print(json.dumps(medians))
        return
    base = medians["floor: echo with a task per call"]
    print(f"{'median of ' + str(ROUNDS):36} {'µs':>10} {'x floor':>8}")
    for name, value in medians.items():
        print(f"{name:36} {value:10.1f} {value / base:8.2f}")


if __name__ == "__main__":
    main()

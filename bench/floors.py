"""What cannot be faster: the floors of the same run. `python -m bench.floors LANGUAGE`, started by `python -m bench`.

`process` is a process that ends at once. `start` is the engine, from its start until it writes its first message.
`echo` is a call without all that makes it safe: the engine, writing a message and reading the answer to it without an
event loop of its own, and a task for each message at the host, over plain pipes. For Python, `fib` is W5's function in
this interpreter.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import deno

from bench.driver import Outcome, run_with_loop

if TYPE_CHECKING:
    from bench.workloads import Language, Plan

__all__ = ["echo", "fib_time", "process_start"]

_REPEATS = 5
_MESSAGES = 1500
_REPLY = b'[1,true,{"value":3}]'


def process_start() -> float:
    """Milliseconds for a process that does nothing."""
    command = [which("true") or "true"]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return (time.perf_counter() - started) * 1e3


def fib_time() -> float:
    """Milliseconds for fib(27)."""
    started = time.perf_counter()
    _fib(27)
    return (time.perf_counter() - started) * 1e3


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


def _engine(language: Language) -> list[str]:
    """The command of an engine that echoes."""
    here = Path(__file__).parent
    if language == "python":
        return [sys.executable, "-I", "-S", str(here / "echo.py")]
    return [deno.find_deno_bin(), "run", "--quiet", "--no-config", "--no-lock", str(here / "echo.js")]


async def echo(command: list[str], skipped: int) -> tuple[float, float]:
    """Milliseconds until the engine's first message, and microseconds for one message and its answer."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    source, target = process.stdout.fileno(), process.stdin.fileno()
    loop = asyncio.get_running_loop()
    times: list[float] = []
    done = loop.create_future()
    tasks: set[asyncio.Task[None]] = set()

    async def answer() -> None:
        os.write(target, _REPLY)

    def readable() -> None:
        assert os.read(source, 65536), "the echo ended"
        times.append(time.perf_counter())
        if len(times) > _MESSAGES:
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
    counted = times[skipped:]
    return (times[0] - started) * 1e3, (counted[-1] - counted[0]) / (len(counted) - 1) * 1e6


async def _main(language: Language) -> None:
    plan: Plan = json.loads(sys.stdin.readline())
    process_start()
    echoes = [await echo(_engine(language), plan["skipped"]) for _ in range(_REPEATS)]
    samples = {
        "process": [process_start() for _ in range(_REPEATS)],
        "start": [start for start, _ in echoes],
        "echo": [each for _, each in echoes],
    }
    if language == "python":
        samples["fib"] = [fib_time() for _ in range(_REPEATS)]
    outcome: Outcome = {"samples": samples, "errors": {}, "versions": {"deno": version("deno")}}
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    run_with_loop(_main("python" if sys.argv[1] == "python" else "javascript"))

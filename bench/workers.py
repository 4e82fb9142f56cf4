"""`python -m bench.workers`: programs on a worker of this machine beside local ones, with a secret and with TLS; then
what waiting executions take of the host, and how soon the loss of a worker is known."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cluster.processes import SECRET, WorkerProcess, make_certificates

from bench.options import positive
from bench.stalls import memory_mb
from corral import Corral, ExecutionContext, ExecutionResult, Limits, tool
from corral.cluster import WorkerSandbox
from corral.types import Language

__all__ = ["Crowd", "raise_descriptors"]

_ANN = ExecutionContext(user_id="ann")
_PROGRAMS: dict[str, dict[Language, str]] = {
    "return 1": {"typescript": "return 1", "python": "1"},
    "100 in turn": {
        "typescript": "for (let n = 0; n < 100; n++) await tools.get({ n })",
        "python": "for n in range(100):\n    await tools.get(n=n)",
    },
    "100 at once": {
        "typescript": "await Promise.all(Array.from({ length: 100 }, (_, n) => tools.get({ n })))",
        "python": "import asyncio\nawait asyncio.gather(*(tools.get(n=n) for n in range(100)))",
    },
}
_PAUSE_SECONDS = 0.02
"""Pause between two executions, in which the next process is forked."""


@tool(read_only=True)
async def get(n: int) -> int:
    """Returns its input."""
    return n


async def _measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options, tls = make_certificates(Path(folder))
        plain, secured = WorkerProcess(), WorkerProcess(*options)
        over = WorkerSandbox([plain.address], secret=SECRET, containment="landlock")
        over_tls = WorkerSandbox(
            [secured.address], secret=SECRET, tls=tls, server_name="worker", containment="landlock"
        )
        limits = Limits(calls=1000)
        try:
            async with (
                Corral([get], limits=limits, check=False) as local,
                Corral([get], sandbox=over, limits=limits, check=False) as worker,
                Corral([get], sandbox=over_tls, limits=limits, check=False) as worker_tls,
            ):
                places = {"local": local, "worker": worker, "worker, TLS": worker_tls}
                for name, sources in _PROGRAMS.items():
                    for language, source in sources.items():
                        await _compare(places, name, language, source, rounds)
        finally:
            plain.end()
            secured.end()


async def _compare(places: dict[str, Corral], name: str, language: Language, source: str, rounds: int) -> None:
    wall: dict[str, list[float]] = {place: [] for place in places}
    host: dict[str, list[float]] = {place: [] for place in places}
    for number in range(rounds + 8):
        for place, corral in places.items():
            began, used = time.perf_counter(), time.process_time()
            (await corral.execute(source, language=language, context=_ANN)).raise_for_error()
            if number >= 8:
                wall[place].append((time.perf_counter() - began) * 1000)
                host[place].append((time.process_time() - used) * 1000)
            await asyncio.sleep(_PAUSE_SECONDS)
    for place in places:
        ratio = min(wall[place]) / min(wall["local"])
        cpu = statistics.median(host[place]) / statistics.median(host["local"])
        shown = f"{language:10}  {name:11}  {place:11}  least {min(wall[place]):7.2f} ms, ratio {ratio:.2f}"
        print(f"{shown}, host's processor time {cpu:.2f}, load {os.getloadavg()[0]:.1f}", flush=True)


class Crowd:
    """Executions that all wait for the tool `hold`."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[ExecutionResult]] = []
        self._arrived = asyncio.Semaphore(0)
        self._go_on = asyncio.Event()

        @tool(read_only=True)
        async def hold() -> None:
            """Waits."""
            self._arrived.release()
            await self._go_on.wait()

        self.hold = hold

    async def grow(self, corral: Corral, count: int, language: Language = "typescript") -> None:
        """Starts so many more, of eight users, and waits until they wait."""
        for number in range(count):
            context = ExecutionContext(user_id=f"user {number % 8}")
            execution = corral.execute("await tools.hold()", language=language, context=context)
            self.tasks.append(asyncio.create_task(execution))
            self.tasks[-1].add_done_callback(lambda _: self._arrived.release())  # if it fails
        for _ in range(count):
            await self._arrived.acquire()
        for each in self.tasks:
            if each.done():
                each.result().raise_for_error()

    async def end(self) -> list[str]:
        """Lets all go on. Returns the code of each one's error, or "" if it has succeeded."""
        self._go_on.set()
        results = [await each for each in self.tasks]
        return ["" if each.error is None else each.error.code for each in results]


def raise_descriptors() -> None:
    """Raises the limit of descriptors of this process, and of those that it starts, as far as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@asynccontextmanager
async def _crowd(worker: WorkerProcess) -> AsyncGenerator[tuple[Corral, Crowd]]:
    crowd = Crowd()
    sandbox = WorkerSandbox([worker.address], secret=SECRET, containment="landlock")
    async with Corral([crowd.hold], sandbox=sandbox, limits=Limits(wall_seconds=600), check=False) as corral:
        yield corral, crowd


async def _wait(count: int) -> None:
    worker = WorkerProcess("--warm", "typescript", capacity=count)
    try:
        async with _crowd(worker) as (corral, crowd):
            for _ in range(8):
                await corral.execute("return 1", context=_ANN)
            gc.collect()
            before = memory_mb()
            await crowd.grow(corral, count)
            gc.collect()
            kb = (memory_mb() - before) * 1000 / count
            began, used = time.perf_counter(), time.process_time()
            await asyncio.sleep(5)
            share = 100 * (time.process_time() - used) / (time.perf_counter() - began)
            failed = len([each for each in await crowd.end() if each])
        print(f"{count} wait    {kb:.0f} kB of the host each, {share:.2f} % of one core together, {failed} failed")
    finally:
        worker.end()


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        self.count += 1


async def _lose(how: signal.Signals, rounds: int) -> None:
    times: list[float] = []
    lines = _Lines()
    logger = logging.getLogger("corral")
    logger.addHandler(lines)
    try:
        for _ in range(rounds):
            worker = WorkerProcess("--warm", "python")
            try:
                async with _crowd(worker) as (corral, crowd):
                    await crowd.grow(corral, 16, "python")
                    began = time.perf_counter()
                    worker.signal(how)
                    await asyncio.wait(crowd.tasks)
                    times.append((time.perf_counter() - began) * 1000)
                    assert set(await crowd.end()) == {"sandbox_lost"}
            finally:
                worker.end()
    finally:
        logger.removeHandler(lines)
    of = f"least {min(times):.0f} ms, most {max(times):.0f} ms until 16 executions end as sandbox_lost"
    print(f"{how.name}  {of}, {lines.count / rounds:g} lines in the log, load {os.getloadavg()[0]:.1f}", flush=True)


async def _stand_still(seconds: int) -> None:
    """Stops this process for a while."""
    worker = WorkerProcess("--warm", "python")
    try:
        async with _crowd(worker) as (corral, crowd):
            await crowd.grow(corral, 16, "python")
            waker = subprocess.Popen(["/bin/sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            waker.wait()
            await asyncio.sleep(2)
            lost = len([each for each in await crowd.end() if each])
        print(f"the host stopped for {seconds} s: {lost} of 16 executions lost", flush=True)
    finally:
        worker.end()


async def _measure_waiting_and_losses(rounds: int) -> None:
    raise_descriptors()
    await _wait(1000)
    await _lose(signal.SIGKILL, rounds)
    await _lose(signal.SIGSTOP, rounds)
    await _stand_still(5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=30, metavar="N", help="of programs; default: 30")
    parser.add_argument("--only", choices=("programs", "losses"), help="default: both")
    options = parser.parse_args()
    if options.only != "losses":
        asyncio.run(_measure(options.rounds))
    if options.only != "programs":
        asyncio.run(_measure_waiting_and_losses(5))


if __name__ == "__main__":
    main()

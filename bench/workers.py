"""`python -m bench.workers`: programs on a worker of this machine beside local ones, with a secret and with TLS."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.cluster.processes import SECRET, WorkerProcess, make_certificates

from bench.options import positive
from corral import Corral, ExecutionContext, Limits, tool
from corral.cluster import WorkerSandbox
from corral.types import Language

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=30, metavar="N", help="default: 30")
    asyncio.run(_measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()

"""`python -m bench.scale`: how the cost of workers grows with live executions and with workers, and a simulation of
1,000 workers whose inputs are these measurements. Takes about two minutes. `--write` keeps what docs/workers.md plots.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import math
import os
import random
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.processes import SECRET, WorkerProcess

from bench.host import describe_host
from bench.stalls import memory_mb
from bench.workers import Crowd, raise_descriptors
from corral import Corral, ExecutionContext, Limits, tool
from corral.cluster import WorkerSandbox
from corral.cluster.fleet import Fleet, Node, Ticket
from corral.cluster.wire import Kind, guest_digest, json_record
from corral.types import Owner, SandboxConfig

_DATA = Path(__file__).parent / "data" / "workers.json"
_LIVE = (64, 250, 1000, 2000)
_WORKERS = (1, 2, 3, 4)
_IDLE_SECONDS = 4.0
_STARTS = 40
_CALLS = 5


@dataclass
class Inputs:
    """Measurements on which the simulation is based. Times are processor milliseconds."""

    start: float = 0.0
    """Of a host for a program without calls."""
    call: float = 0.0
    """Of a host for a call."""
    worker_start: float = 0.0
    """Of a worker's own process, without its guests."""
    worker_call: float = 0.0
    state: float = 0.0
    """Of a host for one STATE record of a worker."""
    kb: float = 0.0
    """Memory of a host for a waiting execution."""
    idle: float = 0.0
    """Processor milliseconds a second of a host for a waiting execution."""


def _corral(workers: list[WorkerProcess], *tools: Callable[..., object]) -> Corral:
    sandbox = WorkerSandbox([each.address for each in workers], secret=SECRET, containment="landlock")
    limits = Limits(wall_seconds=600, calls=1000)
    return Corral([*tools], sandbox=sandbox, limits=limits, check=False)


async def _grow(inputs: Inputs) -> tuple[dict[str, float], dict[str, float]]:
    """Measures memory and processor time of a host whose executions wait."""
    workers = [WorkerProcess("--warm", "typescript", capacity=max(_LIVE)) for _ in range(2)]
    memory: dict[str, float] = {}
    idle: dict[str, float] = {}
    crowd = Crowd()
    try:
        async with _corral(workers, crowd.hold) as corral:
            for _ in range(8):
                await corral.execute("return 1", context=ExecutionContext(user_id="user 0"))
            gc.collect()
            before = memory_mb()
            for count in _LIVE:
                await crowd.grow(corral, count - len(crowd.tasks))
                gc.collect()
                inputs.kb = (memory_mb() - before) * 1000 / count
                began, used = time.perf_counter(), time.process_time()
                await asyncio.sleep(_IDLE_SECONDS)
                share = (time.process_time() - used) / (time.perf_counter() - began)
                inputs.idle = share * 1000 / count
                memory[f"{count:,} wait"], idle[f"{count:,} wait"] = round(inputs.kb, 1), round(100 * share, 2)
            codes = await crowd.end()
            assert set(codes) == {""}, set(codes)
    finally:
        for each in workers:
            each.end()
    return memory, idle


async def _spread(inputs: Inputs) -> dict[str, float]:
    """Measures executions a second over several workers, and what one execution and one call take."""

    @tool(read_only=True)
    async def wait(n: int) -> int:
        """Takes 10 ms."""
        await asyncio.sleep(0.01)
        return n

    @tool(read_only=True)
    async def get(n: int) -> int:
        """Returns its input."""
        return n

    calls = f"for (let n = 0; n < {_CALLS}; n++) await tools.wait({{ n }})"
    rates: dict[str, float] = {}
    workers: list[WorkerProcess] = []
    try:
        for count in (0, *_WORKERS):
            if count:
                workers.append(WorkerProcess("--warm", "typescript"))
            corral = (
                _corral(workers, wait, get) if count else Corral([wait, get], limits=Limits(calls=1000), check=False)
            )
            async with corral:
                for number in range(16):
                    await corral.execute(calls, context=ExecutionContext(user_id=f"user {number % 8}"))
                rates[f"{count or 'no'} worker{'s' * (count != 1)}"] = round(
                    max([await _rate(corral, calls) for _ in "12"]), 1
                )
                if count == 1:
                    await _measure_units(corral, workers[0], inputs)
    finally:
        for each in workers:
            each.end()
    return rates


async def _rate(corral: Corral, source: str) -> float:
    """Runs 64 executions, 16 at a time."""
    numbers = iter(range(64))

    async def run() -> None:
        for number in numbers:
            (await corral.execute(source, context=ExecutionContext(user_id=f"user {number % 8}"))).raise_for_error()

    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(16)))
    return 64 / (time.perf_counter() - began)


async def _measure_units(corral: Corral, worker: WorkerProcess, inputs: Inputs) -> None:
    sources = "return 1", "for (let n = 0; n < 100; n++) await tools.get({ n })"
    host: dict[str, list[float]] = {each: [] for each in sources}
    there: dict[str, float] = {}
    for source in sources:
        used = _cpu_ms(worker.process.pid)
        for _ in range(_STARTS):
            began = time.process_time()
            (await corral.execute(source, context=ExecutionContext(user_id="user 0"))).raise_for_error()
            host[source].append((time.process_time() - began) * 1000)
            await asyncio.sleep(0.01)
        there[source] = (_cpu_ms(worker.process.pid) - used) / _STARTS
    inputs.start, hundred = (statistics.median(host[each]) for each in sources)
    inputs.call = (hundred - inputs.start) / 100
    inputs.worker_start = there[sources[0]]
    inputs.worker_call = max(0.0, there[sources[1]] - there[sources[0]]) / 100
    (fleet, node) = _fleet(1)
    state = {"others": 9, "capacity": 64, "draining": False, "release": "0.1.0"}
    payload = json_record(
        Kind.STATE, {**state, "guests": {"typescript": [guest_digest("typescript"), "namespaces", "deno 2.5.6"]}}
    )[5:]
    began = time.process_time()
    for _ in range(2000):
        node[0].states = 0
        fleet._take_state(node[0], Kind.STATE, payload)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    inputs.state = (time.process_time() - began) / 2


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


# --- simulation


def _fleet(count: int, capacity: int = 128) -> tuple[Fleet, list[Node]]:
    fleet = Fleet((), None, secret=SECRET.encode(), tls=None, server_name=None)
    for number in range(count):
        node = fleet.nodes[f"w{number}:1"] = Node(f"w{number}:1")
        node.capacity = capacity
        node.guests["typescript"] = guest_digest("typescript"), "namespaces", "deno 2.5.6"
    return fleet, [*fleet.nodes.values()]


@dataclass(frozen=True)
class Site:
    """What is simulated."""

    workers: int = 1000
    capacity: int = 128
    hosts: int = 40
    starts: int = 10_000
    """A second."""
    life: float = 10.0
    """Seconds of an execution."""
    users: int = 20_000
    beat: float = 0.25
    servers: int = 8
    """Idle fork servers that a worker keeps."""


@dataclass
class Outcome:
    starts: int = 0
    refused: int = 0
    warm: int = 0
    fullest: int = 0
    place_us: float = 0.0


def simulate(site: Site, seconds: float) -> Outcome:
    """Places executions with the hosts' own code; workers, time and network are simulated."""
    chance = random.Random(1)  # noqa: S311
    fleets = [_fleet(site.workers, site.capacity) for _ in range(site.hosts)]
    for fleet, _ in fleets:
        fleet._sum_until = math.inf  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    live = [0] * site.workers
    running: list[dict[int, int]] = [{} for _ in live]
    idle: list[OrderedDict[int, None]] = [OrderedDict() for _ in live]
    ends: list[tuple[float, int, int, int]] = []
    outcome = Outcome()
    clock, number, warm_up = 0.0, 0, site.life + 2
    places: list[float] = []
    for beat in range(int((warm_up + seconds) / site.beat)):
        for fleet, nodes in fleets:
            for node, total in zip(nodes, live, strict=True):
                node.others = total - node.mine
            fleet._sum = sum(live)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for _ in range(int(site.starts * site.beat)):
            clock = beat * site.beat + site.beat * (number % int(site.starts * site.beat)) / (site.starts * site.beat)
            number += 1
            while ends and ends[0][0] <= clock:
                _, worker, host, user = heapq.heappop(ends)
                fleets[host][0].release(fleets[host][1][worker])
                live[worker] -= 1
                running[worker][user] -= 1
                if not running[worker][user]:
                    del running[worker][user]
                    idle[worker][user] = None
                    if len(idle[worker]) > site.servers:
                        idle[worker].popitem(last=False)
            user, host = chance.randrange(site.users), chance.randrange(site.hosts)
            fleet = fleets[host][0]
            ticket = Ticket(SandboxConfig(language="typescript", owner=Owner(None, f"{user}")), "landlock")
            began = time.perf_counter()
            node = fleet._choice(ticket)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            places.append(time.perf_counter() - began)
            counts = clock >= warm_up
            outcome.starts += counts
            worker = -1 if node is None else int(node.address[1:-2])
            if node is None or live[worker] >= site.capacity:
                outcome.refused += counts
                continue
            fleet._take(node, 1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            live[worker] += 1
            outcome.warm += counts and (user in running[worker] or user in idle[worker])
            idle[worker].pop(user, None)
            running[worker][user] = running[worker].get(user, 0) + 1
            outcome.fullest = max(outcome.fullest, live[worker])
            heapq.heappush(ends, (clock + site.life, worker, host, user))
    outcome.place_us = statistics.median(places) * 1e6
    return outcome


def _conclusions(inputs: Inputs, site: Site, outcome: Outcome) -> dict[str, str]:
    start = inputs.start + _CALLS * inputs.call + outcome.place_us / 1000
    live = site.starts * site.life
    beats = site.workers / site.beat * inputs.state / 1000
    hosts = math.ceil(site.starts * start / 1000 / (0.6 - beats / 1000)) if beats < 600 else 0
    worker = site.starts / site.workers * (inputs.worker_start + _CALLS * inputs.worker_call) / 10
    return {
        "processor time of a host for a start, its end and five calls": f"{start:.2f} ms",
        "host processes that are 60 % busy": f"{hosts}",
        "of each, the states of all workers": f"{beats / 10:.1f} %",
        "memory of all hosts for what waits": f"{inputs.kb * live / 1e6:.1f} GB",
        "processor time of all hosts for what waits": f"{inputs.idle * live / 1000:.2f} cores",
        "of each worker, its own process": f"{worker:.1f} % of a core",
        "placing a program (median)": f"{outcome.place_us:.0f} µs",
        "starts that met a full worker": f"{100 * outcome.refused / outcome.starts:.2f} %",
        "fullest worker": f"{outcome.fullest} of {site.capacity}",
        "starts at a warm server of their user": f"{100 * outcome.warm / outcome.starts:.0f} %",
    }


async def _run(*, keep: bool) -> None:
    raise_descriptors()
    host = describe_host(uvloop=False)
    source = f"{host['cpu']}, {host['cores']} cores, load {host['load']}"
    print(source, flush=True)
    inputs = Inputs()
    memory, idle = await _grow(inputs)
    print(f"kB of the host for each: {memory}\n% of one core together: {idle}", flush=True)
    rates = await _spread(inputs)
    print(f"executions a second: {rates}\ninputs: {inputs}", flush=True)
    if keep:
        titles = {
            "workers-memory": ("kB of the host for each execution that waits, over two workers", memory),
            "workers-idle": ("Percent of one core of the host for all that wait together", idle),
            "workers-rate": ("Executions a second, of five calls of 10 ms, 16 at once", rates),
        }
        plots = {
            name: {"title": title, "source": source, "series": {group: {"": value} for group, value in bars.items()}}
            for name, (title, bars) in titles.items()
        }
        _DATA.write_text(json.dumps(plots, indent=2) + "\n", encoding="utf-8")
        print(f"written: {_DATA}; now python -m bench.plots")
    site = Site()
    rows = _conclusions(inputs, site, simulate(site, 3.0))
    print("\n".join(f"| {name} | {value} |" for name, value in rows.items()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {_DATA.name}")
    asyncio.run(_run(keep=parser.parse_args().write))


if __name__ == "__main__":
    main()

"""What the host must not lose: memory, processes, descriptors, files, threads, tasks. Read from /proc."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

__all__ = ["Gauges", "descendants", "deviations", "guests", "launchers", "measure", "table", "zombies"]

_IN_MAKING = {"descriptors": 8}
"""What one sandbox has that the pool is just starting, or has just given up. A server that forks has eight."""
_MEMORY_GROWTH_MB = 6.0
"""By how much the last quarter of measurements may lie above the first: the allocator's own coming and going."""
_THREADS = 2 + (os.cpu_count() or 1) + 1
"""This one, the pool's, and as many as start guests at the same time; some are there only once they are needed."""
_WORKER = "AnyIO worker thread"
"""Name of threads that anyio keeps for the next work that blocks: as many as were ever needed at the same time."""
_PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True, slots=True)
class Gauges:
    """The host at one moment between executions."""

    executions: int
    memory_mb: float
    processes: int
    """All descendants: guests in waiting and what starts and keeps them."""
    zombies: int
    descriptors: int
    files: int
    """In the directory for temporary files."""
    threads: int
    """All but anyio's workers, whose number is bounded by its limiter."""
    tasks: int


def measure(executions: int, temporary: Path) -> Gauges:
    gc.collect()
    below = descendants()
    return Gauges(
        executions=executions,
        memory_mb=round(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / (1 << 20), 1),
        processes=len(below),
        zombies=sum(state == "Z" for state in below.values()),
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1,
        files=sum(1 for _ in temporary.rglob("*")),
        threads=sum(1 for _ in Path("/proc/self/task").iterdir())
        - sum(thread.name == _WORKER for thread in threading.enumerate()),
        tasks=len(asyncio.all_tasks()),
    )


def descendants() -> dict[int, str]:
    """Every process below this one, with its state (proc_pid_stat(5))."""
    stats = _stats()
    found: dict[int, str] = {}
    above = {os.getpid()}
    while above:
        above = {pid for pid, (_, parent, _) in stats.items() if parent in above} - found.keys()
        found |= {pid: stats[pid][0] for pid in above}
    return found


def guests() -> list[int]:
    """The engines below this process: those without children that run no Python."""
    stats = _stats()
    parents = {parent for _, parent, _ in stats.values()}
    return [
        pid
        for pid, state in descendants().items()
        if state != "Z" and pid in stats and pid not in parents and not stats[pid][2].startswith("python")
    ]


def launchers() -> list[int]:
    """The processes that start guests: children of this one that run Python."""
    return [
        pid
        for pid, (state, parent, name) in _stats().items()
        if parent == os.getpid() and state != "Z" and name.startswith("python")
    ]


def zombies() -> list[int]:
    """Ended processes below this one that nobody has waited for, but for launchers."""
    stats = _stats()
    return [pid for pid, state in descendants().items() if state == "Z" and not stats[pid][2].startswith("python")]


def _stats() -> dict[int, tuple[str, int, str]]:
    """Of every process: state, parent, name."""
    found: dict[int, tuple[str, int, str]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                text = (path / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            head, _, rest = text.rpartition(")")
            state, parent = rest.split()[:2]
            found[int(path.name)] = state, int(parent), head.partition("(")[2]
    return found


def deviations(measured: Sequence[Gauges]) -> list[str]:
    """What is not flat from the first measurement, taken after a warm-up, to the last."""
    first, last = measured[0], measured[-1]
    found = [f"{gauges.zombies} zombies after {gauges.executions}" for gauges in measured if gauges.zombies]
    for name in ("processes", "descriptors", "files", "tasks"):
        found += [
            f"{name}: {getattr(first, name)} after {first.executions}, {getattr(gauges, name)} after {gauges.executions}"
            for gauges in measured
            if getattr(gauges, name) > getattr(first, name) + _IN_MAKING.get(name, 0)
        ]
        least = min(getattr(gauges, name) for gauges in measured[len(measured) // 2 :])
        if least > getattr(first, name):
            found.append(f"{name}: {getattr(first, name)} after {first.executions}, never less than {least} later")
    half = (len(measured) + 1) // 2
    if last.threads > max(_THREADS, *(gauges.threads for gauges in measured[:half])):
        found.append(f"threads: {first.threads} after {first.executions}, {last.threads} after {last.executions}")
    if (growth := memory_growth(measured)) > _MEMORY_GROWTH_MB:
        found.append(f"memory: grew by {growth:.1f} MB, more than {_MEMORY_GROWTH_MB:g}")
    return found


def memory_growth(measured: Sequence[Gauges]) -> float:
    """The mean of the last quarter above that of the first, in megabytes."""
    quarter = max(1, len(measured) // 4)
    first = statistics.fmean(gauges.memory_mb for gauges in measured[:quarter])
    return statistics.fmean(gauges.memory_mb for gauges in measured[-quarter:]) - first


def table(measured: Sequence[Gauges]) -> str:
    names = [field.name for field in fields(Gauges)]
    rows = [names, *([str(getattr(gauges, name)) for name in names] for gauges in measured)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

"""What a tree of processes takes, as Linux counts it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "tree_memory"]

_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Megabytes, summed over some processes.

    `rss` counts a page once for each process that has it; `pss` gives each its share; `private` is what no other
    process has.
    """

    processes: int = 0
    rss: float = 0.0
    pss: float = 0.0
    private: float = 0.0

    def __add__(self, other: Memory) -> Memory:
        return Memory(
            processes=self.processes + other.processes,
            rss=self.rss + other.rss,
            pss=self.pss + other.pss,
            private=self.private + other.private,
        )

    def each(self, base: Memory, count: int) -> dict[str, float]:
        """What each of `count` equal things takes, which are all that has come since `base`."""
        return {
            "processes": round((self.processes - base.processes) / count, 2),
            "rss_mb": round((self.rss - base.rss) / count, 2),
            "pss_mb": round((self.pss - base.pss) / count, 2),
            "private_mb": round((self.private - base.private) / count, 2),
        }


def tree_memory(root: int) -> tuple[Memory, Memory]:
    """What `root` takes, and what all its descendants take, in whatever session they are."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children[parent].append(int(entry.name))
    below = Memory()
    waiting = list(children[root])
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        below += _memory(pid)
    return _memory(root), below


def _parent(entry: Path) -> int | None:
    try:
        status = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended since
        return None
    return int(status.rpartition(")")[2].split()[1])


def _memory(pid: int) -> Memory:
    try:
        sizes = _sizes(_PROC / str(pid) / "status")
        shares = _sizes(_PROC / str(pid) / "smaps_rollup")
    except OSError:
        return Memory()
    private = shares.get("Private_Clean", 0.0) + shares.get("Private_Dirty", 0.0)
    return Memory(processes=1, rss=sizes.get("VmRSS", 0.0), pss=shares.get("Pss", 0.0), private=private)


def _sizes(path: Path) -> dict[str, float]:
    """The lines `Name:  123 kB` of a file, in megabytes."""
    sizes: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            sizes[name] = int(rest.split()[0]) / 1024
    return sizes

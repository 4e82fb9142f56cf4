"""The machine and the versions that numbers belong to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

__all__ = ["Host", "describe_host"]


class Host(TypedDict):
    cpu: str
    cores: int
    memory_mb: int
    system: str
    python: str
    event_loop: str
    load: float
    """Processes that ran or waited to, averaged over the last minute, before the first round."""


def describe_host(*, uvloop: bool) -> Host:
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // 1024,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "event_loop": f"uvloop {version('uvloop')}" if uvloop else "asyncio",
        "load": round(os.getloadavg()[0], 2),
    }


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next(
        (value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == name), None
    )

"""What a test asks the kernel about processes: who descends from whom, and whether they really end."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
from collections.abc import Iterable
from pathlib import Path

from corral.sandboxes.jailed.fork_server import ForkServer
from corral.sandboxes.pool import Pool
from tests.until import LIMIT_SECONDS, until_sync

__all__ = ["assert_ending", "descendants", "descriptors", "guests", "stop"]


def descendants(ancestor: int | None = None) -> dict[int, str]:
    """The living descendants of a process, this one by default, and their names.

    Of this one, none comes later that sandboxes of earlier tests start for their next execution.
    """
    if ancestor is None:
        _await_rest()
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().split(" (", 1)[1].rsplit(") ", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if rest[0] != "Z":
            pid = int(stat.parent.name)
            names[pid], parents[pid] = name, int(rest.split()[1])

    def descends(pid: int) -> bool:
        parent = parents.get(pid)
        return parent is not None and (parent == (ancestor or os.getpid()) or descends(parent))

    return {pid: name for pid, name in names.items() if descends(pid)}


def guests(ancestor: int | None = None) -> set[int]:
    """Those of them that are a guest's engine."""
    return {pid for pid, name in descendants(ancestor).items() if name == "deno"}


def stop(pid: int) -> None:
    """Stops a process by SIGSTOP, and waits until none of its threads runs.

    On a busy machine they run on until one of them has taken the signal.
    """
    os.kill(pid, signal.SIGSTOP)
    until_sync(lambda: all(_state(task) in "TZX" for task in Path(f"/proc/{pid}/task").iterdir()))


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def descriptors() -> int:
    """How many this process has open."""
    _await_rest()
    return len(list(Path("/proc/self/fd").iterdir()))


def _await_rest() -> None:
    """Waits until what sandboxes start ahead in the background is there."""
    for each in gc.get_objects():
        if type(each) is Pool:
            assert each.full(LIMIT_SECONDS)
        elif type(each) is ForkServer and (spare := each._spare) is not None:
            poll = select.poll()
            poll.register(spare._lifeline, select.POLLIN)
            while not spare.ended and spare.pid == 0:  # `ended` finds it out
                assert poll.poll(LIMIT_SECONDS * 1000)


def assert_ending(processes: Iterable[int], *, but: int = 0) -> None:
    """Nobody waits for a guest that was killed; but it is gone very soon. So many of these may live on."""
    poll = select.poll()
    living: set[int] = set()
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            living.add(os.pidfd_open(pid))
    try:
        for each in living:
            poll.register(each, select.POLLIN)
        while len(living) > but:
            ended = poll.poll(LIMIT_SECONDS * 1000)
            assert ended, f"{len(living)} processes live on"
            for each, _ in ended:
                poll.unregister(each)
                os.close(each)
                living.discard(each)
    finally:
        for each in living:
            os.close(each)

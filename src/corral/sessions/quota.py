"""Quotas of directories on disk, which the kernel does not enforce. The host checks them, and ends programs that exceed
them."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread

from corral.jail.launcher_client import guests
from corral.sessions.tree import FileTree, Usage, acting_as

_BYTES_PER_SECOND = 4e9
_FILES_PER_SECOND = 200_000.0
"""Upper bounds of writing speeds, so that the next check comes before the remaining quota can be used up."""
_ALL = Usage(1 << 62, 1_000_000)
_DYING_SECONDS = 0.1
"""Seconds for which an ended program can still write, until its process is killed."""
_LEAST_SECONDS, _MOST_SECONDS = 0.005, 0.25
_EXCESS = Usage(64_000_000, 1_000)
"""Excess over twice its quota with which programs can still start, in order to delete files. If it were unlimited, each
program could add some."""

_PAUSE = 20.0
"""Pause between scans of all guests, as a multiple of a scan's duration."""
_MOST_PROCESSES = 10_000
_MAPS_BYTES = 4_000_000
_DELETED = " (deleted)"


class Quota(NamedTuple):
    """Maximum bytes and files of a directory."""

    mount: str
    files: FileTree
    most: Usage


class QuotaWatch:
    """Checks quotas. Methods block."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self._quotas = quotas
        self._most = [_most(quota) for quota in quotas]

    def look(self) -> tuple[str | None, float]:
        """Returns an error if a directory exceeds both its quota and its first size, and the seconds until the next
        check."""
        wait = _MOST_SECONDS
        for quota, allowed in zip(self._quotas, self._most, strict=True):
            try:
                used = _used(quota, allowed)
            except OSError as error:
                return f"{quota.mount} cannot be measured: {error.strerror or error}", wait
            if used.bytes > allowed.bytes or used.files > allowed.files:
                quota_text = f"{quota.most.bytes:,} bytes and {quota.most.files:,} files"
                remedy = (
                    "programs run again once the host has deleted files with session.files, or reopened the session"
                )
                return f"{quota.mount} can hold {quota_text}; if it is far over that, {remedy}", wait
            left = (allowed.bytes - used.bytes) / _BYTES_PER_SECOND, (allowed.files - used.files) / _FILES_PER_SECOND
            wait = min(wait, *left)
        return None, max(_LEAST_SECONDS, wait)


async def watch_quotas(watch: QuotaWatch, over: Callable[[str], None], wait: float) -> None:
    """Calls `over` with an error once a directory exceeds both its quota and its first size.

    The first check is after `wait` seconds, as returned by the previous check.
    """
    reason: str | None = None
    while reason is None:
        await anyio.sleep(wait)
        reason, wait = await anyio.to_thread.run_sync(watch.look)
    over(reason)


def _most(quota: Quota) -> Usage:
    """Returns the effective quota: for a directory that exceeds its quota, its present size, so that programs can free
    space."""
    used = quota.most
    for _ in range(2):
        with suppress(OSError):  # the first check will report it
            used = _used(quota, _ALL)
        if used.bytes <= quota.most.bytes and used.files <= quota.most.files:
            break
        time.sleep(_DYING_SECONDS)
    if any(has > 2 * may + more for has, may, more in zip(used, quota.most, _EXCESS, strict=True)):
        return quota.most
    return Usage(*map(max, quota.most, used))


def _used(quota: Quota, most: Usage) -> Usage:
    """Returns the bytes and files that a directory holds, including unlinked files that are still open."""
    used = quota.files.measure(most)
    try:
        place = quota.files.place
    except OSError:  # without /proc unlinked files cannot be seen
        return used
    held = _held.beneath(place)
    if used.bytes + held > min(most.bytes, quota.most.bytes):
        held = _held.beneath(place, now=True)  # the holder may have ended since
    return used._replace(bytes=used.bytes + held)


class _HeldFiles:
    """Unlinked files that guests of this host hold open or mapped. They take space, but a walk does not see them.

    Guests whose descriptors this process may not see are not counted: proc_pid_fd(5).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._again = 0.0
        self._sizes: dict[tuple[str, int], int] = {}

    def beneath(self, folder: str, *, now: bool = False) -> int:
        """Returns the bytes of unlinked files below a folder. A scan covers all sessions, and its result is reused
        unless `now`."""
        with self._lock:
            began = time.monotonic()
            if now or began >= self._again:
                self._sizes = _unlinked()
                ended = time.monotonic()
                self._again = ended + max(_LEAST_SECONDS, _PAUSE * (ended - began))
            return sum(size for (path, _), size in self._sizes.items() if path.startswith(f"{folder}/"))


_held = _HeldFiles()


def _unlinked() -> dict[tuple[str, int], int]:
    """Returns the length of each unlinked file, by former path and inode."""
    sizes: dict[tuple[str, int], int] = {}
    for pid in itertools.islice(guests(), _MOST_PROCESSES):
        process = Path(f"/proc/{pid}")
        try:
            # A main thread that has ended has no descriptors; the remaining threads share them.
            any(_add(task, process / "map_files", sizes) for task in (process / "task").iterdir())
        except _Hidden:
            os.kill(pid, signal.SIGKILL)
        except OSError:  # the thread has ended
            continue
    return sizes


def _add(task: Path, mapped: Path, sizes: dict[tuple[str, int], int]) -> bool:
    """Adds a thread's files. Returns False if it has no descriptors that this process can see."""
    with suppress(OSError):
        owner = task.stat()
        with acting_as((owner.st_uid, owner.st_gid)):  # for most threads, as good as CAP_SYS_PTRACE
            if descriptors := [*(task / "fd").iterdir()]:
                _add_open(descriptors, sizes)
                _add_mapped(task / "maps", mapped, sizes)
                return True
    return False


class _Hidden(Exception):
    """The file and its owner cannot be determined. No honest program has such a path, or that many mappings."""


def _add_open(descriptors: Sequence[Path], sizes: dict[tuple[str, int], int]) -> None:
    for each in descriptors:
        with suppress(FileNotFoundError):
            state = each.stat()
            if stat.S_ISREG(state.st_mode) and state.st_nlink == 0:
                try:
                    sizes[str(each.readlink()), state.st_ino] = state.st_size
                except OSError as error:
                    if error.errno == errno.ENAMETOOLONG:
                        raise _Hidden from error
                    raise


def _add_mapped(maps: Path, files: Path, sizes: dict[tuple[str, int], int]) -> None:
    with maps.open("rb") as file:
        lines = file.read(_MAPS_BYTES).splitlines()
        if file.read(1):
            raise _Hidden
    for line in lines:
        if line.endswith(_DELETED.encode()):
            area, _, offset, _, inode, path = line.split(None, 5)
            start, end = (int(each, 16) for each in area.split(b"-"))
            key = os.fsdecode(path), int(inode)
            if key in sizes:
                continue
            try:
                sizes[key] = (files / f"{start:x}-{end:x}").stat().st_size
            except OSError:  # only a privileged host may see it, so the mapped part is counted
                sizes[key] = int(offset, 16) + end - start

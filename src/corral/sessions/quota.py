"""Quotas of directories on disk, which no kernel holds: the host looks, and ends programs that go over them."""

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
"""Writers are no faster than this, so that the next look comes before what is left is used up."""
_ALL = Usage(1 << 62, 1_000_000)
_DYING_SECONDS = 0.1
"""A program that was ended for it may write until its process is killed."""
_LEAST_SECONDS, _MOST_SECONDS = 0.005, 0.25
_EXCESS = Usage(64_000_000, 1_000)
"""Excess over twice its quota that a directory may have as a program starts, to make room. Else each would add some."""

_PAUSE = 20.0
"""Times that a scan of all guests took, until the next one."""
_MOST_PROCESSES = 10_000
_MAPS_BYTES = 4_000_000
_DELETED = " (deleted)"


class Quota(NamedTuple):
    """Bytes and files that a directory may hold."""

    mount: str
    files: FileTree
    most: Usage


class QuotaWatch:
    """Looks at quotas. Its methods block."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self._quotas = quotas
        self._most = [_most(quota) for quota in quotas]

    def look(self) -> tuple[str | None, float]:
        """The reason why a directory holds more than it may, and more than it did at first, or the seconds to wait."""
        wait = _MOST_SECONDS
        for quota, allowed in zip(self._quotas, self._most, strict=True):
            try:
                used = _used(quota, allowed)
            except OSError as error:
                return f"{quota.mount} cannot be measured: {error.strerror or error}", wait
            if used.bytes > allowed.bytes or used.files > allowed.files:
                may = f"{quota.most.bytes:,} bytes and {quota.most.files:,} files at most"
                remedy = (
                    "programs run again once the host has deleted files with session.files, or reopened the session"
                )
                return f"{quota.mount} holds {may}; if it is far over that, {remedy}", wait
            left = (allowed.bytes - used.bytes) / _BYTES_PER_SECOND, (allowed.files - used.files) / _FILES_PER_SECOND
            wait = min(wait, *left)
        return None, max(_LEAST_SECONDS, wait)


async def watch_quotas(watch: QuotaWatch, over: Callable[[str], None], wait: float) -> None:
    """Calls `over` with the reason once a directory holds more than it may, and more than it did at first.

    The first look is after `wait` seconds, as an earlier one said.
    """
    reason: str | None = None
    while reason is None:
        await anyio.sleep(wait)
        reason, wait = await anyio.to_thread.run_sync(watch.look)
    over(reason)


def _most(quota: Quota) -> Usage:
    """Amount that it may hold from now on: one that is over keeps what it has, so that a program can make room."""
    found = quota.most
    for _ in range(2):
        with suppress(OSError):  # what follows from that is for the first look to say
            found = _used(quota, _ALL)
        if found.bytes <= quota.most.bytes and found.files <= quota.most.files:
            break
        time.sleep(_DYING_SECONDS)
    if any(has > 2 * may + more for has, may, more in zip(found, quota.most, _EXCESS, strict=True)):
        return quota.most
    return Usage(*map(max, quota.most, found))


def _used(quota: Quota, most: Usage) -> Usage:
    """Bytes and files that a directory holds, with those that have no name any more."""
    used = quota.files.measure(most)
    try:
        place = quota.files.place
    except OSError:  # without /proc none of these can be seen
        return used
    held = _held.beneath(place)
    if used.bytes + held > min(most.bytes, quota.most.bytes):
        held = _held.beneath(place, now=True)  # the holder may have ended since
    return used._replace(bytes=used.bytes + held)


class _HeldFiles:
    """Files without a name that guests of this host hold open or mapped: they take room, and no walk sees them.

    A guest whose descriptors this process may not see has none here: proc_pid_fd(5).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._again = 0.0
        self._sizes: dict[tuple[str, int], int] = {}

    def beneath(self, folder: str, *, now: bool = False) -> int:
        """Bytes of those that were below this folder. Scans are for all sessions, with pauses unless it is `now`."""
        with self._lock:
            began = time.monotonic()
            if now or began >= self._again:
                self._sizes = _unlinked()
                ended = time.monotonic()
                self._again = ended + max(_LEAST_SECONDS, _PAUSE * (ended - began))
            return sum(size for (path, _), size in self._sizes.items() if path.startswith(f"{folder}/"))


_held = _HeldFiles()


def _unlinked() -> dict[tuple[str, int], int]:
    """Length of each such file, by the path that it had and its inode."""
    found: dict[tuple[str, int], int] = {}
    for pid in itertools.islice(guests(), _MOST_PROCESSES):
        process = Path(f"/proc/{pid}")
        try:
            # A first thread that has ended has no descriptors, while those that go on share all.
            any(_add(task, process / "map_files", found) for task in (process / "task").iterdir())
        except _Hidden:
            os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue
    return found


def _add(task: Path, mapped: Path, found: dict[tuple[str, int], int]) -> bool:
    """Adds those of a thread; False if it has no descriptors, or none that this process may see."""
    with suppress(OSError):
        owner = task.stat()
        with acting_as((owner.st_uid, owner.st_gid)):  # which is as good as CAP_SYS_PTRACE, for most of them
            if descriptors := [*(task / "fd").iterdir()]:
                _add_open(descriptors, found)
                _add_mapped(task / "maps", mapped, found)
                return True
    return False


class _Hidden(Exception):
    """Nobody can say which file it is, or whose; no honest program has such a path, or so many mappings."""


def _add_open(descriptors: Sequence[Path], found: dict[tuple[str, int], int]) -> None:
    for each in descriptors:
        with suppress(FileNotFoundError):
            state = each.stat()
            if stat.S_ISREG(state.st_mode) and state.st_nlink == 0:
                try:
                    found[str(each.readlink()), state.st_ino] = state.st_size
                except OSError as error:
                    if error.errno == errno.ENAMETOOLONG:
                        raise _Hidden from error
                    raise


def _add_mapped(maps: Path, files: Path, found: dict[tuple[str, int], int]) -> None:
    with maps.open("rb") as file:
        lines = file.read(_MAPS_BYTES).splitlines()
        if file.read(1):
            raise _Hidden
    for line in lines:
        if line.endswith(_DELETED.encode()):
            area, _, offset, _, inode, path = line.split(None, 5)
            start, end = (int(each, 16) for each in area.split(b"-"))
            key = os.fsdecode(path), int(inode)
            if key in found:
                continue
            try:
                found[key] = (files / f"{start:x}-{end:x}").stat().st_size
            except OSError:  # only a privileged host may see it: then as much as is mapped
                found[key] = int(offset, 16) + end - start

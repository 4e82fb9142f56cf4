"""Removes trees left by hostile programs: of any depth, with folders that deny access to their owner."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".corral-"
"""Prefix of temporary names."""
_MOST_STEPS = 1_000_000
"""Maximum number of names that one removal touches, because a program can keep adding some."""
_ON_LINUX = sys.platform == "linux"
"""False on other systems, which have no jails: only trusted programs leave files there."""
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC if _ON_LINUX else 0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC if _ON_LINUX else 0


def remove_tree(path: Path) -> None:
    """Removes a folder and its contents, as far as permitted. Links are removed, not followed."""
    if not _ON_LINUX:
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        parent = os.open(path.parent, _FOLDER)
        try:
            remove_beneath(parent, path.name)
        finally:
            os.close(parent)


def remove_beneath(parent: int, name: str) -> bool:
    """Removes a file, or a folder and its contents. Returns False if it does not exist.

    Subfolders are first moved up next to the folder, so that any depth works.

    Raises:
        OSError: a system call failed; EBUSY if a program adds files as fast as they are removed.
    """
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    except IsADirectoryError:
        pass
    except PermissionError:  # POSIX permits this error for unlink(2) of a folder
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise
    else:
        return True
    if not _ON_LINUX:
        shutil.rmtree(name, dir_fd=parent)
        return True
    steps = itertools.count()
    left = [name]
    while left:
        left += _remove_folder(parent, left.pop(), steps)
    return True


def _remove_folder(parent: int, name: str, steps: Iterator[int]) -> list[str]:
    """Empties and removes a folder. Moves its subfolders to `parent`, and returns their names there."""
    moved: list[str] = []
    while True:
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)
            return moved
        try:
            folder = open_folder(parent, name)
        except FileNotFoundError:  # a program might have removed it
            return moved
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if next(steps) > _MOST_STEPS:
                        raise OSError(errno.EBUSY, "a program adds files as fast as they are removed")
                    with suppress(FileNotFoundError):  # likewise
                        if not entry.is_dir(follow_symlinks=False):
                            os.unlink(entry.name, dir_fd=folder)
                            continue
                        beside = f"{TEMPORARY}{secrets.token_hex(8)}"
                        os.close(open_folder(folder, entry.name))
                        os.rename(entry.name, beside, src_dir_fd=folder, dst_dir_fd=parent)
                        moved.append(beside)
        finally:
            os.close(folder)


def open_folder(parent: int, name: str) -> int:
    """Opens a folder, makes it searchable and writable for its owner, and returns its descriptor."""
    place = os.open(name, _PLACE, dir_fd=parent)
    try:
        path = Path(f"/proc/self/fd/{place}")  # chmod(2) cannot refuse to follow a link
        with suppress(OSError):
            path.chmod(0o700)
        return os.open(path, _FOLDER)
    finally:
        os.close(place)

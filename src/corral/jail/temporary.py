"""Temporary folders: a process keeps all of its own in one home, which it locks; unlocked homes can be removed.

A process removes its own folders when it ends; the launcher removes those of a host that was killed. If both were
killed, the next process that makes its first folder in the same place removes the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from corral.concurrency.forks import ProcessOwner, after_fork
from corral.jail.removal import remove_beneath, remove_tree

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl

_PREFIX = "corral-"
_HELD = ".held"
"""File locked with flock(2). The kernel releases the lock when the last process that inherited it ends."""
_MOST_SEEN = 1000


def user_cache(name: str) -> Path:
    """Returns a folder in the user's cache, which exists once something was written to it."""
    configured = os.environ.get("XDG_CACHE_HOME")
    home = Path(configured) if configured else Path.home() / ".cache"
    return home / "corral" / name


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Writes a file atomically: under a unique name, which then replaces the target.

    Raises:
        OSError: the folder does not exist, or cannot be written to.
    """
    file, written = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content.encode() if isinstance(content, str) else content)
        Path(written).chmod(mode)
        Path(written).replace(path)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise


class TemporaryFolder:
    """New folder that every user can read. Exists until `close`, or until this object or the process ends.

    Raises:
        OSError: the temporary directory is not writable.
    """

    def __init__(self) -> None:
        with _lock:
            self._home, self.path = _make_folder()
        self._remove = weakref.finalize(self, _remove, self._home, self.path)
        self._remove.atexit = False  # processes that run from it end first

    @property
    def home(self) -> Path | None:
        """Folder to remove if this process is killed; None in a fork of the process that made it."""
        return self._home.path if self._home.owner.is_current else None

    def close(self) -> None:
        """Removes the folder with its contents. Idempotent; does nothing in a fork of the process that made it."""
        self._remove()


class _Home:
    """Folder that contains one process's temporary folders in one location."""

    def __init__(self, place: str) -> None:
        self.owner = ProcessOwner()
        self.folders = 0
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._numbers = itertools.count()
        self._descriptor: int | None = None
        try:
            if sys.platform == "win32":
                return  # without such locks, as on Windows, nothing is cleared
            self.path.chmod(0o711)  # guests may be other users, who need to see only their own folder
            new = self.path / f"{_HELD}.new"
            self._descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # if this file system has no locks, no other process clears it
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                new.rename(self.path / _HELD)  # so that it never appears unlocked
        except BaseException:
            self.end()
            raise

    def make_folder(self) -> Path:
        folder = self.path / str(next(self._numbers))
        folder.mkdir()
        folder.chmod(0o755)  # regardless of the umask
        self.folders += 1
        return folder

    def end(self) -> None:
        remove_tree(self.path)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_homes: dict[str, _Home] = {}
"""This process's homes by temporary directory."""
_cleared: set[str] = set()
_lock = threading.RLock()
"""Reentrant, because an unused folder can be removed at any moment, even by the thread that is making one."""


class _Process:
    """Owner of the finalizers. It lives as long as this process, and they run after those of everything made later."""


_process = _Process()


def _remove_all() -> None:
    with _lock:
        for home in _homes.values():
            if home.owner.is_current:
                home.end()
        _homes.clear()


weakref.finalize(_process, _remove_all)


def _make_folder() -> tuple[_Home, Path]:
    place = tempfile.gettempdir()
    home = _homes.get(place)
    if home is not None:
        with contextlib.suppress(FileNotFoundError):  # another process has cleared the location
            return home, home.make_folder()
    if place not in _cleared and sys.platform != "win32":
        _cleared.add(place)
        _clear(place)
    home = _Home(place)
    try:
        folder = home.make_folder()
    except BaseException:
        home.end()
        raise
    _homes[place] = home
    return home, folder


def _remove(home: _Home, folder: Path) -> None:
    if not home.owner.is_current:
        return
    remove_tree(folder)
    with _lock:
        home.folders -= 1
        if home.folders == 0:
            home.end()
            for place in [place for place, each in _homes.items() if each is home]:
                del _homes[place]


def _clear(place: str) -> None:
    """Removes folders that ended processes have left."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in itertools.islice((each for each in entries if each.name.startswith(_PREFIX)), _MOST_SEEN):
            with contextlib.suppress(OSError):
                _clear_home(entry.path)


def _clear_home(path: str) -> None:
    """Removes a home, if it belongs to this user and is not locked.

    Raises:
        OSError: the folder is not a home, is locked, or cannot be removed.
    """
    with contextlib.ExitStack() as opened:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        opened.callback(os.close, directory)
        held = os.open(_HELD, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        opened.callback(os.close, held)
        of_home, of_file = os.fstat(directory), os.fstat(held)
        if {of_home.st_uid, of_file.st_uid} != {os.geteuid()} or not stat.S_ISREG(of_file.st_mode):
            return
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.scandir(directory) as entries:
            folders = [each.name for each in entries if each.name != _HELD]
        for name in folders:
            remove_beneath(directory, name)
        os.unlink(_HELD, dir_fd=directory)
        Path(path).rmdir()


def _reset_in_fork() -> None:
    """Forgets the homes in a forked process, because they are the parent's."""
    global _lock
    _lock = threading.RLock()  # another thread of the parent might have held it
    _homes.clear()


after_fork(_reset_in_fork)

"""Host access to a directory to which hostile programs write at the same time.

The kernel resolves each path beneath the directory's descriptor without following links, so nothing that a program
leaves or swaps can lead out of it. This uses openat2(2) or, where that is refused, opens one component at a time.
Functions here block, and raise OSError like the system calls.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import secrets
import stat
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from corral.jail.removal import TEMPORARY, open_folder, remove_beneath

EntryKind: TypeAlias = Literal["file", "directory", "link", "other"]
"""Programs can only make files and directories. Commands of a shell also make links, FIFOs and sockets."""

_KINDS: Mapping[int, EntryKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}

# linux/openat2.h, asm-generic/unistd.h
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_SAFELY = 0 if sys.platform == "win32" else os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = 0 if sys.platform == "win32" else os.O_RDONLY | os.O_DIRECTORY | _SAFELY
_ATTEMPTS = 16
"""Number of attempts, because openat2 fails with EAGAIN if something is renamed meanwhile."""
_PIECE_BYTES = 1 << 18
_MOST_DEPTH = 100
"""Maximum depth of folders that are listed, because each level takes a descriptor. Deeper ones are only measured."""
_MOST_ENTRIES = 1_000_000
MOST_PATH_CHARACTERS = 100_000_000
"""Maximum characters of all paths in a list, because names can be long and folders deep."""


class Entry(NamedTuple):
    """File or folder. `path` is relative to the listed folder. `modified` is in nanoseconds since 1970."""

    path: str
    kind: EntryKind
    size: int
    modified: int
    inode: int


class Usage(NamedTuple):
    """Bytes and files in use."""

    bytes: int
    files: int


class _OpenHow(ctypes.Structure):
    """struct open_how (openat2(2))."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class FileTree:
    """Directory, given by its descriptor `root`, which it takes over.

    `owner` is the user and group for file system calls; None stands for this process's own. A space's file system in
    memory knows only the user of its guests.
    """

    def __init__(self, root: int, *, owner: tuple[int, int] | None = None) -> None:
        self._root = root
        self._owner = owner
        self._lock = threading.Lock()
        self._users = 1
        self._closed = False

    def close(self) -> None:
        """Refuses later calls, and closes the descriptor once the last call has ended. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            os.close(self._root)

    def read_part(self, path: Sequence[str], offset: int, size: int) -> bytes | None:
        """Returns up to `size` bytes of a regular file from an offset; None if it does not exist. Raises the errors of
        `read`, except EFBIG."""
        with self._acting():
            if (descriptor := self._open_regular(path)) is None:
                return None
            try:
                return os.pread(descriptor, size, offset)
            finally:
                os.close(descriptor)

    def read(self, path: Sequence[str], max_bytes: int) -> bytes | None:
        """Returns the content of a regular file; None if it does not exist.

        Raises:
            OSError: EFBIG if the file is larger, EISDIR, ELOOP for a link, EINVAL for other kinds.
        """
        with self._acting():
            if (descriptor := self._open_regular(path)) is None:
                return None
            try:
                size = os.fstat(descriptor).st_size
                data = b"" if size > max_bytes else _read(descriptor, size, max_bytes + 1)
            finally:
                os.close(descriptor)
        if max(size, len(data)) > max_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return data

    def pieces(self, path: Sequence[str], max_bytes: int = sys.maxsize) -> Iterator[bytes] | None:
        """Yields up to `max_bytes` of a regular file; returns None if it does not exist. Raises the errors of `read`,
        except EFBIG."""
        with self._acting():
            if (descriptor := self._open_regular(path)) is None:
                return None
        pieces = _pieces(descriptor, max_bytes)
        next(pieces)  # once started, a generator closes the descriptor even if it is never read
        return pieces

    def write(self, path: Sequence[str], pieces: Iterable[bytes]) -> None:
        """Replaces a file atomically, and makes its folders.

        Raises:
            OSError: EISDIR, ENOTDIR, or ENOSPC if there is no room for it in addition to the old file.
        """
        *folders, name = path
        with self._acting():
            parent = self._make_folders(folders)
            try:
                _replace(parent, name, pieces)
            finally:
                os.close(parent)

    def write_in_place(
        self,
        path: Sequence[str],
        data: bytes,
        *,
        append: bool,
        max_bytes: int,
        offset: int | None = None,
        exclusive: bool = False,
    ) -> None:
        """Appends to a file or overwrites its content in place. Creates it in an existing folder.

        With an `offset`, the file has to exist, and only the part from there is overwritten. With `exclusive`, the file
        must not exist.

        Raises:
            OSError: EFBIG once the file has `max_bytes`, ENOENT and ENOTDIR if its folder is missing, EEXIST, EISDIR,
                ELOOP, EINVAL.
        """
        flags = os.O_WRONLY | (os.O_APPEND if append else 0) | (os.O_EXCL if exclusive else 0) | _SAFELY
        flags |= os.O_CREAT if offset is None else 0
        with self._acting():
            self._expect_regular(path)
            descriptor = self._open(path, flags, 0o644 if flags & os.O_CREAT else 0)
            try:
                status = _regular(descriptor)
                left = max_bytes - (status.st_size if append else offset or 0)
                if offset is not None:
                    os.lseek(descriptor, min(offset, max_bytes), os.SEEK_SET)
                elif not append:
                    os.ftruncate(descriptor, 0)
                _write(descriptor, data[: max(0, left)])
                if len(data) > left:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            finally:
                os.close(descriptor)

    def make_one_directory(self, path: Sequence[str]) -> None:
        """Makes a folder in an existing one.

        Raises:
            OSError: EEXIST, ENOENT, ENOTDIR, ELOOP, ENOSPC.
        """
        with self._parent(path) as (parent, name):
            os.mkdir(name, 0o755, dir_fd=parent)

    def remove_one(self, path: Sequence[str], *, directory: bool) -> None:
        """Removes a file or, with `directory`, an empty folder.

        Raises:
            OSError: ENOENT, EISDIR for a folder, ENOTDIR for a file, ENOTEMPTY, ELOOP.
        """
        with self._parent(path) as (parent, name):
            (os.rmdir if directory else os.unlink)(name, dir_fd=parent)

    def rename(self, path: Sequence[str], target: Sequence[str]) -> None:
        """Moves a file or folder; replaces a file or empty folder.

        Raises:
            OSError: ENOENT, EISDIR, ENOTDIR, ENOTEMPTY, ELOOP, EINVAL if the target is within the folder.
        """
        with self._parent(path) as (parent, name), self._parent(target) as (new_parent, new_name):
            os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)

    def make_directory(self, path: Sequence[str]) -> None:
        """Makes a folder and its parents, unless they exist."""
        with self._acting():
            os.close(self._make_folders(path))

    def remove(self, path: Sequence[str]) -> bool:
        """Removes a file, or a folder with its content. Returns False if it does not exist.

        Raises:
            OSError: EBUSY if a program adds files as fast as this removes them.
        """
        *folders, name = path
        with self._acting():
            parent = self._find(folders, _DIRECTORY)
            if parent is None:
                return False
            try:
                return remove_beneath(parent, name)
            finally:
                os.close(parent)

    def clear(self) -> None:
        """Removes everything in the directory. Raises the errors of `remove`."""
        for entry in self.list((), recursive=False, max_entries=_MOST_ENTRIES) or ():
            self.remove([entry.path])

    def stat(self, path: Sequence[str]) -> Entry | None:
        """Describes an entry of any kind; returns None if it does not exist."""
        with self._acting():
            parent = self._find(path[:-1], _DIRECTORY)
            if parent is None:
                return None
            try:
                status = os.stat(path[-1] if path else ".", dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                return None
            finally:
                os.close(parent)
        return _entry("/".join(path), status)

    def list(
        self,
        path: Sequence[str],
        *,
        recursive: bool,
        max_entries: int,
        max_characters: int = MOST_PATH_CHARACTERS,
    ) -> list[Entry] | None:
        """Lists a folder, sorted by path; returns None if it does not exist.

        Raises:
            OSError: E2BIG if the folder has more than `max_entries`, or their paths more than `max_characters`.
        """
        with self._acting():
            descriptor = self._find(path, _DIRECTORY)
            if descriptor is None:
                return None
            listed: list[Entry] = []
            characters = 0
            with closing(_walk(descriptor, recursive=recursive)) as entries:
                for entry in itertools.islice(entries, max_entries + 1):
                    listed.append(entry)
                    characters += len(entry.path)
                    if characters > max_characters:
                        raise OSError(errno.E2BIG, f"paths of more than {max_characters:,} characters")
        if len(listed) > max_entries:
            raise OSError(errno.E2BIG, f"more than {max_entries:,} files and folders")
        return sorted(listed)

    def usage(self) -> Usage:
        """Returns the usage of the whole file system, including other directories that share it."""
        with self._acting():
            status = os.fstatvfs(self._root)
        return Usage((status.f_blocks - status.f_bfree) * status.f_frsize, max(0, status.f_files - status.f_ffree - 1))

    @property
    def place(self) -> str:
        """Path on this machine.

        Raises:
            OSError: EBADF if the directory is closed.
        """
        with self._open_still():
            return str(Path(f"/proc/self/fd/{self._root}").readlink())

    def measure(self, most: Usage) -> Usage:
        """Counts the bytes and files in the directory, at any depth. Stops once there are more than `most`.

        Raises:
            OSError: EBUSY if folders are moved during every attempt.
        """
        with self._open_still():
            for _ in range(_ATTEMPTS):
                if (usage := _measured(self._open((), _DIRECTORY), most)) is not None:
                    return usage
        raise OSError(errno.EBUSY, "folders were moved during every attempt to measure them")

    def _open_regular(self, path: Sequence[str]) -> int | None:
        """Opens a regular file for reading; returns None if it does not exist. Raises the errors of `read`, except
        EFBIG."""
        descriptor = self._find(path, os.O_RDONLY)
        if descriptor is None:
            return None
        try:
            _regular(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _find(self, path: Sequence[str], flags: int) -> int | None:
        try:
            return self._open(path, flags | _SAFELY)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            self._expect_no_link(path)
            return None

    def _expect_no_link(self, path: Sequence[str]) -> None:
        """Raises ELOOP if a path has a link in place of a folder, instead of a missing folder."""
        with suppress(FileNotFoundError, NotADirectoryError):
            place = self._open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if stat.S_ISLNK(os.fstat(place).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            finally:
                os.close(place)

    def _expect_regular(self, path: Sequence[str]) -> None:
        """Checks the kind of a file before it is opened for writing, which would have side effects on devices and
        FIFOs.

        Raises:
            OSError: EISDIR, ELOOP for a link, EINVAL for other kinds.
        """
        with suppress(FileNotFoundError):
            place = self._open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if stat.S_ISLNK(os.fstat(place).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                _regular(place)
            finally:
                os.close(place)

    @contextmanager
    def _parent(self, path: Sequence[str]) -> Generator[tuple[int, str]]:
        """Yields a descriptor of a path's parent folder, and the name in it.

        Raises:
            OSError: ENOENT, ENOTDIR, ELOOP; EBUSY for the root itself.
        """
        if not path:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        *folders, name = path
        with self._acting():
            parent = self._open(folders, _DIRECTORY)
            try:
                yield parent, name
            finally:
                os.close(parent)

    def _open(self, path: Sequence[str], flags: int, mode: int = 0) -> int:
        if not _has_openat2():
            return self._open_by_steps(path, flags, mode)
        how = _OpenHow(flags, mode, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
        encoded = os.fsencode("/".join(path) or ".")
        for _ in range(_ATTEMPTS):
            descriptor = _openat2(self._root, encoded, how)
            if descriptor >= 0:
                return descriptor
            if (number := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR):
                raise OSError(number, os.strerror(number))
        return self._open_by_steps(path, flags, mode)

    def _open_by_steps(self, path: Sequence[str], flags: int, mode: int) -> int:
        current = os.dup(self._root)
        try:
            for name in path[:-1]:
                below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
                os.close(current)
                current = below
            return os.open(path[-1] if path else ".", flags, mode, dir_fd=current)
        finally:
            os.close(current)

    def _make_folders(self, path: Sequence[str]) -> int:
        """Returns a descriptor of a folder. Makes missing folders."""
        current = self._open((), _DIRECTORY)
        try:
            for name in path:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=current)
                below = os.open(name, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = below
        except BaseException:
            os.close(current)
            raise
        return current

    @contextmanager
    def _acting(self) -> Generator[None]:
        """Keeps the descriptor open and acts as the owner during the block."""
        with self._open_still(), acting_as(self._owner):
            yield

    @contextmanager
    def _open_still(self) -> Generator[None]:
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "the session is closed")
            self._users += 1
        try:
            yield
        finally:
            self._leave()


@contextmanager
def acting_as(owner: tuple[int, int] | None) -> Generator[None]:
    """Makes this thread alone access the file system as a user and group: setfsuid(2). None changes nothing."""
    if owner is None:
        yield
        return
    libc = _libc()
    user, group = owner
    libc.setfsgid(group)
    libc.setfsuid(user)  # last, because it drops the file capabilities
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(directory: int, path: bytes, how: _OpenHow) -> int:
    return _libc().syscall(_SYS_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))


@cache
def _has_openat2() -> bool:
    """True if openat2 works. Older kernels lack it, and some containers forbid it."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        descriptor = _openat2(root, b".", _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_BENEATH))
    finally:
        os.close(root)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def _regular(descriptor: int) -> os.stat_result:
    """Describes a regular file.

    Raises:
        OSError: EISDIR for a folder, EINVAL for other kinds.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, os.strerror(number))
    return status


def _read(descriptor: int, size: int, most: int) -> bytes:
    """Reads up to `most` bytes of a file that has `size` bytes and can be growing."""
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(descriptor, min(most, max(size, 1) + 1, 1 << 24))):
        pieces.append(piece)
        most -= len(piece)
        size -= len(piece)
    return b"".join(pieces)


def _pieces(descriptor: int, left: int) -> Iterator[bytes]:
    try:
        yield b""
        while piece := os.read(descriptor, min(left, _PIECE_BYTES)):
            yield piece
            left -= len(piece)
    finally:
        os.close(descriptor)


def _replace(parent: int, name: str, pieces: Iterable[bytes]) -> None:
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o644, dir_fd=parent)
    try:
        try:
            for piece in pieces:
                _write(descriptor, piece)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _walk(root: int, *, recursive: bool) -> Generator[Entry]:
    """Walks a directory tree, and closes `root`. Never follows links."""
    opened = [(root, "")]
    try:
        levels = [os.scandir(root)]
        try:
            while levels:
                folder, prefix = opened[-1]
                entry = next(levels[-1], None)
                if entry is None:
                    levels.pop().close()
                    os.close(opened.pop()[0])
                    continue
                try:
                    described = _entry(prefix + entry.name, entry.stat(follow_symlinks=False))
                    yield described
                    if recursive and described.kind == "directory" and len(opened) < _MOST_DEPTH:
                        below = os.open(entry.name, _DIRECTORY, dir_fd=folder)
                        opened.append((below, f"{described.path}/"))
                        levels.append(os.scandir(below))
                except OSError:  # removed or replaced meanwhile
                    continue
        finally:
            for level in levels:
                level.close()
    finally:
        for descriptor, _ in opened:
            os.close(descriptor)


def _measured(folder: int, most: Usage) -> Usage | None:
    """Counts the bytes and files below a folder, and closes its descriptor. Returns None if a folder was moved
    meanwhile.

    It keeps only one folder open at a time, so depth is unlimited, and returns to the parent through `..`.
    """
    size = files = 0
    above: list[tuple[tuple[int, int], list[str]]] = []
    """Identity and remaining subfolders of each folder on the way down to the open one."""
    try:
        while True:
            inner: list[str] = []
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        described = _stat(folder, entry)
                    except FileNotFoundError:
                        continue
                    size, files = size + described.size, files + 1
                    if size > most.bytes or files > most.files:
                        return Usage(size, files)
                    if described.kind == "directory":
                        inner.append(entry.name)
            above.append((_identity(folder), inner))
            entered = False
            while not entered:
                itself, left = above[-1]
                if _identity(folder) != itself:
                    return None
                if left:
                    with suppress(FileNotFoundError, NotADirectoryError):
                        folder = _moved_on(folder, left.pop())
                        entered = True
                    continue
                above.pop()
                if not above:
                    return Usage(size, files)
                folder = _moved_on(folder, "..")
    finally:
        os.close(folder)


def _stat(folder: int, entry: os.DirEntry[str]) -> Entry:
    try:
        return _entry(entry.name, entry.stat(follow_symlinks=False))
    except PermissionError:  # a program has removed its own access, but the files still count
        os.fchmod(folder, 0o700)
        return _entry(entry.name, os.stat(entry.name, dir_fd=folder, follow_symlinks=False))


def _moved_on(folder: int, name: str) -> int:
    """Opens a subfolder or the parent folder, and closes `folder`.

    Raises:
        OSError: the folder cannot be opened; `folder` stays open.
    """
    try:
        opened = os.open(name, _DIRECTORY, dir_fd=folder)
    except PermissionError:
        opened = open_folder(folder, name)
    os.close(folder)
    return opened


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _entry(path: str, status: os.stat_result) -> Entry:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
    return Entry(path, kind, status.st_size if kind == "file" else 0, status.st_mtime_ns, status.st_ino)

"""System calls on a session's files, for programs whose engine has no file system and asks the host."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from corral.errors import FileError
from corral.sessions.files import MAX_ENTRIES, Tree, as_text, parts_of, tree_of
from corral.sessions.tree import Entry, EntryKind


class ProgramFiles:
    """Reads and changes files with a program's rights, by absolute paths.

    Methods block. They raise OSError; a message other than the system's gives a reason.
    """

    def __init__(self, trees: Sequence[Tree], home: str, file_bytes: int) -> None:
        self._trees = tuple(trees)
        self._file_bytes = file_bytes
        self.home = home
        """Working directory of programs."""

    def read(self, path: str, max_bytes: int) -> bytes:
        """Returns the content of a regular file of at most `max_bytes`."""
        tree, parts = self._find(path)
        self._expect(tree, parts)
        with _bounded(f"files of at most {max_bytes:,} bytes are read here; CPython and TypeScript read larger ones"):
            data = tree.files.read(parts, max_bytes)
        if data is None:
            raise _error(errno.ENOENT)
        return data

    def write(self, path: str, data: bytes, *, append: bool) -> None:
        """Writes a file in place, or creates it in an existing folder."""
        tree, parts = self._find(path, writes=True)
        with _bounded(f"a file here can have at most {self._file_bytes:,} bytes"):
            tree.files.write_in_place(parts, data, append=append, max_bytes=self._file_bytes)

    def expect_file(self, path: str) -> None:
        """Raises unless the path is a regular file."""
        self._expect(*self._find(path))

    def make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        """Makes a folder, and with `parents` the folders above it."""
        tree, parts = self._find(path, writes=True)
        entry = tree.files.stat(parts)
        if entry is not None:
            if entry.kind == "directory" and exist_ok:
                return
            raise _error(errno.EEXIST)
        if parents:
            tree.files.make_directory(parts)
        else:
            tree.files.make_one_directory(parts)

    def remove(self, path: str, *, directory: bool) -> None:
        """Removes a file, or an empty folder."""
        tree, parts = self._find(path, writes=True)
        tree.files.remove_one(parts, directory=directory)

    def rename(self, path: str, target: str) -> None:
        """Moves a file or folder within its mount."""
        (tree, parts), (other, others) = self._find(path, writes=True), self._find(target, writes=True)
        if tree is not other:
            raise OSError(
                errno.EXDEV, f"{tree.path} and {other.path} are two mounts; write a copy and remove the original"
            )
        tree.files.rename(parts, others)

    def kind(self, path: str) -> EntryKind | None:
        """Returns the kind of the entry at a path; None if it cannot be described."""
        try:
            return self.stat(path).kind
        except OSError:
            return None

    def stat(self, path: str) -> Entry:
        """Describes a file or folder; links are not followed."""
        tree, parts = self._find(path)
        entry = tree.files.stat(parts)
        if entry is None:
            raise _error(errno.ENOENT)
        return entry

    def list(self, path: str, *, recursive: bool) -> list[Entry]:
        """Lists a folder. Paths are relative to it and valid text."""
        tree, parts = self._find(path)
        entries = tree.files.list(parts, recursive=recursive, max_entries=MAX_ENTRIES)
        if entries is None:
            raise _error(errno.ENOENT if tree.files.stat(parts) is None else errno.ENOTDIR)
        return [each if each.path.isascii() else each._replace(path=as_text(each.path)) for each in entries]

    def _expect(self, tree: Tree, parts: Sequence[str]) -> None:
        entry = tree.files.stat(parts)
        kind = None if entry is None else entry.kind
        if kind != "file":
            numbers = {None: errno.ENOENT, "directory": errno.EISDIR, "link": errno.ELOOP}
            raise _error(numbers.get(kind, errno.EINVAL))

    def _find(self, path: str, *, writes: bool = False) -> tuple[Tree, list[str]]:
        try:
            location = tree_of(self._trees, parts_of(path)) if path.startswith("/") else None
        except FileError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        if location is None:
            names = ", ".join(tree.path for tree in self._trees)
            raise OSError(errno.EACCES if writes else errno.ENOENT, f"programs see the files in {names}")
        if writes and not location[0].program_writes:
            raise OSError(errno.EACCES, f"programs may not change files in {location[0].path}")
        return location


@contextmanager
def _bounded(reason: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise OSError(errno.EFBIG, reason) from None


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))

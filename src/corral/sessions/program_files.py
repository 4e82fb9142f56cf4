"""A session's files for programs whose engine has no file system, and asks the host: as the system calls do it."""

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

    Methods block. They raise OSError: a text of its own that is not the system's names a reason.
    """

    def __init__(self, trees: Sequence[Tree], home: str, file_bytes: int) -> None:
        self._trees = tuple(trees)
        self._file_bytes = file_bytes
        self.home = home
        """Working directory of programs."""

    def read(self, path: str, max_bytes: int) -> bytes:
        """The content of a regular file of so many bytes at most."""
        tree, parts = self._find(path)
        self._expect(tree, parts)
        with _bounded(f"files of {max_bytes:,} bytes at most are read here; CPython and TypeScript read larger ones"):
            data = tree.files.read(parts, max_bytes)
        if data is None:
            raise _error(errno.ENOENT)
        return data

    def write(self, path: str, data: bytes, *, append: bool) -> None:
        """Writes a file where it is, or makes it in a folder that is there."""
        tree, parts = self._find(path, writes=True)
        with _bounded(f"a file here has {self._file_bytes:,} bytes at most"):
            tree.files.write_in_place(parts, data, append=append, max_bytes=self._file_bytes)

    def expect_file(self, path: str) -> None:
        """Raises unless there is a regular file."""
        self._expect(*self._find(path))

    def make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        """Makes a folder, with `parents` those that it is in too."""
        tree, parts = self._find(path, writes=True)
        found = tree.files.stat(parts)
        if found is not None:
            if found.kind == "directory" and exist_ok:
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
        """Gives a file or folder another path in the same mount."""
        (tree, parts), (other, others) = self._find(path, writes=True), self._find(target, writes=True)
        if tree is not other:
            raise OSError(errno.EXDEV, f"{tree.path} and {other.path} are two mounts; write a copy and remove this")
        tree.files.rename(parts, others)

    def kind(self, path: str) -> EntryKind | None:
        """The kind of what is there; None if there is nothing, or it has no name."""
        try:
            return self.stat(path).kind
        except OSError:
            return None

    def stat(self, path: str) -> Entry:
        """Describes what is there; links are not followed."""
        tree, parts = self._find(path)
        found = tree.files.stat(parts)
        if found is None:
            raise _error(errno.ENOENT)
        return found

    def list(self, path: str, *, recursive: bool) -> list[Entry]:
        """Lists a folder. Paths are relative to it, and texts."""
        tree, parts = self._find(path)
        found = tree.files.list(parts, recursive=recursive, max_entries=MAX_ENTRIES)
        if found is None:
            raise _error(errno.ENOENT if tree.files.stat(parts) is None else errno.ENOTDIR)
        return [each if each.path.isascii() else each._replace(path=as_text(each.path)) for each in found]

    def _expect(self, tree: Tree, parts: Sequence[str]) -> None:
        found = tree.files.stat(parts)
        kind = None if found is None else found.kind
        if kind != "file":
            numbers = {None: errno.ENOENT, "directory": errno.EISDIR, "link": errno.ELOOP}
            raise _error(numbers.get(kind, errno.EINVAL))

    def _find(self, path: str, *, writes: bool = False) -> tuple[Tree, list[str]]:
        try:
            found = tree_of(self._trees, parts_of(path)) if path.startswith("/") else None
        except FileError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        if found is None:
            names = ", ".join(tree.path for tree in self._trees)
            raise OSError(errno.EACCES if writes else errno.ENOENT, f"programs see the files in {names}")
        if writes and not found[0].program_writes:
            raise OSError(errno.EACCES, f"programs may not change what is in {found[0].path}")
        return found


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

"""Files of a session as the host sees them: `session.files`."""

from __future__ import annotations

import errno
import io
import itertools
import mmap
import os
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread

from corral.arguments import checked
from corral.concurrency.threads import run_in_own_thread
from corral.errors import FileError
from corral.jail.workers import WorkerError, run_in_worker
from corral.results import FileChanges
from corral.sessions.text_files import MAX_READ_BYTES, decode_text, encode_text
from corral.sessions.tree import MOST_PATH_CHARACTERS, Entry, EntryKind, FileTree, Usage
from corral.types import EncodedValue

_PIECE_BYTES = 1 << 18
_SERVICE_BYTES = 1 << 19
"""Maximum bytes that `FileService` reads at once."""
_ANSWER_BYTES = 4_000_000
"""Maximum bytes of its answers."""
_FLAGS = ("w", "wx", "a", "ax")
_MOST_OFFSET = 1 << 53
PROGRAM_REASONS = {
    errno.ENOSPC: "this mount is full",
    errno.ELOOP: "it is a link, or behind one, and links are not followed",
    errno.EINVAL: "it is not a regular file, or would be moved into itself",
    errno.EBUSY: "a mount point cannot be removed or replaced",
}


def pack(files: FileTree, folder: Sequence[str], entries: Iterable[Entry]) -> Iterator[bytes]:
    """Packs the regular files and folders below a folder as a tar archive, in pieces.

    Each file gets the size in its header, even if it changes meanwhile.
    """
    for entry in entries:
        info = tarfile.TarInfo(entry.path)
        info.mtime = entry.modified // 1_000_000_000
        if entry.kind == "directory":
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            yield info.tobuf(tarfile.PAX_FORMAT)
        elif entry.kind == "file":
            pieces = files.pieces([*folder, *entry.path.split("/")], entry.size)
            if pieces is None:
                continue  # deleted meanwhile
            info.size = left = entry.size
            yield info.tobuf(tarfile.PAX_FORMAT)
            for piece in itertools.chain(pieces, itertools.repeat(bytes(_PIECE_BYTES))):
                if left <= 0:
                    break
                yield piece[:left]
                left -= len(piece)
            yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


class Packed(NamedTuple):
    """Entry of an archive."""

    parts: tuple[str, ...]
    is_folder: bool
    start: int
    """Offset of its content in the archive."""
    size: int


def index(archive: bytes, max_bytes: int, max_entries: int) -> list[Packed]:
    """Lists the files and folders in an archive. Hostile headers can take minutes to parse, so run it in a worker.

    Raises:
        FileError: the file is not an archive, is too large, or has an entry that is not allowed.
    """
    entries: list[Packed] = []
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            for info in opened:
                name = info.name
                parts = tuple(part for part in name.split("/") if part not in ("", "."))
                if name.startswith("/") or ".." in parts or "\0" in name:
                    raise FileError(f"{name!r} in the archive leads out of its folder")
                if len(entries) >= max_entries:
                    raise FileError(f"the archive has more than {max_entries:,} entries")
                if not info.isdir() and (not info.isreg() or info.issparse() or not parts):
                    raise FileError(f"{name!r} in the archive is neither a regular file nor a folder")
                size += 0 if info.isdir() else info.size
                if size > max_bytes:
                    raise FileError(f"the archive unpacks to more than {max_bytes:,} bytes")
                if not info.isdir() and not 0 <= info.size <= len(archive) - info.offset_data:
                    raise tarfile.ReadError("unexpected end of data")
                entries.append(Packed(parts, info.isdir(), info.offset_data, info.size))
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        raise FileError(f"this is not a whole tar archive without compression: {error}") from error
    return entries


def unpack(archive: bytes, entries: Iterable[Packed], files: FileTree, folder: Sequence[str]) -> int:
    """Writes the files of an archive, and returns their number.

    Raises:
        OSError: see `FileTree.write`.
    """
    count = 0
    view = memoryview(archive)
    for parts, is_folder, start, size in entries:
        if is_folder:
            files.make_directory([*folder, *parts])
        else:
            files.write([*folder, *parts], _pieces(view[start : start + size]))
            count += 1
    return count


def _pieces(data: memoryview) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield bytes(data[start : start + _PIECE_BYTES])


T = TypeVar("T")

_MAX_PATH_BYTES = 4095
_MAX_NAME_BYTES = 255
MAX_ENTRIES = 100_000
_MOST_LISTED = 1_000
_MOST_NAMES = 1_000
_PAGE_BYTES = mmap.PAGESIZE
"""Size to which file lengths are rounded up, because a file system in memory uses whole pages."""
_INDEX_SECONDS = 10.0
"""Maximum processor seconds for listing an archive. 100,000 entries with PAX headers take three and a half seconds."""
Snapshot = Mapping[str, tuple[int, int, int]]
"""Size, time of change and inode of each file, by path."""


class Tree(NamedTuple):
    """Mount: its path for programs, and its files."""

    path: str
    files: FileTree
    host_writes: bool
    """False for a read-only directory of the host."""
    program_writes: bool
    own: bool
    """True for the session's own file system, whose usage is the session's own."""
    most: Usage | None = None
    """Quota of a scratch directory; None for a directory of the host."""

    def takes(self, size: int) -> int:
        """Returns the bytes of the quota that a file of this length takes, if it has no holes."""
        return -(-size // _PAGE_BYTES) * _PAGE_BYTES if self.own else size

    def over(self, sizes: Iterable[int]) -> str | None:
        """Returns an error if files of these lengths exceed the quota. The kernel's quota omits holes in files."""
        if self.most is None:
            return None
        total = sum(map(self.takes, sizes))
        if total <= self.takes(self.most.bytes):
            return None
        return f"{self.path} can hold {self.most.bytes:,} bytes, and its files are {total:,} bytes long"


class SessionFiles:
    """Reads and changes the files of a session from the host, while programs run or between them.

    Paths are as programs use them; a relative path is in the first writable mount. Links are never followed. Errors are
    `FileError`s with the path.
    """

    def __init__(self, trees: Sequence[Tree], owner: Hashable = None) -> None:
        self._trees = tuple(trees)
        self._owner = owner
        self.host_has_written = any(not tree.own for tree in trees)
        """True if the host might have changed files since the last check."""

    @checked
    async def read_bytes(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        """Reads a file. Returns None if it does not exist.

        Raises:
            FileError: the file is larger than `max_bytes`, or not a regular file.
        """
        tree, parts = self._find(path)
        return await self._run(path, lambda: tree.files.read(parts, max_bytes))

    @checked
    async def read_text(
        self,
        path: str,
        *,
        encoding: str = "utf-8",
        lines: tuple[int, int | None] | None = None,
        max_bytes: int = MAX_READ_BYTES,
    ) -> str | None:
        """Reads a file as text. Returns None if it does not exist.

        `lines` are the first and last line to return, counted from 1; None as the last line stands for the end.

        Raises:
            FileError: see `read_bytes`, or the file is not text in this encoding.
        """
        data = await self.read_bytes(path, max_bytes=max_bytes)
        if data is None:
            return None
        return await decode_text(path, data, encoding, lines)

    @checked
    async def read_stream(self, path: str) -> AsyncIterator[bytes] | None:
        """Reads a file in pieces. Returns None if it does not exist.

        Raises:
            FileError: the path is not a regular file.
        """
        tree, parts = self._find(path)
        pieces = await self._run(path, lambda: tree.files.pieces(parts))
        return None if pieces is None else self._each(path, pieces)

    @checked
    async def write_bytes(self, path: str, data: bytes) -> None:
        """Writes a file, and makes its folders. Programs see either the old or the whole new file.

        Raises:
            FileError: there is no room for the file, or the path is in a read-only directory of the host.
        """
        tree, parts = self._find(path, writes=True)
        await self._run(path, lambda: tree.files.write(parts, (data,)))

    @checked
    async def write_text(self, path: str, text: str, *, encoding: str = "utf-8") -> None:
        """Writes a text as a file. Raises the errors of `write_bytes`."""
        await self.write_bytes(path, encode_text(path, text, encoding))

    @checked
    async def write_stream(self, path: str, pieces: Iterable[bytes]) -> None:
        """Writes a file in pieces. The file is in place once all of them are written. Raises the errors of
        `write_bytes`."""
        tree, parts = self._find(path, writes=True)
        await self._run(path, lambda: tree.files.write(parts, pieces))

    @checked
    async def stat(self, path: str) -> Entry | None:
        """Describes a file or folder; returns None if it does not exist. The entry's `path` is relative to its
        mount."""
        tree, parts = self._find(path)
        return await self._run(path, lambda: tree.files.stat(parts))

    def some_names(self) -> tuple[str, ...]:
        """Returns the names in the working directory, folders with a final slash; none if there are over 1,000."""
        tree, parts = self._find("")
        try:
            entries = tree.files.list(parts, recursive=False, max_entries=_MOST_NAMES) or []
        except OSError:
            return ()
        return tuple(f"{each.path}/" if each.kind == "directory" else each.path for each in entries)

    @checked
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = MAX_ENTRIES
    ) -> list[Entry] | None:
        """Lists a folder, sorted by path. Returns None if it does not exist.

        Raises:
            FileError: the folder has more than `max_entries`.
        """
        tree, parts = self._find(path)
        return await self._run(path, lambda: tree.files.list(parts, recursive=recursive, max_entries=max_entries))

    @checked
    async def mkdir(self, path: str) -> None:
        """Makes a folder and its parents. Raises the errors of `write_bytes`."""
        tree, parts = self._find(path, writes=True)
        await self._run(path, lambda: tree.files.make_directory(parts))

    @checked
    async def delete(self, path: str) -> bool:
        """Removes a file, or a folder with its content. Returns False if it does not exist.

        Raises:
            FileError: the path is a mount itself, or in a read-only directory of the host.
        """
        tree, parts = self._find(path, writes=True)
        if not parts:
            raise FileError(f"{path or tree.path}: a mount itself cannot be deleted; delete its files")
        return await self._run(path, lambda: tree.files.remove(parts))

    async def usage(self) -> Usage:
        """Counts bytes and files of the session's own directories."""
        usages = [tree.files.usage() for tree in self._trees if tree.own]
        return Usage(sum(each.bytes for each in usages), sum(each.files for each in usages))

    @checked
    async def export(self, path: str = "") -> AsyncIterator[bytes]:
        """Packs the files below a folder as a tar archive, in pieces, which `import_tar` accepts.

        Raises:
            FileError: the files of a scratch directory exceed its quota, which is possible with holes or several names
                for one file.
        """
        tree, parts = self._find(path)
        entries = await self.list(path, recursive=True) or ()
        if (reason := tree.over(each.size for each in entries)) is not None:
            raise FileError(f"{path or '.'}: {reason}, so some have holes or several names; delete them")
        return self._each(path, pack(tree.files, parts, entries))

    @checked
    async def import_tar(self, archive: bytes, path: str = "", *, max_bytes: int = MAX_READ_BYTES) -> int:
        """Unpacks an uncompressed tar archive into a folder. Returns the number of files.

        Raises:
            FileError: the file is not an archive, unpacks to more than `max_bytes`, or has an entry that is neither a
                file nor a folder, or whose name is absolute or leads out of the folder. In that case, nothing is
                unpacked.
        """
        tree, parts = self._find(path, writes=True)
        try:
            entries = await run_in_worker(
                index, archive, max_bytes, MAX_ENTRIES, seconds=_INDEX_SECONDS, owner=self._owner
            )
        except WorkerError as error:
            raise FileError(f"the archive cannot be read: {error}") from error
        return await self._run(path, lambda: unpack(archive, entries, tree.files, parts))

    async def snapshot(self) -> Snapshot:
        """Returns the sizes and times of all files that programs can change."""
        states: dict[str, tuple[int, int, int]] = {}
        for tree in self._trees:
            if tree.host_writes:
                entries = await self._run(
                    tree.path, lambda files=tree.files: files.list((), recursive=True, max_entries=MAX_ENTRIES)
                )
                states |= {
                    f"{tree.path}/{each.path}": (each.size, each.modified, each.inode)
                    for each in entries or ()
                    if each.kind == "file"
                }
        return states

    def _find(self, path: str, *, writes: bool = False) -> tuple[Tree, list[str]]:
        """Returns the mount that contains a path, and the names below the mount."""
        parts = parts_of(path)
        if path.startswith("/"):
            location = tree_of(self._trees, parts)
            if location is None:
                raise FileError(f"{path}: not in a mount of this session; the mounts are: {self._names()}")
            tree, parts = location
        else:
            tree = next((each for each in self._trees if each.host_writes), self._trees[0])
        self.host_has_written |= writes
        if writes and not tree.host_writes:
            raise FileError(f"{path}: {tree.path} is a read-only directory of the host; use Mount(..., writable=True)")
        return tree, parts

    def _names(self) -> str:
        return ", ".join(tree.path for tree in self._trees)

    async def _run(self, path: str, work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as error:
            raise FileError(f"{path or '.'}: {_explained(error)}") from error

    async def _each(self, path: str, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (piece := await self._run(path, lambda: next(pieces, None))) is not None:
            yield piece


def parts_of(path: str) -> list[str]:
    """Splits a path into its names.

    Raises:
        FileError: the path is too long, or contains a NUL or `..`.
    """
    if "\0" in path or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise FileError(f"{path[:100]!r}: a path must be at most {_MAX_PATH_BYTES} bytes, without a NUL")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise FileError(f"{path}: '..' is not allowed; name the file itself")
    if any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in parts):
        raise FileError(f"{path[:100]}: a name must be at most {_MAX_NAME_BYTES} bytes")
    return parts


def tree_of(trees: Sequence[Tree], parts: Sequence[str]) -> tuple[Tree, list[str]] | None:
    """Finds the mount that contains an absolute path, and the names below the mount."""
    for tree in trees:
        mount = list(PurePosixPath(tree.path).parts[1:])
        if [*parts[: len(mount)]] == mount:
            return tree, [*parts[len(mount) :]]
    return None


def changes(before: Snapshot, after: Snapshot) -> FileChanges:
    """Returns the files that were created, changed and deleted between two snapshots, sorted."""
    created, deleted = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    changed = sorted(path for path in after.keys() & before.keys() if after[path] != before[path])
    listed = [tuple(map(as_text, paths[:_MOST_LISTED])) for paths in (created, changed, deleted)]
    unlisted = sum(max(0, len(paths) - _MOST_LISTED) for paths in (created, changed, deleted))
    return FileChanges(created=listed[0], changed=listed[1], deleted=listed[2], unlisted=unlisted)


def as_text(path: str) -> str:
    """Makes a path valid text, because programs can choose names that are not UTF-8."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _explained(error: OSError) -> str:
    messages = {
        errno.ENOSPC: "there is no room left in this mount; raise Scratch(bytes=..., files=...)",
        errno.EFBIG: "it is larger than max_bytes",
        errno.ELOOP: "it is a link, or behind one, and links are not followed",
        errno.EINVAL: "it is not a regular file",
    }
    return messages.get(error.errno or 0) or error.strerror or str(error)


class ProgramFiles:
    """Reads and changes files with a program's rights, by absolute paths.

    Methods block. They raise OSError, in which a message that is not the system's explains the reason.
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

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        """Returns up to `size` bytes of a regular file, from an offset."""
        tree, parts = self._find(path)
        self._expect(tree, parts)
        if (data := tree.files.read_part(parts, offset, size)) is None:
            raise _error(errno.ENOENT)
        return data

    def write(
        self, path: str, data: bytes, *, append: bool, offset: int | None = None, exclusive: bool = False
    ) -> None:
        """Writes a file in place, or creates it in an existing folder: see `FileTree.write_in_place`."""
        tree, parts = self._find(path, writes=True)
        with _bounded(f"a file here can have at most {self._file_bytes:,} bytes"):
            tree.files.write_in_place(
                parts, data, append=append, max_bytes=self._file_bytes, offset=offset, exclusive=exclusive
            )

    def expect_file(self, path: str) -> None:
        """Raises an error unless the path is a regular file."""
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

    def remove_all(self, path: str) -> None:
        """Removes a folder with its content."""
        tree, parts = self._find(path, writes=True)
        if not parts:
            raise OSError(errno.EBUSY, "a mount point cannot be removed")
        if not tree.files.remove(parts):
            raise _error(errno.ENOENT)

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
        """Describes a file or folder, without following links."""
        tree, parts = self._find(path)
        entry = tree.files.stat(parts)
        if entry is None:
            raise _error(errno.ENOENT)
        return entry

    def list(self, path: str, *, recursive: bool, max_characters: int = MOST_PATH_CHARACTERS) -> list[Entry]:
        """Lists a folder. Paths are relative to it, and valid text. For `max_characters` see `FileTree.list`."""
        tree, parts = self._find(path)
        entries = tree.files.list(parts, recursive=recursive, max_entries=MAX_ENTRIES, max_characters=max_characters)
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


class FileService:
    """Host service of an execution whose engine sees no directories: the program's requests, as they arrive.

    A request is `[operation, path, ...]`; the answer is a value, or the error as code, text and reason. The processor
    time of all requests is limited to `cpu_seconds`; later ones fail.
    """

    NAME = "$files"

    def __init__(self, files: ProgramFiles, cpu_seconds: float, encode: Callable[[object], EncodedValue]) -> None:
        self._files = files
        self._encode = encode
        self._cpu_seconds = cpu_seconds
        self._used = 0.0
        self._busy = anyio.Lock()

    @property
    def is_out_of_time(self) -> bool:
        return self._used >= self._cpu_seconds

    async def answer(self, request: object) -> EncodedValue:
        """Performs a request. One at a time, so that one program takes one thread. That thread is not in the shared
        pool, where slow directories and sync tools would block each other."""
        async with self._busy:
            return await run_in_own_thread(self._measured, request)

    def _measured(self, request: object) -> EncodedValue:
        start = time.thread_time()
        try:
            answer = self._encode(self._answer(request))
            if len(answer.text) > _ANSWER_BYTES:
                return self._encode({"error": ["E2BIG", "argument list too long", "the list is too long"]})
            return answer
        finally:
            self._used += time.thread_time() - start

    def _answer(self, request: object) -> dict[str, object]:
        try:
            if self.is_out_of_time:
                raise OSError(errno.ETIME, "the program has used up its processor time")
            return {"value": self._perform(request)}
        except OSError as error:
            number = error.errno or errno.EIO
            text = os.strerror(number)
            reason = error.strerror if error.strerror not in (None, text) else PROGRAM_REASONS.get(number, "")
            return {"error": [errno.errorcode.get(number, "EIO"), f"{text[:1].lower()}{text[1:]}", reason]}

    def _perform(self, request: object) -> object:
        files = self._files
        match request:
            case ["stat", str() as path]:
                entry = files.stat(path)
                return [entry.kind, entry.size, entry.modified / 1e6, entry.inode]
            case ["list", str() as path, bool() as recursive]:
                entries = files.list(path, recursive=recursive, max_characters=_ANSWER_BYTES)
                return [[entry.path, entry.kind] for entry in entries]
            case ["read", str() as path, int() as offset, int() as size] if 0 <= offset < _MOST_OFFSET:
                return files.read_part(path, offset, min(max(size, 0), _SERVICE_BYTES))
            case ["write", str() as path, bytes() as data, str() as flag] if flag in _FLAGS:
                files.write(path, data, append=flag[0] == "a", exclusive=flag[1:] == "x")
            case ["write", str() as path, bytes() as data, int() as offset] if 0 <= offset < _MOST_OFFSET:
                files.write(path, data, append=False, offset=offset)
            case ["mkdir", str() as path, bool() as parents]:
                files.make_directory(path, parents=parents, exist_ok=parents)
            case ["remove", str() as path, "tree"]:
                files.remove_all(path)
            case ["remove", str() as path, "file"]:
                files.remove(path, directory=False)
            case ["remove", str() as path, "directory"]:
                files.remove(path, directory=True)
            case ["rename", str() as path, str() as target]:
                files.rename(path, target)
            case _:
                raise _error(errno.EINVAL)
        return None

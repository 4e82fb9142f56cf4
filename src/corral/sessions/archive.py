"""Files of a session as a tar archive."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from corral.errors import FileError
from corral.sessions.tree import Entry, FileTree

_PIECE_BYTES = 1 << 18


def pack(files: FileTree, folder: Sequence[str], entries: Iterable[Entry]) -> Iterator[bytes]:
    """The regular files and folders of a folder as a tar archive, piece by piece.

    A file has the size that its entry says, whatever becomes of it meanwhile.
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
                continue  # it is gone by now
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
    """An entry of an archive."""

    parts: tuple[str, ...]
    is_folder: bool
    start: int
    """Offset of its content in the archive."""
    size: int


def index(archive: bytes, max_bytes: int, max_entries: int) -> list[Packed]:
    """Finds the files and folders in an archive. Its headers may take `tarfile` minutes, so it is for a worker.

    Raises:
        FileError: it is not an archive, has too much in it, or an entry that is not allowed.
    """
    found: list[Packed] = []
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            for info in opened:
                name = info.name
                parts = tuple(part for part in name.split("/") if part not in ("", "."))
                if name.startswith("/") or ".." in parts or "\0" in name:
                    raise FileError(f"{name!r} in the archive leads out of its folder")
                if len(found) >= max_entries:
                    raise FileError(f"the archive has more than {max_entries:,} entries")
                if not info.isdir() and (not info.isreg() or info.issparse() or not parts):
                    raise FileError(f"{name!r} in the archive is neither a regular file nor a folder")
                size += 0 if info.isdir() else info.size
                if size > max_bytes:
                    raise FileError(f"the archive unpacks to more than {max_bytes:,} bytes")
                if not info.isdir() and not 0 <= info.size <= len(archive) - info.offset_data:
                    raise tarfile.ReadError("unexpected end of data")
                found.append(Packed(parts, info.isdir(), info.offset_data, info.size))
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        raise FileError(f"this is not a whole tar archive without compression: {error}") from error
    return found


def unpack(archive: bytes, entries: Iterable[Packed], files: FileTree, folder: Sequence[str]) -> int:
    """Writes the files of an archive, and returns how many.

    Raises:
        OSError: as `FileTree.write`.
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

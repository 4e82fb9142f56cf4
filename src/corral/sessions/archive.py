"""Files of a session as a tar archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence

from corral.errors import FileError
from corral.sessions.tree import Entry, FileTree

__all__ = ["pack", "unpack"]

_PIECE_BYTES = 1 << 18


class _Sink(io.RawIOBase):
    """File for an archive: it gives away what it has been given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
        self.pieces.append(piece)
        return len(piece)

    def taken(self) -> bytes:
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)


def pack(files: FileTree, folder: Sequence[str], entries: Iterable[Entry]) -> Iterator[bytes]:
    """The regular files and folders of a folder as a tar archive, one piece for each."""
    sink = _Sink()
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mtime = entry.modified // 1_000_000_000
            if entry.kind == "directory":
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            elif entry.kind == "file":
                data = files.read([*folder, *entry.path.split("/")], entry.size + _PIECE_BYTES)
                if data is None:
                    continue  # it is gone by now
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            if piece := sink.taken():
                yield piece
    yield sink.taken()


def unpack(archive: bytes, files: FileTree, folder: Sequence[str], *, max_bytes: int, max_files: int) -> int:
    """Writes the files of an archive, and returns how many.

    Raises:
        FileError: it is none, has too much in it, or an entry that is not allowed.
        OSError: as `FileTree.write`.
    """
    count = size = entries = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r|") as opened:
            for info in opened:
                entries += 1
                name = info.name
                parts = [part for part in name.split("/") if part not in ("", ".")]
                if name.startswith("/") or ".." in parts or "\0" in name:
                    raise FileError(f"{name!r} in the archive leads out of its folder")
                if entries > max_files:
                    raise FileError(f"the archive has more than {max_files:,} entries")
                if info.isdir():
                    files.make_directory([*folder, *parts])
                    continue
                if not info.isreg() or not parts:
                    raise FileError(f"{name!r} in the archive is no regular file and no folder")
                size += info.size
                if size > max_bytes:
                    raise FileError(f"the archive unpacks to more than {max_bytes:,} bytes")
                content = opened.extractfile(info)
                assert content is not None
                files.write([*folder, *parts], iter(lambda content=content: content.read(_PIECE_BYTES), b""))
                count += 1
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise FileError(f"this is no tar archive without compression, or only a part of one: {error}") from error
    return count

"""The contract of a shell's files."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

from corral.errors import FileError
from corral.sessions.text_files import MAX_READ_BYTES, decode_text, encode_text

__all__ = ["FileInfo", "FileKind", "Files", "expect_deletable", "sorted_entries"]

FileKind: TypeAlias = Literal["file", "directory", "link", "other"]

_STREAM_BYTES = 1 << 16


class FileInfo(NamedTuple):
    """A file or folder. `path` is as it was asked for, or relative to the listed folder; `size` is in bytes."""

    path: str
    kind: FileKind
    size: int


class Files(ABC):
    """Files of a shell. A relative path is below its working directory; `FileError` has the path and the reason.

    What is not there is None, or False for `delete`. Writing makes the folders of a path and replaces a file; writing
    to a folder is an error. `stat` and reading follow links where a shell has them; `delete` removes the link itself.
    """

    @abstractmethod
    async def read_binary(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        """Reads a file.

        Raises:
            FileError: it is larger than `max_bytes`, or no regular file.
        """

    @abstractmethod
    async def write_binary(self, path: str, data: bytes) -> None:
        """Writes a file, and the folders that it is in.

        Raises:
            FileError: it is a folder, there is no room, or it may not be written.
        """

    @abstractmethod
    async def stat(self, path: str) -> FileInfo | None:
        """Describes a file or folder; of a link, its target."""

    @abstractmethod
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        """Lists a folder, sorted by path. Links are listed as such, and not followed.

        Raises:
            FileError: it is no folder, or has more than `max_entries`.
        """

    @abstractmethod
    async def make_directory(self, path: str) -> None:
        """Makes a folder, and those that it is in. One that is there stays."""

    @abstractmethod
    async def delete(self, path: str) -> bool:
        """Removes a file, a link, or a folder with all that is in it. False: there was none.

        Raises:
            FileError: it is the working directory itself or one above it, or it may not be removed.
        """

    async def read_text(
        self,
        path: str,
        *,
        encoding: str = "utf-8",
        lines: tuple[int, int | None] | None = None,
        max_bytes: int = MAX_READ_BYTES,
    ) -> str | None:
        """Reads a file as text. `lines` are the first and the last to return, from 1; None as the last is the end.

        Raises:
            FileError: as `read_binary`, or it is not text in this encoding.
        """
        data = await self.read_binary(path, max_bytes=max_bytes)
        if data is None:
            return None
        return await decode_text(path, data, encoding, lines)

    async def write_text(self, path: str, text: str, *, encoding: str = "utf-8") -> None:
        """Writes a text as a file. Raises as `write_binary`."""
        await self.write_binary(path, encode_text(path, text, encoding))

    async def read_stream(self, path: str) -> AsyncIterator[bytes] | None:
        """Reads a file piece by piece. Raises as `read_binary`.

        A shell whose service has no streams reads the file whole, up to `MAX_READ_BYTES`.
        """
        data = await self.read_binary(path)
        return None if data is None else _pieces(data)

    async def write_stream(self, path: str, pieces: AsyncIterable[bytes]) -> None:
        """Writes a file piece by piece; it is in place once all of them are there. Raises as `write_binary`."""
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > MAX_READ_BYTES:
                raise FileError(f"{path}: more than {MAX_READ_BYTES} bytes; this shell takes a file at once")
        await self.write_binary(path, bytes(data))


def expect_deletable(path: str) -> None:
    """Checks that a path names something below a folder.

    Raises:
        FileError: it is the working directory, the root, or one above.
    """
    if posixpath.normpath(path).strip("./") == "":
        raise FileError(f"{path or '.'}: the working directory and what is above it stay; delete what is in it")


def sorted_entries(path: str, entries: Iterable[FileInfo], max_entries: int) -> list[FileInfo]:
    """Returns the entries of a folder by their paths.

    Raises:
        FileError: there are more than `max_entries`.
    """
    found = sorted(islice(entries, max_entries + 1))
    if len(found) > max_entries:
        raise FileError(f"{path or '.'}: there are more than max_entries={max_entries}")
    return found


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _STREAM_BYTES):
        yield data[start : start + _STREAM_BYTES]

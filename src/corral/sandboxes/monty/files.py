"""Monty's requests for files, answered from a session's."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic_monty import MontyFileHandle, ScanEntry, StatResult

from corral.sessions import Entry, ProgramFiles
from corral.sessions.text_files import MAX_READ_BYTES

_MAX_SHOWN = 200
_REASONS = {
    errno.ENOSPC: "there is no room left in this mount",
    errno.ELOOP: "it is a link, or behind one, and links are not followed",
    errno.EINVAL: "it is no regular file, or is to be moved into itself",
    errno.EBUSY: "a mount itself stays",
}


class MontyFiles:
    """Serves a program; without files of a session, each request is refused. Paths come without `..`, and absolute."""

    def __init__(self, files: ProgramFiles | None, memory_bytes: int) -> None:
        self._files = files
        self._max_bytes = min(MAX_READ_BYTES, memory_bytes)
        self.home = None if files is None else files.home

    def call(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Does what Monty asks for, by the name that it has for it.

        Raises:
            OSError, ValueError, TypeError: as the program gets it.
        """
        path = _path(arguments[0])
        if self._files is None:
            text = "programs in no session have no files; call a tool that reads or writes"
            raise PermissionError(f"[Errno {errno.EACCES}] Permission denied: {path[:_MAX_SHOWN]!r}: {text}")
        try:
            return self._read(self._files, name, path, options, arguments[1:])
        except OSError as error:
            raise _for_program(error, path) from None

    def _read(
        self, files: ProgramFiles, name: str, path: str, options: Mapping[str, Any], others: Sequence[Any]
    ) -> Any:
        match name:
            case "Path.exists":
                return files.kind(path) not in (None, "link")
            case "Path.is_file":
                return files.kind(path) == "file"
            case "Path.is_dir":
                return files.kind(path) == "directory"
            case "Path.is_symlink":
                return files.kind(path) == "link"
            case "Path.read_text":
                return files.read(path, self._max_bytes).decode()
            case "Path.read_bytes":
                return files.read(path, self._max_bytes)
            case "Path.stat":
                return _stat(files.stat(path))
            case "Path.iterdir":
                return [PurePosixPath(path, each.path) for each in files.list(path, recursive=False)]
            case "Path.scan":
                return _scan(files, path, options.get("max_depth"))
            case "Path.resolve" | "Path.absolute":
                return PurePosixPath(path)
            case _:
                return _write(files, name, path, options, others)


def _write(files: ProgramFiles, name: str, path: str, options: Mapping[str, Any], others: Sequence[Any]) -> Any:
    match name, others:
        case "open", (str() as mode,):
            handle = MontyFileHandle(path, mode)
            if handle.writable:
                files.write(path, b"", append=handle.mode.startswith("a"))
            else:
                files.expect_file(path)
            return handle
        case (("Path.write_text" | "Path.append_text"), (str() as text,)):
            files.write(path, text.encode(), append="append" in name)
            return len(text)
        case (("Path.write_bytes" | "Path.append_bytes"), (bytes() as data,)):
            files.write(path, data, append="append" in name)
            return len(data)
        case "Path.mkdir", ():
            files.make_directory(path, parents=bool(options.get("parents")), exist_ok=bool(options.get("exist_ok")))
        case "Path.unlink", ():
            files.remove(path, directory=False)
        case "Path.rmdir", ():
            files.remove(path, directory=True)
        case "Path.rename", (target,):
            files.rename(path, _path(target))
        case _:
            raise OSError(errno.ENOSYS, f"Monty has no {name}; CPythonSandbox has")
    return None


def _scan(files: ProgramFiles, path: str, depth: int | None) -> list[ScanEntry]:
    """A folder, or a file, and what is below it, so many levels deep."""
    top = files.stat(path)
    entries = [_scanned("", top)]
    if top.kind == "directory" and depth != 0:
        below = files.list(path, recursive=depth != 1)
        entries += [_scanned(each.path, each) for each in below if depth is None or each.path.count("/") < depth]
    return entries


def _scanned(path: str, entry: Entry) -> ScanEntry:
    return ScanEntry(path, entry.kind == "directory", entry.kind == "file", entry.kind == "link")


def _stat(entry: Entry) -> StatResult:
    formats = {"file": stat.S_IFREG | 0o644, "directory": stat.S_IFDIR | 0o755, "link": stat.S_IFLNK | 0o777}
    seconds = entry.modified / 1e9
    return StatResult(formats.get(entry.kind, 0), entry.inode, 0, 1, 0, 0, entry.size, seconds, seconds, seconds)


def _path(argument: Any) -> str:
    return argument.path if isinstance(argument, MontyFileHandle) else str(argument)


def _for_program(error: OSError, path: str) -> OSError:
    """The error with the text that a program sees: exceptions in Monty have nothing else."""
    number = error.errno or 0
    said = os.strerror(number)
    reason = _REASONS.get(number, "") if error.strerror in (said, None) else error.strerror
    return type(error)(f"[Errno {number}] {said}: {path[:_MAX_SHOWN]!r}{f': {reason}' if reason else ''}")

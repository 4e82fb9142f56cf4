"""Files of a shell by its own commands: bash, coreutils and find, for services whose file interfaces differ."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from typing_extensions import override

from corral.errors import FileError, ShellLost
from corral.sessions.shell import FileInfo, FileKind, Files, expect_deletable, sorted_entries
from corral.sessions.text_files import MAX_READ_BYTES

if TYPE_CHECKING:
    from corral.sessions.shell import Completed, Shell

_MISSING = 44
_LIST_BYTES = 50_000_000
_FIND_KINDS: dict[str, FileKind] = {"f": "file", "d": "directory", "l": "link"}
_STAT_KINDS: dict[str, FileKind] = {"regular file": "file", "regular empty file": "file", "directory": "directory"}


class CommandFiles(Files):
    """Files that commands of a shell read and write, as base64: output and input need only carry text."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    @override
    async def read_binary(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        done = await self._run(
            path,
            f'[ -e "$p" ] || exit {_MISSING}; [ -f "$p" ] || {{ echo "no regular file" >&2; exit 1; }}; '
            f'[ "$(stat -L -c %s -- "$p")" -le {max_bytes} ] || {{ echo "larger than {max_bytes} bytes" >&2; exit 1; }}'
            "; "
            'base64 -w0 < "$p"',
            output_bytes=max_bytes * 4 // 3 + 4,
        )
        if done is None:
            return None
        with _answer(path):
            return base64.b64decode(done.stdout.strip(), validate=True)

    @override
    async def write_binary(self, path: str, data: bytes) -> None:
        await self._run(
            path,
            '[ ! -d "$p" ] || { echo "it is a folder" >&2; exit 1; }; '
            'mkdir -p -- "$(dirname -- "$p")" && base64 -d > "$p"',
            input=base64.b64encode(data),
        )

    @override
    async def stat(self, path: str) -> FileInfo | None:
        done = await self._run(path, f'[ -e "$p" ] || exit {_MISSING}; stat -L -c "%s %F" -- "$p"')
        if done is None:
            return None
        size, _, kind = done.stdout.strip().partition(" ")
        with _answer(path):
            return FileInfo(path, _STAT_KINDS.get(kind, "other"), _size(size))

    @override
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        depth = "" if recursive else "-maxdepth 1"
        done = await self._run(
            path or ".",
            f'[ -e "$p" ] || exit {_MISSING}; [ -d "$p" ] || {{ echo "no folder" >&2; exit 1; }}; '
            f'find -H "$p" -mindepth 1 {depth} -printf "%y %s %P\\0" | head -z -n {max_entries + 1} | base64 -w0',
            output_bytes=_LIST_BYTES,
        )
        if done is None:
            return None
        if done.truncated:
            raise FileError(f"{path}: the list is larger than {_LIST_BYTES} bytes")
        with _answer(path):
            lines = base64.b64decode(done.stdout.strip(), validate=True).decode(errors="replace").split("\0")[:-1]
            return sorted_entries(path, map(_entry, lines), max_entries)

    @override
    async def make_directory(self, path: str) -> None:
        await self._run(path, 'mkdir -p -- "$p"')

    @override
    async def delete(self, path: str) -> bool:
        expect_deletable(path)
        done = await self._run(path, f'[ -e "$p" ] || [ -L "$p" ] || exit {_MISSING}; rm -rf -- "$p"')
        return done is not None

    async def _run(
        self, path: str, script: str, *, input: bytes | None = None, output_bytes: int = 64_000
    ) -> Completed | None:
        """Runs a script with the path in `$p`. None: there is no such file."""
        if "\0" in path:
            raise FileError(f"{path!r}: a path has no NUL")
        full = path if path.startswith("/") else f"./{path}"
        done = await self._shell.run(
            f"p={shlex.quote(full)}; {script}", input=input, output_bytes=output_bytes, timeout_seconds=None
        )
        if done.exit_code == _MISSING:
            return None
        if done.exit_code != 0:
            _fail(path, done)
        return done


@contextmanager
def _answer(path: str) -> Generator[None]:
    """Reads an answer of the computer, which may be hostile.

    Raises:
        ShellLost: it is not an answer of the command.
    """
    try:
        yield
    except ValueError as error:
        raise ShellLost(f"{path or '.'}: the computer answered with something else than the file: {error}") from error


def _entry(line: str) -> FileInfo:
    kind, size, name = line.split(" ", 2)
    if name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"{name[:100]!r} is not the name of a file in the folder")
    return FileInfo(name, _FIND_KINDS.get(kind, "other"), _size(size))


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text[:100]!r} is not a size")
    return int(text)


def _fail(path: str, done: Completed) -> NoReturn:
    raise FileError(f"{path}: {(done.stderr or done.stdout).strip()[-300:] or 'failed'}")

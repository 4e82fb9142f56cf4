"""`LocalShell`: commands and files of the current user on this machine, without any containment."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.descriptors import await_readable, process_descriptor, reap
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import ContainmentKind
from corral.errors import ConfigError, FileError
from corral.sessions.shell import (
    FileInfo,
    FileKind,
    Files,
    Process,
    Shell,
    ShellCapabilities,
    expect_deletable,
    sorted_entries,
)
from corral.sessions.text_files import MAX_READ_BYTES
from corral.shells.processes import MARK, PipeProcess, checked_environment, expect_command

T = TypeVar("T")

_READ_BYTES = 1 << 16
_ROUNDS = 1000


class LocalShell(Shell):
    """Bash on this machine, in a directory. Commands can do whatever this process's user can do.

    It isolates nothing. Commands get PATH, HOME, LANG and `env` or, with `inherit_env`, this process's whole
    environment. When a command ends, so do its descendants. On Linux, these include descendants that left its process
    group, unless they have cleared their environment and their parent has ended.

    Raises:
        ConfigError: the directory or bash is missing.
    """

    @checked
    def __init__(
        self, directory: str | Path, *, env: Mapping[str, str] | None = None, inherit_env: bool = False
    ) -> None:
        self.directory = Path(directory).resolve()
        if not self.directory.is_dir():
            raise ConfigError(f"LocalShell: there is no directory {str(directory)!r}")
        bash = shutil.which("bash")
        if bash is None:
            raise ConfigError("LocalShell: there is no bash; install it")
        self._bash = bash
        kept = (
            os.environ if inherit_env else {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        )
        # An edit of a source within a second that keeps its size would leave stale bytecode.
        self._env = {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **kept, **checked_environment(env or {})}
        self._files = _LocalFiles(self.directory)
        self._live: set[_LocalProcess] = set()
        self._closed = False
        self.description = f"Bash on the user's own machine, without containment; working directory {self.directory}."

    @property
    @override
    def files(self) -> Files:
        return self._files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(containment=ContainmentKind.of_tier("none"), ends_every_process=False)

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        expect_command(command, cwd)
        if self._closed:
            raise ConfigError("this shell is closed; open another one")
        folder = self.directory / (cwd or "")
        if not await anyio.Path(folder).is_dir():
            raise FileError(f"{cwd}: there is no such folder to run the command in")
        mark = uuid.uuid4().hex
        variables = {**self._env, **checked_environment(env or {}), MARK: mark}

        def start() -> _LocalProcess:
            started = subprocess.Popen(
                [self._bash, "-c", "--", command],
                cwd=folder,
                env=variables,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            return _LocalProcess(started, mark)

        self._live = {each for each in self._live if not each.ended}
        process = await run_shielded_in_thread(start)
        if self._closed:
            with anyio.CancelScope(shield=True):
                await process.aclose()
            raise ConfigError("this shell is closed; open another one")
        self._live.add(process)
        return process

    @override
    async def aclose(self) -> None:
        self._closed = True
        for process in [*self._live]:
            await process.aclose()
        self._live.clear()


class _LocalProcess(PipeProcess):
    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        stdin = None if process.stdin is None else os.dup(process.stdin.fileno())
        super().__init__(stdin, os.dup(process.stdout.fileno()), os.dup(process.stderr.fileno()))
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        self.pid = process.pid
        self._process = process
        self._mark = mark
        self._cleared = False
        self._waiting = anyio.Lock()

    @property
    def ended(self) -> bool:
        return self._cleared

    @override
    async def wait(self) -> int:
        async with self._waiting:
            if not self._cleared:
                await _exited(self._process.pid)
                await run_shielded_in_thread(self._clear)
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    @override
    async def kill(self) -> None:
        if not self._cleared:
            await run_shielded_in_thread(self.end)
            await self.wait()

    @override
    def end(self) -> None:
        if not self._cleared:
            _end_tree(self._process.pid, self._mark)

    def _clear(self) -> None:
        """Ends the command's descendants before its process number can be reused."""
        left = _end_tree(self._process.pid, self._mark)
        self._process.wait()
        for each in (-self._process.pid, *left):
            reap(each)
        self._cleared = True


class _LocalFiles(Files):
    """Files by their paths on the host. Follows links."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @override
    async def read_bytes(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        def read() -> bytes | None:
            descriptor = self._opened(path)
            if descriptor is None:
                return None
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(max_bytes + 1)
            if len(data) > max_bytes:
                raise FileError(f"{path}: it is larger than max_bytes={max_bytes}")
            return data

        return await self._run(path, read)

    @override
    async def read_stream(self, path: str) -> AsyncIterator[bytes] | None:
        descriptor = await self._run(path, lambda: self._opened(path))
        return None if descriptor is None else _pieces(descriptor)

    @override
    async def write_bytes(self, path: str, data: bytes) -> None:
        def write() -> None:
            target = self._home / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(self._open(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
                file.truncate()
                file.write(data)

        await self._run(path, write)

    @override
    async def stat(self, path: str) -> FileInfo | None:
        def stat() -> FileInfo | None:
            target = self._home / path
            try:
                status = target.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            kind: FileKind = "directory" if target.is_dir() else "file" if target.is_file() else "other"
            return FileInfo(path, kind, status.st_size)

        return await self._run(path, stat)

    @override
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        def list_() -> list[FileInfo] | None:
            folder = self._home / path
            if not os.path.lexists(folder):
                return None
            return sorted_entries(path, _entries(folder, recursive=recursive), max_entries)

        return await self._run(path, list_)

    @override
    async def mkdir(self, path: str) -> None:
        await self._run(path, lambda: (self._home / path).mkdir(parents=True, exist_ok=True))

    @override
    async def delete(self, path: str) -> bool:
        expect_deletable(path)

        def delete() -> bool:
            target = self._home / path
            if not os.path.lexists(target):
                return False
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink()
            return True

        return await self._run(path, delete)

    def _opened(self, path: str) -> int | None:
        """Opens a regular file for reading; returns None if it does not exist."""
        try:
            return self._open(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _open(self, path: str, flags: int) -> int:
        """Opens a regular file. Does not block on a FIFO."""
        try:
            descriptor = os.open(self._home / path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a FIFO without a reader: open(2)
                raise
            raise FileError(f"{path}: it is not a regular file") from error
        if not Path(f"/dev/fd/{descriptor}").is_file():
            os.close(descriptor)
            raise FileError(f"{path}: it is not a regular file")
        return descriptor

    async def _run(self, path: str, work: Callable[[], T]) -> T:
        if "\0" in path:
            raise FileError(f"{path[:100]!r}: a path cannot contain a NUL")
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as error:
            raise FileError(f"{path or '.'}: {error.strerror or error}") from error


def _entries(folder: Path, *, recursive: bool) -> Iterator[FileInfo]:
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                kind: FileKind = "other"
                if entry.is_symlink():
                    kind = "link"
                elif entry.is_dir(follow_symlinks=False):
                    kind = "directory"
                    if recursive:
                        pending.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    kind = "file"
                name = str(Path(entry.path).relative_to(folder))
                yield FileInfo(name, kind, entry.stat(follow_symlinks=False).st_size)


async def _pieces(descriptor: int) -> AsyncIterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while piece := await anyio.to_thread.run_sync(file.read, _READ_BYTES):
            yield piece


async def _exited(pid: int) -> None:
    """Waits until a child has ended, without reaping it, so that its number is not reused."""
    if (descriptor := process_descriptor(pid)) is not None:
        try:
            await anyio.wait_readable(descriptor)
        finally:
            anyio.notify_closing(descriptor)
            os.close(descriptor)
    else:
        await anyio.to_thread.run_sync(
            lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT), abandon_on_cancel=True
        )


def _end_tree(pid: int, mark: str) -> set[int]:
    """Kills an unreaped child, its process group, and descendants that left it, until none remain.

    Descendants are stopped before any is killed. Otherwise a script would continue when its child ends. Returns those
    outside the group, which are then children of process 1.
    """
    left: set[int] = set()
    for _ in range(_ROUNDS):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        descendants = _marked(mark) - {pid} if sys.platform == "linux" else set[int]()
        if not descendants:
            break
        left |= descendants
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in descendants:
                _send(each, mark, number)
    return left


def _marked(mark: str) -> set[int]:
    """Returns running processes that have this mark in their environment (proc_pid_environ(5))."""
    pids: set[int] = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _has_mark(path, mark):
            pids.add(int(path.name))
    return pids


def _has_mark(process: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _send(pid: int, mark: str, number: signal.Signals) -> None:
    """Signals a process if it still has the mark, because its number might have been reused. After SIGKILL, waits for
    its end."""
    with suppress(ProcessLookupError, PermissionError):
        descriptor = process_descriptor(pid)
        try:
            if not _has_mark(Path(f"/proc/{pid}"), mark):
                return
            if descriptor is None:
                os.kill(pid, number)
                return
            signal.pidfd_send_signal(descriptor, number)
            if number == signal.SIGKILL:
                await_readable(descriptor, 1.0)
        finally:
            if descriptor is not None:
                os.close(descriptor)

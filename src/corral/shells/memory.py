"""`MemoryShell`: an interpreter of bash and files, both in memory."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.event_loop import asyncio_loop
from corral.errors import ConfigError, FileError, MissingExtra, ShellError
from corral.isolation import Isolation
from corral.sessions.text_files import MAX_READ_BYTES
from corral.shells.base import Process, Shell, ShellCapabilities
from corral.shells.environment import checked_environment, expect_command
from corral.shells.files import FileInfo, FileKind, Files, expect_deletable, sorted_entries
from corral.shells.pushed import PushedProcess

if TYPE_CHECKING:
    from bashkit import Bash, BuiltinContext, BuiltinResult, FileSystem

__all__ = ["MemoryShell"]

T = TypeVar("T")

_HOME = "/workspace"
_FOLDERS = (_HOME, "/tmp", "/dev")  # noqa: S108
_FILE_BYTES = 10_000_000
_VARIABLE_BYTES = 10_000_000
_ENDLESS = ("jq", "yq", "tomlq")
"""Commands that compute on after they were cancelled, and keep those of all shells waiting."""
_KINDS: Mapping[str, FileKind] = {"file": "file", "directory": "directory", "symlink": "link"}


class MemoryShell(Shell):
    """Bash that a library interprets in this process, with files in its memory: nothing of the host is there.

    It has commands such as cat, grep, sed, awk, find, sort and tar, and no programs: no git, no Python. There is no
    network, and no standard input. It works on asyncio only.

    A command ends after `command_seconds`, or `command_steps` commands and turns of loops. At most `commands` run at
    the same time. Files have 10 MB each and 100 MB together, and there are 10,000 of them.

    Raises:
        MissingExtra: bashkit is not installed.
        ConfigError: a bound is not positive.
    """

    @checked
    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        command_seconds: float = 60.0,
        command_steps: int = 100_000,
        commands: int = 16,
    ) -> None:
        if min(command_seconds, command_steps, commands) <= 0:
            raise ConfigError("MemoryShell: command_seconds, command_steps and commands must be positive")
        try:
            self._bashkit = import_module("bashkit")
        except ImportError as error:
            raise MissingExtra("MemoryShell needs bashkit: pip install 'corral[bashkit]'") from error
        self._env = {"HOME": _HOME, **checked_environment(env or {})}
        self._seconds = command_seconds
        self._steps = command_steps
        self._commands = commands
        self._running: set[_MemoryProcess] = set()
        self._closed = False
        self._system: FileSystem = self._bashkit.FileSystem()
        for entry in self._system.read_dir("/"):
            if f"/{entry['name']}" not in _FOLDERS:
                self._system.remove(f"/{entry['name']}", recursive=True)
        self._system.mkdir(_HOME)
        self._files = _MemoryFiles(self._system)
        self.description = (
            f"An interpreter of bash with the usual text tools and files in memory, below {_HOME}. It has no programs "
            f"such as git, python3 or jq, no network, and no processes."
        )

    @property
    @override
    def files(self) -> Files:
        return self._files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(
            isolation=Isolation("memory", "interpreter"),
            stdin=False,
            network="none",
            large_output=False,
            binary_output=False,
            many_files=False,
            links=False,
            control_names=False,
            real_processes=False,
        )

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        if stdin:
            raise ConfigError("MemoryShell has no standard input for commands; write a file, and read it there")
        expect_command(command, cwd)
        if self._closed:
            raise ConfigError("this shell is closed")
        variables = {**self._env, **checked_environment(env or {})}
        if asyncio_loop() is None:
            raise ConfigError("MemoryShell works on asyncio only, not on this event loop")
        folder = posixpath.join(_HOME, cwd or "")
        found = await self._files.stat(folder)
        if found is None or found.kind != "directory":
            raise FileError(f"{cwd}: there is no such folder to run the command in")
        self._running = {each for each in self._running if not each.ended}
        if len(self._running) >= self._commands:
            raise ShellError(
                f"{self._commands} commands run in this MemoryShell already; wait for one, or raise commands="
            )
        bash: Bash = self._bashkit.Bash(
            cwd=posixpath.normpath(folder),
            env=variables,
            timeout_seconds=self._seconds,
            max_commands=self._steps,
            max_loop_iterations=self._steps,
            max_memory=_VARIABLE_BYTES,
            custom_builtins=dict.fromkeys(_ENDLESS, partial(_absent, self._bashkit.BuiltinResult)),
        )
        bash.mount("/", self._system)
        process = _MemoryProcess(bash, command)
        self._running.add(process)
        return process

    @override
    async def aclose(self) -> None:
        self._closed = True
        for process in self._running:
            await process.aclose()
        self._running.clear()


def _absent(result: type[BuiltinResult], context: BuiltinContext) -> BuiltinResult:
    return result("", f"bash: {context.name}: command not found\n", 127)


class _MemoryProcess(PushedProcess):
    def __init__(self, bash: Bash, command: str) -> None:
        super().__init__("the interpreter", stdin=False)
        self._bash = bash
        self._work = asyncio.ensure_future(self._run(command))

    async def _run(self, command: str) -> None:
        try:
            done = await self._bash.execute(
                command, stdout=partial(self.take, "stdout"), stderr=partial(self.take, "stderr")
            )
            if done.stdout_truncated or done.stderr_truncated:
                await self.take("stderr", b"bash: what is over 1 MiB of an output was left out\n")
            if done.error is not None:  # a bound, or a fault of the syntax
                await self.take("stderr", f"bash: {done.error}\n".encode())
            self.finish(done.exit_code)
        except BaseException as error:
            self.finish(None, error)
            if not isinstance(error, Exception):
                raise

    @override
    async def feed(self, data: bytes) -> None:
        raise AssertionError("there is no standard input")

    @override
    async def close_stdin(self) -> None:
        """Does nothing: there is none."""

    @override
    async def kill(self) -> None:
        self.discard()
        if not self.ended:
            self._bash.cancel()
            self._work.cancel()
            await asyncio.wait([self._work])
            self.finish(None)  # it may not have begun


class _MemoryFiles(Files):
    """Files of an interpreter. Its calls wait for commands at work on the same ones, so threads make them."""

    def __init__(self, system: FileSystem) -> None:
        self._system = system

    @override
    async def read_binary(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        def read(full: str) -> bytes | None:
            found = self._described(full)
            if found is None:
                return None
            if found["file_type"] != "file":
                raise FileError(f"{path}: it is no regular file, but a {found['file_type']}")
            if found["size"] > max_bytes:
                raise FileError(f"{path}: it is larger than max_bytes={max_bytes}")
            return self._system.read_file(full)

        return await self._run(path, read)

    @override
    async def write_binary(self, path: str, data: bytes) -> None:
        def write(full: str) -> None:
            if len(data) > _FILE_BYTES:
                raise FileError(f"{path}: a file of this shell has {_FILE_BYTES} bytes at most")
            self._system.mkdir(posixpath.dirname(full), recursive=True)
            self._system.write_file(full, data)

        await self._run(path, write)

    @override
    async def stat(self, path: str) -> FileInfo | None:
        def stat(full: str) -> FileInfo | None:
            found = self._described(full)
            return None if found is None else FileInfo(path, _kind(found), found["size"])

        return await self._run(path, stat)

    @override
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        def list_(full: str) -> list[FileInfo] | None:
            if self._described(full) is None:
                return None
            return sorted_entries(path, self._entries(full, "", recursive=recursive), max_entries)

        return await self._run(path, list_)

    @override
    async def make_directory(self, path: str) -> None:
        await self._run(path, lambda full: self._system.mkdir(full, recursive=True))

    @override
    async def delete(self, path: str) -> bool:
        expect_deletable(path)

        def delete(full: str) -> bool:
            found = self._described(full)
            if found is None:
                return False
            if full == _HOME or _HOME.startswith(full.rstrip("/") + "/"):
                raise FileError(f"{path}: the working directory and what is above it stay; delete what is in it")
            self._system.remove(full, recursive=found["file_type"] == "directory")
            return True

        return await self._run(path, delete)

    def _described(self, full: str) -> dict[str, Any] | None:
        try:
            return self._system.stat(full)
        except RuntimeError:  # it has no other kind of errors
            return None

    def _entries(self, folder: str, prefix: str, *, recursive: bool) -> Iterator[FileInfo]:
        for entry in self._system.read_dir(folder):
            name, found = entry["name"], entry["metadata"]
            yield FileInfo(prefix + name, _kind(found), found["size"])
            if recursive and found["file_type"] == "directory":
                yield from self._entries(f"{folder}/{name}", f"{prefix}{name}/", recursive=True)

    async def _run(self, path: str, work: Callable[[str], T]) -> T:
        if "\0" in path:
            raise FileError(f"{path[:100]!r}: a path has no NUL")
        full = posixpath.normpath(posixpath.join(_HOME, path))
        try:
            return await anyio.to_thread.run_sync(work, full)
        except RuntimeError as error:
            raise FileError(f"{path or '.'}: {str(error).removeprefix('io error: ')}") from error


def _kind(found: Mapping[str, Any]) -> FileKind:
    return _KINDS.get(found["file_type"], "other")

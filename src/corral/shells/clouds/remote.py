"""Shells on cloud services. Their commands have no process here, and are found by a mark in their environment."""

from __future__ import annotations

import base64
import shlex
import uuid
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import ClassVar, NoReturn, cast

import anyio
from typing_extensions import override

from corral.errors import ConfigError, FileError, ShellLost
from corral.sessions.shell import Completed, FileInfo, FileKind, Files, Process, Shell, expect_deletable, sorted_entries
from corral.sessions.text_files import MAX_READ_BYTES
from corral.shells.processes import MARK, PushedProcess, checked_environment, expect_command

_MISSING = 44
_LIST_BYTES = 50_000_000
_FIND_KINDS: dict[str, FileKind] = {"f": "file", "d": "directory", "l": "link"}
_STAT_KINDS: dict[str, FileKind] = {"regular file": "file", "regular empty file": "file", "directory": "directory"}


class CommandFiles(Files):
    """Files that commands of a shell read and write, as base64, so that input and output are text."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    @override
    async def read_bytes(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        done = await self._run(
            path,
            f'[ -e "$p" ] || exit {_MISSING}; [ -f "$p" ] || {{ echo "not a regular file" >&2; exit 1; }}; '
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
    async def write_bytes(self, path: str, data: bytes) -> None:
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
            f'[ -e "$p" ] || exit {_MISSING}; [ -d "$p" ] || {{ echo "not a folder" >&2; exit 1; }}; '
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
    async def mkdir(self, path: str) -> None:
        await self._run(path, 'mkdir -p -- "$p"')

    @override
    async def delete(self, path: str) -> bool:
        expect_deletable(path)
        done = await self._run(path, f'[ -e "$p" ] || [ -L "$p" ] || exit {_MISSING}; rm -rf -- "$p"')
        return done is not None

    async def _run(
        self, path: str, script: str, *, input: bytes | None = None, output_bytes: int = 64_000
    ) -> Completed | None:
        """Runs a script with the path in `$p`. Returns None if the file does not exist."""
        if "\0" in path:
            raise FileError(f"{path!r}: a path cannot contain a NUL")
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
    """Raises ShellLost if the computer, which can be hostile, answers with something that the command cannot print."""
    try:
        yield
    except ValueError as error:
        raise ShellLost(f"{path or '.'}: the computer's answer is not a file: {error}") from error


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


START_SECONDS = 60.0
"""Seconds for a service to start a command, or to check its folder."""
KILL_SECONDS = 10.0
"""Seconds for a service to end a command or a computer."""
_GRACE_SECONDS = 1.0
"""Seconds by which our time limits exceed those of SDKs. Some SDKs leave a failed task behind when cancelled."""
_OVER_SECONDS = 2.0
_FREE_SECONDS = 2.0
_KILLED = 128 + 9


class RemoteShell(Shell):
    """Bash on a cloud service. Its files are read and written with commands."""

    service: ClassVar[str]

    def __init__(self) -> None:
        self._files = CommandFiles(self)
        self._closed = False
        self._live: set[RemoteProcess] = set()
        self.description = f"Bash on a Linux computer at {self.service}."

    @classmethod
    @asynccontextmanager
    async def _starting(cls, close: Callable[[], Awaitable[object]] | None = None) -> AsyncGenerator[None]:
        """Raises ShellLost for any error of the block, which starts the computer, after closing the client."""
        try:
            yield
        except BaseException as error:
            if close is not None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(KILL_SECONDS), suppress(Exception):
                    await close()
            if not isinstance(error, Exception):
                raise
            raise ShellLost(f"cannot start a sandbox at {cls.service}: {refusal(error)}") from error

    @abstractmethod
    def process(self, *, stdin: bool) -> RemoteProcess:
        """Makes a command without starting it."""

    @abstractmethod
    async def end(self, seconds: float) -> None:
        """Ends the computer, if it still exists, within `seconds`. Can raise any exception."""

    @property
    @override
    def files(self) -> Files:
        return self._files

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        expect_command(command, cwd)
        if self._closed:
            raise ConfigError("this shell is closed; open another one")
        variables = checked_environment(env or {})
        if cwd is not None:
            folder = shlex.quote(cwd if cwd.startswith("/") else f"./{cwd}")
            if (await self.run(f"[ -d {folder} ]")).exit_code != 0:
                raise FileError(f"{cwd}: the folder to run the command in does not exist")
            command = f"cd {folder} && exec /bin/bash -c -- {shlex.quote(command)}"
        process = self.process(stdin=stdin)
        try:
            with anyio.fail_after(START_SECONDS + _GRACE_SECONDS):
                await process.start(command, variables, START_SECONDS)
        except BaseException as error:
            process.finish(None, error)
            process.discard()
            with anyio.CancelScope(shield=True), anyio.move_on_after(KILL_SECONDS):
                await process.free()
            if not isinstance(error, Exception):
                raise
            raise ShellLost(f"{self.service} cannot start a command: {refusal(error)}") from error
        self._live = {each for each in self._live if not each.ended} | {process}
        return process

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_FREE_SECONDS):
                for process in self._live:
                    await process.leave()
            try:
                with anyio.fail_after(KILL_SECONDS + _GRACE_SECONDS):
                    await self.end(KILL_SECONDS)
            except Exception as error:
                raise ShellLost(
                    f"the computer at {self.service} could not be ended, and may run until its lifetime is over: "
                    f"{refusal(error)}"
                ) from error


class RemoteProcess(PushedProcess):
    """Command that is found by an environment variable, which all its descendants inherit."""

    def __init__(self, service: str, *, stdin: bool) -> None:
        super().__init__(service, stdin=stdin)
        self._service = service
        self.mark = uuid.uuid4().hex
        self._watching = anyio.CancelScope()
        self._input_ended = False

    def _ends_input(self) -> bool:
        """True if the input has to be ended now: once, if there is one."""
        has_ended, self._input_ended = self._input_ended, True
        return self._stdin and not has_ended

    @abstractmethod
    async def start(self, command: str, env: Mapping[str, str], seconds: float) -> None:
        """Starts the command within `seconds`. Can raise any exception."""

    @abstractmethod
    async def run_script(self, script: str, seconds: float) -> None:
        """Runs a script on the same computer within `seconds`. Can raise any exception."""

    @abstractmethod
    async def free(self) -> None:
        """Frees the command's resources at the service and in the SDK. Never raises; idempotent."""

    async def _watch(self, follow: Callable[[], Awaitable[int | None]]) -> None:
        """Lets `follow` forward the output and return the exit code, until `_watching` is cancelled."""
        code: int | None = None
        lost: Exception | None = None
        try:
            with self._watching:
                code = await follow()
        except Exception as error:
            lost = error
        finally:
            self.finish(code, lost)

    def marked(self, command: str, env: Mapping[str, str] | None = None) -> str:
        """Returns the command for bash, with the mark and, if the service does not support variables, with those
        too."""
        variables = "".join(f"{shlex.quote(f'{name}={value}')} " for name, value in (env or {}).items())
        return f"{f'env {variables}' if variables else ''}{MARK}={self.mark} /bin/bash -c -- {shlex.quote(command)}"

    @property
    def sweep(self) -> str:
        """Script that ends all processes with the mark in their environment, until none are left.

        All are stopped before any is killed. Otherwise a script would continue with its next line when its child ends.
        """
        return (
            f"while f=$(grep -lz '^{MARK}={self.mark}$' /proc/[0-9]*/environ 2>/dev/null); [ -n \"$f\" ]; do "
            'p=; for e in $f; do e=${e#/proc/}; p="$p ${e%/environ}"; done; '
            "kill -STOP $p 2>/dev/null; kill -9 $p 2>/dev/null; done; true"
        )

    async def leave(self) -> None:
        """Abandons the command, because its computer is being ended."""
        self.finish(None, ConnectionError("the shell was closed"))
        self.discard()
        await self.free()

    @override
    async def kill(self) -> None:
        self.discard()  # so that a full buffer does not wait for a reader
        try:
            if not self.ended:
                await self._end()
        finally:
            with anyio.move_on_after(_FREE_SECONDS):
                await self.free()

    async def _end(self) -> None:
        lost: Exception | None = None
        with anyio.move_on_after(KILL_SECONDS + _GRACE_SECONDS):
            try:
                for _ in range(2):  # the first attempt may run before the command starts
                    await self.run_script(self.sweep, KILL_SECONDS)
                    with anyio.move_on_after(_OVER_SECONDS):
                        await self.over()
                        return
            except Exception as error:
                lost = error
            else:
                self.finish(_KILLED)  # its end comes after unread output
        if not self.ended:
            self.finish(None, lost)
            raise ShellLost(
                f"a command at {self._service} could not be ended, and may still be running: close the shell"
                + (f" ({refusal(lost)})" if lost is not None else "")
            )


def refusal(error: BaseException) -> str:
    """Returns the text of a service's error, with its retry time."""
    text = str(error) or type(error).__name__
    headers = cast("Mapping[str, object]", getattr(error, "headers", None) or {})
    after = next((value for name, value in headers.items() if name.lower() == "retry-after"), None)
    return text if after is None else f"{text} (retry after {str(after)[:20]} seconds)"

"""The contract of a shell: commands and files of one computer, on this machine or elsewhere."""

from __future__ import annotations

import inspect
import posixpath
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple, Self, TypeAlias

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.task_owned import unwrapped
from corral.errors import CommandFailed, ConfigError, FileError, LimitNotEnforceable
from corral.isolation import Isolation, Tier
from corral.sessions.text_files import MAX_READ_BYTES, decode_text, encode_text
from corral.tools.tool_call import SHELL, expect_shell

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


StreamName: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[StreamName, bytes], Awaitable[None] | None]

_TIMEOUT_SECONDS = 60.0
_OUTPUT_BYTES = 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCapabilities:
    """Differences between shells that a caller may have to know."""

    isolation: Isolation
    """Boundary around commands; `Isolation("none", "none")` is the user's own computer."""
    stdin: bool = True
    """`spawn(stdin=True)` works."""
    streaming: bool = True
    """Output arrives while a command runs; else at its end."""
    partial_lines: bool = True
    """The start of a line arrives before its end."""
    large_output: bool = True
    """False: what is over 1 MiB of an output is left out, and its errors say so."""
    separate_stderr: bool = True
    """False: errors are in `stdout`."""
    network: Literal["none", "allowed", "full"] = "full"
    """`allowed`: only origins of a policy."""
    persistent: bool = True
    """Files that commands make are there for later ones."""
    binary_output: bool = True
    """False: output that is no UTF-8 arrives with replacement characters."""
    links: bool = True
    """Files can be symbolic links, which `stat` follows."""
    control_names: bool = True
    """False: names of files with control characters, such as a line break, are refused."""
    many_files: bool = True
    """False: there are at most 10,000, and more are refused."""
    ends_every_process: bool = True
    """False: of what a command started, processes that have cleared their environment (`env -i`) may outlive it."""
    real_processes: bool = True
    """Commands are programs of an operating system: git, python3 and the like are those that are installed."""
    unenforced: frozenset[str] = frozenset()
    """Names of its bounds that it does not hold on this system, as `ShellLimits(accept_unenforced=...)` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """End of a command: its exit code and output. A signal's number plus 128 is the code of a command that it ended."""

    exit_code: int | None
    """None: it was ended by the time-out."""
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False
    """The middle of an output is left out, for it is longer than `output_bytes`."""


class Process(ABC):
    """A command under way. Leaving its context, or `kill`, ends it with all that it started."""

    pid: int | None = None
    """Its number on its own computer, where that is known."""
    reason: str | None = None
    """The shell's reason for having ended it, such as a bound on memory; `run` adds it to the errors."""

    @property
    @abstractmethod
    def stdout(self) -> AsyncIterator[bytes]:
        """Output piece by piece, to be read once. A command waits when much of it is unread."""

    @property
    @abstractmethod
    def stderr(self) -> AsyncIterator[bytes]:
        """Errors piece by piece; empty where `capabilities.separate_stderr` is False."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to standard input, in the order of the calls. A command that reads no more, or has ended, loses it.

        Raises:
            ConfigError: it was started without `stdin=True`.
        """

    @abstractmethod
    async def close_stdin(self) -> None:
        """Ends standard input. Idempotent."""

    @abstractmethod
    async def wait(self) -> int:
        """Waits for the end, and returns the exit code: of a command that a signal ended, its number plus 128.

        Raises:
            ShellLost: the computer is gone.
        """

    @abstractmethod
    async def kill(self) -> None:
        """Ends the command with all that it started; returns once they are gone. Idempotent."""

    async def aclose(self) -> None:
        """Ends the command, and frees what it has here, its streams included. Idempotent."""
        await self.kill()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()


class Shell(ABC):
    """A computer as agents and programs use it: commands by bash, and files.

    Each command starts in the shell's working directory; `cd` affects that command only. Cancelling a command ends it
    with all that it started.
    """

    description: str = ""
    """Kind of computer it is, for instructions. Nothing adds it to a prompt by itself."""

    @property
    @abstractmethod
    def files(self) -> Files:
        """Its files."""

    @property
    @abstractmethod
    def capabilities(self) -> ShellCapabilities:
        """Differences from other shells."""

    @abstractmethod
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        """Starts a command. Its standard input is empty unless `stdin` is True.

        Raises:
            ConfigError: this shell has no standard input for commands, or the command or `env` has a NUL.
            FileError: there is no folder `cwd`; nothing has been started.
            ShellLost: the computer is gone.
        """

    async def aclose(self) -> None:
        """Ends all commands, and frees what the shell has. Idempotent."""

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        timeout_seconds: float | None = _TIMEOUT_SECONDS,
        output_bytes: int = _OUTPUT_BYTES,
        check: bool = False,
        on_output: OnOutput | None = None,
    ) -> Completed:
        """Runs a command to its end. Of each output the first and the last half of `output_bytes` are kept.

        After `timeout_seconds` it is ended, and what it wrote until then is in the result. `on_output` gets all output
        as it arrives.

        Raises:
            CommandFailed: `check` is True, and the exit code is not 0, or the time is over.
            ConfigError, FileError, ShellLost: as `spawn`.
        """
        if output_bytes < 0:
            raise ConfigError(f"output_bytes={output_bytes} is negative; give a number of bytes")
        kept: dict[StreamName, KeptOutput] = {"stdout": KeptOutput(output_bytes), "stderr": KeptOutput(output_bytes)}
        code: int | None = None
        async with await self.spawn(command, cwd=cwd, env=env, stdin=input is not None) as process:
            with anyio.move_on_after(timeout_seconds) as deadline:
                try:
                    code = await _followed(process, input, kept, on_output)
                except ExceptionGroup as failures:
                    raise unwrapped(failures) from None
        if process.reason is not None:
            kept["stderr"].add(f"\n[ended: {process.reason}]\n".encode())
        done = Completed(
            exit_code=code,
            stdout=kept["stdout"].text(),
            stderr=kept["stderr"].text(),
            timed_out=deadline.cancelled_caught,
            truncated=any(each.left_out for each in kept.values()),
        )
        if check and done.exit_code != 0:
            raise CommandFailed(command, done.exit_code, done.stdout, done.stderr)
        return done

    def restricted(self) -> Shell:
        """Returns the view for tools: commands and files, and nothing that ends or changes the computer."""
        return _RestrictedShell(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()


class _RestrictedShell(Shell):
    def __init__(self, shell: Shell) -> None:
        self.__shell = shell
        self.description = shell.description

    @property
    @override
    def files(self) -> Files:
        return self.__shell.files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return self.__shell.capabilities

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        return await self.__shell.spawn(command, cwd=cwd, env=env, stdin=stdin)

    @override
    async def aclose(self) -> None:
        """Does nothing: the computer is not this view's to end."""

    @override
    def restricted(self) -> Shell:
        return self


@dataclass(slots=True)
class KeptOutput:
    """The first and the last half of `most` bytes of an output."""

    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        """Takes the next piece."""
        self.total += len(data)
        half = self.most - self.most // 2
        room = max(0, half - len(self.head))
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * self.most:
            del self.tail[: len(self.tail) - self.most // 2]

    @property
    def left_out(self) -> int:
        """Bytes of the middle that are not kept."""
        return max(0, self.total - self.most)

    def text(self) -> str:
        """Returns what is kept, with a note in the place of the middle."""
        if not self.left_out:
            return (self.head + self.tail).decode(errors="replace")
        end = self.tail[len(self.tail) - self.most // 2 :]
        note = f"\n[{self.left_out} bytes left out]\n"
        return self.head.decode(errors="replace") + note + end.decode(errors="replace")


async def _followed(
    process: Process, input_: str | bytes | None, kept: Mapping[StreamName, KeptOutput], on_output: OnOutput | None
) -> int:
    """Feeds a process, reads all that it writes, and returns its exit code."""

    async def read(name: StreamName, stream: AsyncIterator[bytes]) -> None:
        async for piece in stream:
            kept[name].add(piece)
            if on_output is not None and inspect.isawaitable(waiting := on_output(name, piece)):
                await waiting

    async def feed(data: bytes) -> None:
        await process.write(data)
        await process.close_stdin()

    code = 0

    async def wait() -> None:
        nonlocal code
        code = await process.wait()

    async with anyio.create_task_group() as feeding:
        if input_ is not None:
            feeding.start_soon(feed, input_.encode() if isinstance(input_, str) else input_)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, "stdout", process.stdout)
            tasks.start_soon(read, "stderr", process.stderr)
            tasks.start_soon(wait)  # some computers end what a command leaves behind, which may have its streams
        feeding.cancel_scope.cancel()  # a command need not read all of its input
    return code


ShellLimitName: TypeAlias = Literal["disk", "locks", "processes"]
"""Bounds that a jail may not be able to hold: `disk` is what `Scratch(bytes=..., files=...)` says of directories;
`locks` are that no other shell notices locks and watches of files of the host, as those in /usr."""


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """Bounds of commands.

    `processes` are those of one command. `memory_mb` is what each process may ask for, and what all commands of the
    shell may have together, looked at ten times a second; then they are ended. `commands` run at the same time.

    `tier` is the jail: "auto" takes the best that works. What it cannot hold of these bounds is refused, unless
    `accept_unenforced` names it.

    Raises:
        ConfigError: one of them is not positive, or has no such value.
    """

    processes: int = 64
    memory_mb: int = 1024
    commands: int = 16
    file_bytes: int = 1_000_000_000
    tier: Tier | Literal["auto"] = "auto"
    accept_unenforced: Collection[ShellLimitName] = ()

    def __post_init__(self) -> None:
        if min(self.processes, self.memory_mb, self.commands, self.file_bytes) < 1:
            raise ConfigError(f"{self}: each must be positive")
        if self.tier == "none":
            raise ConfigError("ShellLimits(tier='none'): a jail has a tier; LocalShell is a shell without one")

    def expect_accepted(self, tier: Tier, unenforced: Collection[ShellLimitName]) -> None:
        """Finds out if all that a jail does not hold is accepted.

        Raises:
            LimitNotEnforceable: it is not.
        """
        missing = sorted(set(unenforced) - set(self.accept_unenforced))
        if missing:
            accepted = ", ".join(map(repr, sorted({*missing, *self.accept_unenforced})))
            raise LimitNotEnforceable(
                f"a shell in the tier {tier!r} does not enforce {' and '.join(missing)} on this system; use one with "
                f"user namespaces (and for locks Linux 5.11), or accept it with "
                f"ShellLimits(accept_unenforced={{{accepted}}})"
            )


@contextmanager
def use_shell(shell: Shell) -> Generator[Shell]:
    """Makes a shell the current one, restricted, of what runs in the block: `current_shell` and `shell_tools` use it.

    A step of an agent may have another shell than the one before it.
    """
    token = SHELL.set(shell.restricted())
    try:
        yield shell
    finally:
        SHELL.reset(token)


def current_shell() -> Shell:
    """Returns the shell of `use_shell`, restricted to commands and files, as `ToolCall.shell` does.

    Raises:
        ToolError: there is none here.
    """
    return expect_shell()

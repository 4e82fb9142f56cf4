"""Contract of a shell: commands and files of a computer, local or remote."""

from __future__ import annotations

import inspect
import posixpath
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

import anyio
from anyio.abc import AsyncResource
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.task_owned import unwrapped
from corral.containment import ContainmentKind, Tier
from corral.errors import CommandFailed, ConfigError, FileError, LimitNotEnforceable
from corral.sessions.text_files import MAX_READ_BYTES, decode_text, encode_text
from corral.tools.tool_call import SHELL, expect_shell

FileKind: TypeAlias = Literal["file", "directory", "link", "other"]

_STREAM_BYTES = 1 << 16


class FileInfo(NamedTuple):
    """File or folder. `path` is the requested path, or relative to the listed folder. `size` is in bytes."""

    path: str
    kind: FileKind
    size: int


class Files(ABC):
    """Files of a shell. A relative path is below its working directory. A `FileError` has the path and the reason.

    For a missing file, methods return None, and `delete` returns False. Writing makes missing folders and replaces
    files, but not folders. `stat` and reading follow links if the shell has them; `delete` removes the link itself.
    """

    @abstractmethod
    async def read_bytes(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        """Reads a file.

        Raises:
            FileError: the file is larger than `max_bytes`, or not a regular file.
        """

    @abstractmethod
    async def write_bytes(self, path: str, data: bytes) -> None:
        """Writes a file, and makes its folders.

        Raises:
            FileError: the path is a folder, there is no room, or writing is not permitted.
        """

    @abstractmethod
    async def stat(self, path: str) -> FileInfo | None:
        """Describes a file or folder. For a link, describes its target."""

    @abstractmethod
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        """Lists a folder, sorted by path. Links are listed as links, and not followed.

        Raises:
            FileError: the path is not a folder, or has more than `max_entries`.
        """

    @abstractmethod
    async def mkdir(self, path: str) -> None:
        """Makes a folder and its parents. An existing folder is kept."""

    @abstractmethod
    async def delete(self, path: str) -> bool:
        """Removes a file, a link, or a folder with its content. Returns False if it does not exist.

        Raises:
            FileError: the path is the working directory or above it, or removal is not permitted.
        """

    async def read_text(
        self,
        path: str,
        *,
        encoding: str = "utf-8",
        lines: tuple[int, int | None] | None = None,
        max_bytes: int = MAX_READ_BYTES,
    ) -> str | None:
        """Reads a file as text. `lines` are the first and last line to return, counted from 1; None as the last line
        stands for the end.

        Raises:
            FileError: see `read_bytes`, or the file is not text in this encoding.
        """
        data = await self.read_bytes(path, max_bytes=max_bytes)
        if data is None:
            return None
        return await decode_text(path, data, encoding, lines)

    async def write_text(self, path: str, text: str, *, encoding: str = "utf-8") -> None:
        """Writes a text as a file. Raises the errors of `write_bytes`."""
        await self.write_bytes(path, encode_text(path, text, encoding))

    async def read_stream(self, path: str) -> AsyncIterator[bytes] | None:
        """Reads a file in pieces. Raises the errors of `read_bytes`.

        A shell without streams reads the whole file, up to `MAX_READ_BYTES`.
        """
        data = await self.read_bytes(path)
        return None if data is None else _pieces(data)

    async def write_stream(self, path: str, pieces: AsyncIterable[bytes]) -> None:
        """Writes a file in pieces. The file is in place once all are written. Raises the errors of `write_bytes`."""
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > MAX_READ_BYTES:
                raise FileError(f"{path}: more than {MAX_READ_BYTES} bytes; this shell cannot stream files")
        await self.write_bytes(path, bytes(data))


def expect_deletable(path: str) -> None:
    """Raises FileError for the working directory, the root, and folders above them."""
    if posixpath.normpath(path).strip("./") == "":
        raise FileError(f"{path or '.'}: the working directory and its parents cannot be deleted; delete files in it")


def sorted_entries(path: str, entries: Iterable[FileInfo], max_entries: int) -> list[FileInfo]:
    """Returns the entries of a folder, sorted by path.

    Raises:
        FileError: the folder has more than `max_entries`.
    """
    listed = sorted(islice(entries, max_entries + 1))
    if len(listed) > max_entries:
        raise FileError(f"{path or '.'}: there are more than max_entries={max_entries}")
    return listed


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _STREAM_BYTES):
        yield data[start : start + _STREAM_BYTES]


StreamName: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[StreamName, bytes], Awaitable[None] | None]

_TIMEOUT_SECONDS = 60.0
_OUTPUT_BYTES = 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCapabilities:
    """Differences between shells."""

    containment: ContainmentKind
    """Boundary around commands. `ContainmentKind("none", "none")` means the user's own computer."""
    stdin: bool = True
    """True if `spawn(stdin=True)` works."""
    streaming: bool = True
    """True if output arrives while a command runs; False if it arrives at the end."""
    partial_lines: bool = True
    """True if the start of a line arrives before its end."""
    large_output: bool = True
    """False if output beyond 1 MiB is dropped, with a note in the errors."""
    separate_stderr: bool = True
    """False if errors are in `stdout`."""
    network: Literal["none", "allowed", "full"] = "full"
    """`allowed` means that only a policy's origins can be reached."""
    persistent: bool = True
    """True if later commands see the files that commands make."""
    binary_output: bool = True
    """False if output that is not UTF-8 arrives with replacement characters."""
    links: bool = True
    """True if files can be symbolic links, which `stat` follows."""
    control_names: bool = True
    """False if file names with control characters, such as a line break, are refused."""
    many_files: bool = True
    """False if files beyond 10,000 are refused."""
    ends_every_process: bool = True
    """False if a command's descendants that have cleared their environment (`env -i`) can outlive it."""
    real_processes: bool = True
    """True if commands are programs of an operating system, such as an installed git or python3."""
    unenforced: frozenset[str] = frozenset()
    """Limits that it does not enforce on this system, by their name in `ShellLimits(accept_unenforced=...)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Outcome of a command: exit code and output. If a signal ended it, the code is 128 plus the signal's number."""

    exit_code: int | None
    """Exit code; None after a time-out."""
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False
    """True if an output is longer than `output_bytes`, so that its middle is left out."""


class Closing(AsyncResource):
    """Resource that `async with` closes, even if its block was cancelled."""

    @override
    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()


class Process(Closing):
    """Running command. `kill`, or leaving its context, ends it with all its descendants."""

    pid: int | None = None
    """Process number on the shell's computer, if known."""
    reason: str | None = None
    """Reason why the shell ended it, such as a memory limit. `run` adds it to the errors."""

    @property
    @abstractmethod
    def stdout(self) -> AsyncIterator[bytes]:
        """Output in pieces, which can be read once. The command waits while much of it is unread."""

    @property
    @abstractmethod
    def stderr(self) -> AsyncIterator[bytes]:
        """Errors in pieces. Empty if `capabilities.separate_stderr` is False."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to standard input, in the order of the calls. Data is lost if the command has closed it or ended.

        Raises:
            ConfigError: the command was started without `stdin=True`.
        """

    @abstractmethod
    async def close_stdin(self) -> None:
        """Ends standard input. Idempotent."""

    @abstractmethod
    async def wait(self) -> int:
        """Waits for the end, and returns the exit code. If a signal ended the command, it is 128 plus the signal's
        number.

        Raises:
            ShellLost: the computer is gone.
        """

    @abstractmethod
    async def kill(self) -> None:
        """Ends the command with all its descendants, and returns once they are gone. Idempotent."""

    async def aclose(self) -> None:
        """Ends the command, and frees its resources here, including streams. Idempotent."""
        await self.kill()


class Shell(Closing):
    """Computer for agents and programs: bash commands, and files.

    Each command starts in the shell's working directory, and `cd` affects only that command. Cancelling a command ends
    it with all its descendants.
    """

    description: str = ""
    """Kind of computer, for your own instructions. It is not added to prompts automatically."""

    @property
    @abstractmethod
    def files(self) -> Files:
        """Files of the computer."""

    @property
    @abstractmethod
    def capabilities(self) -> ShellCapabilities: ...

    @abstractmethod
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        """Starts a command. Its standard input is empty unless `stdin` is True.

        Raises:
            ConfigError: this shell does not support standard input, or the command or `env` has a NUL. FileError: the
            folder `cwd` does not exist, so nothing was started.
            ShellLost: the computer is gone.
        """

    async def aclose(self) -> None:
        """Ends all commands, and frees the shell's resources. Idempotent."""

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
        """Runs a command to its end. Of each output, keeps the first and the last half of `output_bytes`.

        After `timeout_seconds`, the command is ended, and the result has its output until then. `on_output` gets all
        output as it arrives.

        Raises:
            CommandFailed: `check` is True, and the exit code is not 0 or the command timed out. ConfigError, FileError,
            ShellLost: see `spawn`.
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
        """Returns a view for tools: commands and files, without methods that end or change the computer."""
        return _RestrictedShell(self)


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
        """Does nothing, because a view must not end the computer."""

    @override
    def restricted(self) -> Shell:
        return self


@dataclass(slots=True)
class KeptOutput:
    """First and last half of `most` bytes of an output."""

    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        """Adds the next piece."""
        self.total += len(data)
        half = self.most - self.most // 2
        room = max(0, half - len(self.head))
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * self.most:
            del self.tail[: len(self.tail) - self.most // 2]

    @property
    def left_out(self) -> int:
        """Number of dropped bytes."""
        return max(0, self.total - self.most)

    def text(self) -> str:
        """Returns the kept output, with a note in place of the middle."""
        if not self.left_out:
            return (self.head + self.tail).decode(errors="replace")
        end = self.tail[len(self.tail) - self.most // 2 :]
        note = f"\n[{self.left_out} bytes left out]\n"
        return self.head.decode(errors="replace") + note + end.decode(errors="replace")


async def _followed(
    process: Process, input_: str | bytes | None, kept: Mapping[StreamName, KeptOutput], on_output: OnOutput | None
) -> int:
    """Feeds a process, reads its output, and returns its exit code."""

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
            tasks.start_soon(wait)  # some computers only now end left-over processes, which can hold the streams open
        feeding.cancel_scope.cancel()  # a command need not read all of its input
    return code


ShellLimitName: TypeAlias = Literal["disk", "locks", "processes"]
"""Limits that some jails cannot enforce. `disk`: the sizes of directories, `Scratch(bytes=..., files=...)`. `locks`:
that other shells do not notice locks and watches on files of the host, such as those in /usr."""


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """Limits of commands.

    `processes` limits each command. `memory_mb` limits each process, and also the sum over all commands of the shell,
    which is checked ten times a second; beyond it, commands are ended. `commands` is the number that can run at the
    same time. `tier` selects the jail; "auto" uses the best that works. Limits that the jail cannot enforce are
    refused, unless `accept_unenforced` names them.

    Raises:
        ConfigError: a limit is not positive, or the tier is "none".
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
            raise ConfigError(
                "ShellLimits(tier='none'): a jail needs a tier; use LocalShell for commands without a jail"
            )

    def expect_accepted(self, tier: Tier, unenforced: Collection[ShellLimitName]) -> None:
        """Raises LimitNotEnforceable if the jail does not enforce a limit that must be enforced."""
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
    """Makes a shell, restricted, the current one during the block: `current_shell` and `shell_tools` use it.

    Each step of an agent can have a different shell.
    """
    token = SHELL.set(shell.restricted())
    try:
        yield shell
    finally:
        SHELL.reset(token)


def current_shell() -> Shell:
    """Returns the shell of `use_shell`, restricted to commands and files, like `ToolCall.shell`.

    Raises:
        ToolError: there is no current shell.
    """
    return expect_shell()

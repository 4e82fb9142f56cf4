"""`MemoryShell`: a bash interpreter in a separate process, with files in memory."""

from __future__ import annotations

import asyncio
import json
import os
import posixpath
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import anyio
import anyio.lowlevel
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.event_loop import asyncio_loop
from corral.concurrency.forks import ProcessOwner, finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import ContainmentKind
from corral.errors import ConfigError, FileError, MissingExtra, ShellError, ShellLost, StartFailed
from corral.jail import LauncherClient, Plan
from corral.jail.process import ContainedProcess, can_limit
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
from corral.shells.memory_worker import (
    BOOT,
    DATA_BYTES,
    FILES,
    HEADER,
    HOME,
    MESSAGE_BYTES,
    READY,
    RUN,
    Message,
    Reply,
    frame,
)
from corral.shells.processes import PushedProcess, checked_environment, expect_command

if TYPE_CHECKING or sys.platform != "win32":
    import resource

_MEMORY_BYTES = 1 << 30
"""RLIMIT_DATA of the process. Files take at most 100 MB of it, and each command's variables 42 MB."""
_KEPT_BYTES = 110_000_000
_KEPT_FILES = 25_000
"""Limits of the host's copy, higher than those of the library."""
_START_SECONDS = 30.0
_GRACE_SECONDS = 5.0
"""Seconds for a command to end after its time limit or a cancellation."""
_READ_BYTES = 1 << 18
_KINDS: Mapping[str, FileKind] = {"file": "file", "directory": "directory", "symlink": "link"}


class MemoryShell(Shell):
    """Bash, interpreted by a library in a separate process, with files in memory and no access to the host.

    It has commands such as cat, grep, sed, awk, find, sort and tar, but no programs such as git or Python, no network,
    and no standard input. Commands need asyncio.

    A command ends after `command_seconds`, or after `command_steps` commands and loop iterations. At most `commands`
    run at the same time. There can be 10,000 files of up to 10 MB each, and 100 MB in total. If a command crashes the
    process, all commands of the shell end, and files are restored to their state when a command last ended.

    Raises:
        MissingExtra: bashkit is not installed.
        ConfigError: a limit is not positive, or this is Windows.
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
        if find_spec("bashkit") is None:
            raise MissingExtra("MemoryShell needs bashkit: pip install 'corral[bashkit]'")
        if sys.platform == "win32":
            raise ConfigError("MemoryShell runs on Linux and macOS: Windows cannot pass sockets to its interpreter")
        self._env = {"HOME": HOME, **checked_environment(env or {})}
        self._seconds = command_seconds
        self._steps = command_steps
        self._commands = commands
        self._running: set[_MemoryProcess] = set()
        self._starting = 0
        self._closed = False
        self._computer = _Computer(commands, command_seconds)
        self._files = _MemoryFiles(self._computer)
        self.description = (
            f"A bash interpreter with the usual text tools and files in memory, below {HOME}. It has no programs "
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
            containment=ContainmentKind("memory", "interpreter"),
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
            raise ConfigError("MemoryShell has no standard input for commands; write the input to a file")
        expect_command(command, cwd)
        if self._closed:
            raise ConfigError("this shell is closed; open another one")
        variables = {**self._env, **checked_environment(env or {})}
        if asyncio_loop() is None:
            raise ConfigError("MemoryShell works only on asyncio, not on this event loop")
        self._running = {each for each in self._running if not each.ended}
        if len(self._running) + self._starting >= self._commands:
            raise ShellError(
                f"{self._commands} commands are already running in this MemoryShell; wait for one, or raise commands="
            )
        request = {"command": command, "cwd": _full(cwd or ""), "env": variables}
        self._starting += 1
        try:
            started = await self._computer.begin({**request, "seconds": self._seconds, "steps": self._steps})
        except _Refused as error:
            raise FileError(f"{cwd}: {error}") from error
        finally:
            self._starting -= 1
        process = _MemoryProcess(self._computer, *started)
        self._running.add(process)
        return process

    @override
    async def aclose(self) -> None:
        self._closed = True
        for process in self._running:
            process.killed = True
        await self._computer.aclose()
        for process in self._running:
            await process.aclose()
        self._running.clear()


class _MemoryProcess(PushedProcess):
    def __init__(self, computer: _Computer, interpreter: _Interpreter, connection: _Connection) -> None:
        super().__init__("the interpreter", stdin=False)
        self.killed = False
        self._computer = computer
        self._interpreter = interpreter
        self._connection = connection
        self._work = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            with self._connection:
                code = await self._followed()
            await self._computer.keep(self._interpreter)
            self.finish(code)
        except (_Lost, TimeoutError) as error:
            status = await self._interpreter.end()
            if not self.killed:
                self.reason = (
                    f"{_cause(error, status)}, and with it all commands of this shell. The next one finds its files as "
                    "they were when a command last ended"
                )
            self.finish(None if self.killed else 128 - status if status < 0 else status or 1)
        except BaseException as error:
            self.finish(None, error)
            if not isinstance(error, Exception):
                raise

    async def _followed(self) -> int | None:
        """Forwards the output and returns the exit code, or None if the command was cancelled."""
        left = self._computer.seconds
        while True:
            began = time.monotonic()
            with anyio.fail_after(left):
                message, data = await self._connection.receive()
            left -= time.monotonic() - began  # does not include the time until the output is read
            match message:
                case {"output": "stdout" | "stderr" as name}:
                    await self.take(name, data)
                case {"done": True, "code": int() | None as code}:
                    return code
                case {"error": str() as text}:
                    raise ShellError(text)
                case _:
                    raise _Lost("it sent an invalid reply")

    @override
    async def feed(self, data: bytes) -> None:
        raise AssertionError("there is no standard input")

    @override
    async def close_stdin(self) -> None:
        """Does nothing, because the shell has no standard input."""

    @override
    async def kill(self) -> None:
        self.discard()
        if self.ended:
            return
        self.killed = True
        self._connection.cancel()
        _, at_work = await asyncio.wait([self._work], timeout=_GRACE_SECONDS)
        if at_work:
            await self._interpreter.end()
            await asyncio.wait(at_work)


class _MemoryFiles(Files):
    def __init__(self, computer: _Computer) -> None:
        self._computer = computer

    @override
    async def read_bytes(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        replies = await self._ask(path, "read", max_bytes=max_bytes)
        return replies[0][1] if replies else None

    @override
    async def write_bytes(self, path: str, data: bytes) -> None:
        if len(data) > DATA_BYTES:
            raise FileError(f"{path}: a file of this shell can have at most {DATA_BYTES} bytes")
        await self._ask(path, "write", data)

    @override
    async def stat(self, path: str) -> FileInfo | None:
        replies = await self._ask(path, "stat")
        return _described(path, replies[0][0]) if replies else None

    @override
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        replies = await self._ask(path, "list", recursive=recursive, most=max_entries)
        if not replies:
            return None
        return sorted_entries(path, (_described("", each) for each, _ in replies[1:]), max_entries)

    @override
    async def mkdir(self, path: str) -> None:
        await self._ask(path, "make_directory")

    @override
    async def delete(self, path: str) -> bool:
        expect_deletable(path)
        full = _full(path)
        if full == HOME or HOME.startswith(full.rstrip("/") + "/"):
            raise FileError(f"{path}: the working directory and its parents cannot be deleted; delete files in it")
        return bool(await self._ask(path, "delete"))

    async def _ask(self, path: str, do: str, data: bytes = b"", **details: object) -> list[Reply]:
        if "\0" in path:
            raise FileError(f"{path[:100]!r}: a path cannot contain a NUL")
        try:
            return await self._computer.ask({"do": do, "path": _full(path), **details}, data)
        except _Refused as error:
            raise FileError(f"{path or '.'}: {error}") from error


class _Computer:
    """Process of the interpreter, which is restarted after it has ended, and the files with which it starts."""

    def __init__(self, commands: int, seconds: float) -> None:
        self.seconds = seconds + _GRACE_SECONDS
        """Maximum seconds for a request. All commands share one thread of the process."""
        self._plan = _plan(commands)
        self._copy = _Copy()
        self._lock = anyio.Lock()
        """Held for everything other than commands, so that changes are applied to the copy in order."""
        self._known = False
        """False while the copy can be older than the process assumes, as after a cancelled write."""
        self._closed = False
        self._launcher = LauncherClient()
        self._current: list[_Interpreter] = []
        finalize_in_owner(self, _close, self._launcher, self._current)

    async def begin(self, request: Message) -> tuple[_Interpreter, _Connection]:
        """Begins a command.

        Raises:
            _Refused: the folder does not exist. ConfigError, ShellLost: see `ask`.
        """
        async with self._lock:
            interpreter = await self._running()
        try:
            with anyio.fail_after(self.seconds):
                connection = await interpreter.request(RUN, request)
                try:
                    await connection.reply()
                except BaseException:
                    connection.close()
                    raise
        except (_Lost, TimeoutError) as error:
            raise ShellLost(f"{_cause(error, await interpreter.end())} before the command began") from error
        return interpreter, connection

    async def ask(self, request: Message, data: bytes = b"") -> list[Reply]:
        """Sends a request about a file, and returns all replies.

        Raises:
            _Refused: the process cannot do this.
            ConfigError: the shell is closed.
            ShellLost: the process does not start, or ended meanwhile.
        """
        async with self._lock:
            interpreter = await self._running()
            known, self._known = self._known, False
            replies: list[Reply] = []
            try:
                with anyio.fail_after(self.seconds), await interpreter.request(FILES, request, data) as connection:
                    while (reply := await connection.reply()) is not None:
                        replies.append(reply)
                        if len(replies) > _KEPT_FILES:
                            raise _Lost("it sent too much")
                self._copy.follow(request, data, replies)
                self._known = known
            except _Refused:
                self._known = known
                raise
            except (_Lost, TimeoutError) as error:
                raise ShellLost(f"{_cause(error, await interpreter.end())}; its effect is unknown") from error
            return replies

    async def keep(self, interpreter: _Interpreter) -> None:
        """Copies the changes that commands have made.

        Raises:
            _Lost, TimeoutError: the process has ended, or must be ended.
        """
        async with self._lock:
            request = {"do": "changes", "all": not self._known}
            self._known = False
            try:
                with anyio.fail_after(self.seconds), await interpreter.request(FILES, request) as connection:
                    while (reply := await connection.reply()) is not None:
                        self._copy.take(*reply)
            except _Refused as error:
                raise _Lost(str(error)) from error
            self._known = True

    async def aclose(self) -> None:
        """Ends the process. Idempotent."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._end_all()
            async with self._lock:  # another process might have been starting
                await self._end_all()
            await run_shielded_in_thread(self._launcher.close)

    async def _end_all(self) -> None:
        for each in self._current:
            if each.owner.is_current:
                await each.end()

    async def _running(self) -> _Interpreter:
        if self._closed:
            raise ConfigError("this shell is closed; open another one")
        for each in self._current:
            if each.owner.is_current:
                if each.alive:
                    return each
                await each.end()
        try:
            made = await run_shielded_in_thread(lambda: _Interpreter(self._launcher, self._plan))
        except StartFailed as error:
            raise ShellLost(f"the interpreter did not start: {error}") from error
        self._current[:] = [made]
        try:
            if self._copy.files:
                with anyio.fail_after(self.seconds):
                    await self._restore(made)
        except (_Lost, TimeoutError, _Refused) as error:
            raise ShellLost(f"{_cause(error, await made.end())} while its files were restored") from error
        except BaseException:
            await made.end()
            raise
        return made

    async def _restore(self, interpreter: _Interpreter) -> None:
        with await interpreter.request(FILES, {"do": "restore"}) as connection:
            for path, kept in sorted(self._copy.files.items()):
                await connection.send({"path": path, "kind": kept.kind, "mode": kept.mode}, kept.data)
            await connection.send({})
            await connection.reply()
        self._known = True


def _plan(commands: int) -> Plan:
    folders = [path for path in sys.path if path], str(Path(__file__).parents[1])
    return Plan(
        executable=Path(sys.executable),
        arguments=(sys.executable, "-I", "-S", "-B", "-c", BOOT, json.dumps(folders)),
        environment={"LC_CTYPE": "C.UTF-8", "TOKIO_WORKER_THREADS": "1"},
        limits=(
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_NOFILE, 64 + commands),
            (resource.RLIMIT_DATA, _MEMORY_BYTES),
        ),
        connection=socket.SOCK_SEQPACKET,
    )


def _close(launcher: LauncherClient, current: list[_Interpreter]) -> None:
    launcher.close()
    for each in current:
        each.close()


def _cause(error: Exception, status: int) -> str:
    """Returns the reason why a process has ended."""
    if isinstance(error, TimeoutError):
        return "the interpreter was ended because it did not answer in time"
    if status >= 0 or status == -signal.SIGKILL:
        return f"the interpreter was ended: {error}"
    name = signal.Signals(-status).name
    return f"the interpreter crashed ({name}), because of a bug in it or because it needed more than 1 GiB of memory"


def _full(path: str) -> str:
    return posixpath.normpath(posixpath.join(HOME, path))


def _described(path: str, reply: Message) -> FileInfo:
    match {"path": path, **reply}:
        case {"path": str() as path, "kind": str() as kind, "size": int() as size}:
            return FileInfo(path, _KINDS.get(kind, "other"), size)
        case _:
            raise ShellLost("the interpreter's answer is not a file")


class _Refused(Exception):
    """The process refuses a request."""


class _Lost(Exception):
    """The process has ended, or violates the protocol."""


class _Kept(NamedTuple):
    kind: str
    mode: int
    data: bytes
    """Content of a file, or target of a link."""


class _Copy:
    """Host's copy of a shell's files, for the next process."""

    def __init__(self) -> None:
        self.files: dict[str, _Kept] = {}
        self._bytes = 0

    def put(self, path: str, kind: str, mode: int, data: bytes) -> None:
        """Adds or replaces a file, and adds its folders. FIFOs are not kept.

        Raises:
            _Lost: the files exceed the library's own limits.
        """
        self.drop(path)
        if kind in _KINDS:
            self.files[path] = _Kept(kind, mode, data)
            self._bytes += len(data)
        while (path := posixpath.dirname(path)) != "/" and path not in self.files:
            self.files[path] = _Kept("directory", 0o755, b"")
        if self._bytes > _KEPT_BYTES or len(self.files) > _KEPT_FILES:
            raise _Lost("it has more files than the library allows")

    def drop(self, path: str) -> None:
        """Removes a file, if it exists."""
        removed = self.files.pop(path, None)
        self._bytes -= 0 if removed is None else len(removed.data)

    def follow(self, request: Message, data: bytes, replies: list[Reply]) -> None:
        """Applies the changes of a request.

        Raises:
            _Lost: see `put`.
        """
        match request:
            case {"do": "write", "path": path}:
                mode = replies[0][0].get("mode") if replies else None
                if not isinstance(mode, int):
                    raise _Lost("it sent an invalid mode")
                self.put(path, "file", mode, data)
            case {"do": "make_directory", "path": path}:
                self.put(path, "directory", 0o755, b"")
            case {"do": "delete", "path": path}:
                self._drop_tree(path)
            case _:
                pass

    def take(self, change: Message, data: bytes) -> None:
        """Applies a change that the process reports.

        Raises:
            _Lost: the change is invalid, or `put` raises it.
        """
        match change:
            case {"path": str() as path, "kind": None}:
                self.drop(path)
            case {"path": str() as path, "kind": str() as kind, "mode": int() as mode} if path.startswith("/"):
                self.put(path, kind, mode, data)
            case _:
                raise _Lost("it sent an invalid change")

    def _drop_tree(self, path: str) -> None:
        """Removes a file, or a folder with its content."""
        root = self.files.get(path)
        if root is not None and root.kind == "directory":
            for each in [each for each in self.files if each.startswith(f"{path}/")]:
                self.drop(each)
        self.drop(path)


class _Connection:
    """Request to the process, and its replies."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._buffer = bytearray()
        self._left = 2 * _KEPT_BYTES
        """Number of bytes that the process can still send."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket. Idempotent."""
        self._socket.close()

    async def send(self, message: Message, data: bytes = b"") -> None:
        """Sends a frame. If the process has ended, the next `receive` raises."""
        rest = memoryview(frame(message, data))
        with suppress(BrokenPipeError, ConnectionResetError):
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._socket)

    def cancel(self) -> None:
        """Makes the process cancel the request."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def receive(self) -> Reply:
        """Receives a frame.

        Raises:
            _Lost: the process sent no valid frame.
        """
        lengths = HEADER.unpack(await self._read(HEADER.size))
        self._left -= HEADER.size + sum(lengths)
        if lengths[0] > MESSAGE_BYTES or lengths[1] > DATA_BYTES or self._left < 0:
            raise _Lost("it sent too much")
        text, data = await self._read(lengths[0]), await self._read(lengths[1])
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _Lost("it sent invalid JSON") from error
        if not isinstance(message, dict):
            raise _Lost("it sent JSON that is not an object")
        if any(isinstance(each, (dict, list)) for each in cast("Message", message).values()):
            raise _Lost("it sent a message that is not flat")
        return cast("Message", message), data

    async def reply(self) -> Reply | None:
        """Receives a reply; None after the last one.

        Raises:
            _Refused: the last one is an error. _Lost: see `receive`.
        """
        message, data = await self.receive()
        if isinstance(error := message.get("error"), str):
            raise _Refused(error)
        return None if "done" in message else (message, data)

    async def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await anyio.lowlevel.checkpoint()
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                raise _Lost("it ended")
            self._buffer += data
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data


class _Interpreter:
    """Process that runs the library. The constructor blocks until it is ready.

    Raises:
        StartFailed: the process does not start.
    """

    def __init__(self, launcher: LauncherClient, plan: Plan) -> None:
        self.owner = ProcessOwner()
        self._status: int | None = None
        self._ending = anyio.Lock()
        self._process = ContainedProcess.spawn(launcher, plan) if can_limit else _PlainProcess(plan)
        try:
            if self._process.await_output(_START_SECONDS) != READY:
                raise StartFailed("the interpreter did not write READY")
        except BaseException:
            self._process.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def request(self, kind: bytes, message: Message, data: bytes = b"") -> _Connection:
        """Opens a connection, and sends a request on it.

        Raises:
            _Lost: the process has ended, or its queue is full.
        """
        ours, theirs = socket.socketpair()
        connection = _Connection(ours)
        with theirs:
            try:
                self._process.ask(kind, [theirs.fileno()])
                await connection.send(message, data)
            except BaseException as error:
                connection.close()
                if isinstance(error, OSError):
                    raise _Lost("it ended") from error
                raise
        return connection

    async def end(self) -> int:
        """Ends the process if necessary, and returns its status as `wait` does. Idempotent."""
        with anyio.CancelScope(shield=True):
            async with self._ending:
                if self._status is None:
                    self._status = await self._process.wait(0)
                    self._process.close()
        assert self._status is not None
        return self._status

    def close(self) -> None:
        """Ends the process without waiting. Idempotent."""
        self._process.close()


class _PlainProcess:
    """Process without containment, as on macOS. It ends with the host, and its memory is unlimited.

    Its members match those of `ContainedProcess`.
    """

    def __init__(self, plan: Plan) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                plan.arguments,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**plan.environment},
                start_new_session=True,
            )

    def await_output(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        return os.read(self._process.stdout.fileno(), len(READY)) if readable else b""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: bytes, descriptors: list[int]) -> None:
        socket.send_fds(self._control, [message], descriptors)

    async def wait(self, grace_seconds: float) -> int:  # noqa: ARG002
        self._process.kill()  # has no effect on a process that is ending
        return await run_shielded_in_thread(self._process.wait)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._control.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

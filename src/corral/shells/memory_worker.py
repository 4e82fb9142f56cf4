"""Process of a `MemoryShell`: bashkit and the shell's files, without access to the host.

It writes READY once it is locked down. Its standard input is a socket that receives each request as a new connection,
with RUN for a command and FILES for anything else. A connection carries frames: the lengths of two parts, a JSON
message, and bytes. The host sends one frame, and gets replies until "done" or an "error". A command is cancelled when
the host shuts down its half of the connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import posixpath
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from corral.jail.launcher import receive
from corral.jail.workers.lockdown import lock_down

if TYPE_CHECKING:
    from bashkit import Bash, BuiltinContext, BuiltinResult, ExecResult

READY = b"corral shell\n"
RUN, FILES = b"r", b"f"
HEADER = struct.Struct(">II")
HOME = "/workspace"
MESSAGE_BYTES = 64_000
"""Maximum bytes of a reply's JSON. The library's paths have up to 4,096 bytes."""
DATA_BYTES = 10_000_000
"""Maximum bytes that follow a reply's JSON: the library's maximum for a file."""
BOOT = """
import json, sys, types
sys.path[:], root = json.loads(sys.argv.pop(1))
for name in ("corral", "corral.jail", "corral.shells", "corral.jail.workers"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [root + name.removeprefix("corral").replace(".", "/")]
from corral.shells.memory_worker import serve
serve()
"""
"""Program for `python -I -S -B -c`, with the import path and corral's folder as arguments. It imports single modules of
corral, because the packages would take three times as long as everything else."""
_FOLDERS = (HOME, "/tmp", "/dev")  # noqa: S108
_VARIABLE_BYTES = 10_000_000
_ENDLESS = ("jq", "yq", "tomlq")
"""Commands that continue after they were cancelled, and so block all commands of the shell."""
_LATER = ("concurrent.futures.thread", "encodings.idna", "encodings.latin_1", "traceback")
"""Modules that the standard library imports on demand, which would be too late after the lock-down."""

Message: TypeAlias = Mapping[str, Any]
Reply: TypeAlias = tuple[Message, bytes]


class _Stamp(NamedTuple):
    """Metadata that detects changes of a file; for a folder, only its kind and mode."""

    kind: str
    mode: int
    size: int = 0
    modified: float = 0.0


_UNKNOWN = _Stamp("", 0)


def frame(message: Message, data: bytes = b"") -> bytes:
    """Encodes a message and bytes."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(text), len(data)) + text + data


def serve() -> None:
    """Serves requests until the host closes the socket."""
    library = import_module("bashkit")
    for name in _LATER:
        import_module(name)
    library.Bash().execute_sync(":")  # starts the library's threads, which load more modules
    worker = _Worker(library)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    control = socket.socket(fileno=0)
    if sys.platform == "linux":
        lock_down("interpreter")
    os.write(1, READY)
    for stream in (1, 2):  # nothing reads the outputs
        os.dup2(nowhere, stream)
    asyncio.run(worker.run(control))


class _Worker:
    def __init__(self, library: Any) -> None:
        self._library = library
        self._system = library.FileSystem()
        self._known: dict[str, _Stamp] = {}
        """Files of which the host has a copy."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: Mapping[str, Callable[..., Iterator[Reply]]] = {
            "read": self._read,
            "write": self._write,
            "stat": self._stat,
            "list": self._list,
            "make_directory": self._make_directory,
            "delete": self._delete,
            "changes": self._changes,
        }
        for entry in self._system.read_dir("/"):
            if f"/{entry['name']}" not in _FOLDERS:
                self._system.remove(f"/{entry['name']}", recursive=True)
        self._system.mkdir(HOME)

    async def run(self, control: socket.socket) -> None:
        """Starts requests as they arrive. Ends only with the process."""
        loop = asyncio.get_running_loop()

        def accept() -> None:
            kind, descriptors = receive(control, 1, 1)
            if not kind:
                os._exit(0)  # the host is gone
            for descriptor in descriptors:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)
                work = self._command(connection) if kind == RUN else asyncio.to_thread(self._files, connection)
                task = loop.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._forget)

        loop.add_reader(control, accept)
        await loop.create_future()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.exception()  # the host no longer waits for the answer

    async def _command(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sending = asyncio.Lock()

        async def send(message: Message, data: bytes = b"") -> None:
            async with sending:
                await loop.sock_sendall(connection, frame(message, data))

        async def take(name: str, data: bytes) -> None:
            await send({"output": name}, data)

        with connection:
            message, _ = await asyncio.to_thread(_received, connection)
            connection.setblocking(False)
            folder = self._described(message["cwd"])
            if folder is None or folder["file_type"] != "directory":
                await send({"error": "there is no such folder to run the command in"})
                return
            await send({"started": True})
            try:
                end = {"done": True, "code": await self._executed(message, loop.sock_recv(connection, 1), take)}
            except BaseException as error:
                end = {"error": f"{type(error).__name__}: {error}"[:1000]}
            await send(end)

    async def _executed(self, message: Message, cancelled: Any, take: Any) -> int | None:
        """Runs a command, and returns its exit code; None if it was cancelled."""
        bash: Bash = self._bash(message)
        work = asyncio.ensure_future(
            bash.execute(message["command"], stdout=partial(take, "stdout"), stderr=partial(take, "stderr"))
        )
        ending = asyncio.ensure_future(cancelled)
        await asyncio.wait([work, ending], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            bash.cancel()
            work.cancel()
            await asyncio.wait([work])
            await self._library.Bash().execute(":")  # waits until the library has left the command's last step
            return None
        ending.cancel()
        done: ExecResult = work.result()
        if done.stdout_truncated or done.stderr_truncated:
            await take("stderr", b"bash: output over 1 MiB was left out\n")
        if done.error is not None:  # a limit, or a syntax error
            await take("stderr", f"bash: {done.error}\n".encode())
        return done.exit_code

    def _bash(self, message: Message) -> Bash:
        bash = self._library.Bash(
            cwd=message["cwd"],
            env=message["env"],
            timeout_seconds=message["seconds"],
            max_commands=message["steps"],
            max_loop_iterations=message["steps"],
            max_memory=_VARIABLE_BYTES,
            custom_builtins=dict.fromkeys(_ENDLESS, partial(_absent, self._library.BuiltinResult)),
        )
        bash.mount("/", self._system)
        return bash

    def _files(self, connection: socket.socket) -> None:
        with connection:
            message, data = _received(connection)
            try:
                if message["do"] == "restore":
                    self._restore(connection)
                else:
                    for reply, part in self._requests[message.pop("do")](**message, **({"data": data} if data else {})):
                        connection.sendall(frame(reply, part))
                answer: Message = {"done": True}
            except Exception as error:  # the library raises RuntimeError for everything
                answer = {"error": str(error).removeprefix("io error: ")[:1000] or type(error).__name__}
            connection.sendall(frame(answer))

    def _read(self, path: str, max_bytes: int) -> Iterator[Reply]:
        status = self._described(path)
        if status is None:
            return
        if status["file_type"] != "file":
            raise ValueError(f"it is not a regular file, but a {status['file_type']}")
        if status["size"] > max_bytes:
            raise ValueError(f"it is larger than max_bytes={max_bytes}")
        yield {}, self._system.read_file(path)

    def _write(self, path: str, data: bytes = b"") -> Iterator[Reply]:
        self._system.mkdir(posixpath.dirname(path), recursive=True)
        self._system.write_file(path, data)
        self._known[path] = stamp = _stamp(self._system.stat(path))
        yield {"mode": stamp.mode}, b""

    def _stat(self, path: str) -> Iterator[Reply]:
        status = self._described(path)
        if status is not None:
            yield {"kind": status["file_type"], "size": status["size"]}, b""

    def _list(self, path: str, *, recursive: bool, most: int) -> Iterator[Reply]:
        if self._described(path) is None:
            return
        yield {}, b""
        for _, (entry_path, stamp) in zip(range(most + 1), self._walk(path, recursive=recursive), strict=False):
            size = stamp.size
            yield {"path": entry_path[len(path.rstrip("/")) + 1 :], "kind": stamp.kind, "size": size}, b""

    def _make_directory(self, path: str) -> Iterator[Reply]:
        self._system.mkdir(path, recursive=True)
        return iter(())

    def _delete(self, path: str) -> Iterator[Reply]:
        status = self._described(path)
        if status is not None:
            self._system.remove(path, recursive=status["file_type"] == "directory")
            yield {}, b""

    def _changes(self, *, all: bool) -> Iterator[Reply]:
        """Yields changes since the last call: first removals, then each folder before its content."""
        now = self._state()
        if all:
            self._known = dict.fromkeys(self._known, _UNKNOWN)
        for path in self._known.keys() - now.keys():
            del self._known[path]
            yield {"path": path, "kind": None}, b""
        for path, stamp in now.items():
            if self._known.get(path) == stamp:
                continue
            try:
                data = self._content(path, stamp.kind)
            except RuntimeError:  # a running command might have removed it
                continue
            self._known[path] = stamp
            yield {"path": path, "kind": stamp.kind, "mode": stamp.mode}, data

    def _content(self, path: str, kind: str) -> bytes:
        if kind == "file":
            return self._system.read_file(path)
        return self._system.read_link(path).encode() if kind == "symlink" else b""

    def _restore(self, connection: socket.socket) -> None:
        """Receives the files of an earlier process."""
        while True:
            message, data = _received(connection)
            match message:
                case {"path": path, "kind": "directory", "mode": mode}:
                    self._system.mkdir(path, recursive=True)
                    self._system.chmod(path, mode)
                case {"path": path, "kind": "symlink"}:
                    self._system.symlink(data.decode(), path)
                case {"path": path, "kind": "file", "mode": mode}:
                    self._system.write_file(path, data)
                    self._system.chmod(path, mode)
                case _:
                    self._known = self._state()
                    return

    def _described(self, path: str) -> dict[str, Any] | None:
        try:
            return self._system.stat(path)
        except RuntimeError:
            return None

    def _state(self) -> dict[str, _Stamp]:
        return dict(self._walk("/", but="/dev"))

    def _walk(self, folder: str, *, recursive: bool = True, but: str = "") -> Iterator[tuple[str, _Stamp]]:
        """Walks a folder, each folder before its content, without the content of the folder `but`."""
        folders = [folder]
        while folders:
            current = folders.pop()
            try:
                entries = self._system.read_dir(current)
            except RuntimeError:
                if current == folder:
                    raise
                continue  # a running command might have removed it
            for entry in entries:
                path = posixpath.join(current, entry["name"])
                stamp = _stamp(entry["metadata"])
                yield path, stamp
                if recursive and stamp.kind == "directory" and path != but:
                    folders.append(path)


def _stamp(metadata: Mapping[str, Any]) -> _Stamp:
    if metadata["file_type"] == "directory":
        return _Stamp("directory", metadata["mode"])
    return _Stamp(metadata["file_type"], metadata["mode"], metadata["size"], metadata["modified"])


def _absent(result: type[BuiltinResult], context: BuiltinContext) -> BuiltinResult:
    return result("", f"bash: {context.name}: command not found\n", 127)


def _received(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Receives a frame from the host, which is trusted."""
    lengths = HEADER.unpack(_exactly(connection, HEADER.size))
    text, data = (_exactly(connection, length) for length in lengths)
    return json.loads(text), data


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        taken = connection.recv_into(rest)
        if not taken:
            raise EOFError("the host has ended the connection")
        rest = rest[taken:]
    return bytes(data)

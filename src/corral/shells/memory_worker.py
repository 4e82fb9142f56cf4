"""The process of a `MemoryShell`: bashkit, the files of the shell, and nothing of the host.

It says READY once it is locked down. Its standard input is a socket, on which each request comes as a connection of its
own, with RUN for a command and FILES for anything else. On a connection travel frames: the lengths of two parts, then
a message as JSON, and bytes. The host sends one, and gets replies until "done", or an "error". A command is cancelled
when the host ends its half of the connection.
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
"""Maximum of a reply's JSON. The library's paths have 4,096 bytes."""
DATA_BYTES = 10_000_000
"""Maximum of a reply's bytes, which is the library's for a file."""
BOOT = """
import json, sys, types
sys.path[:], root = json.loads(sys.argv.pop(1))
for name in ("corral", "corral.jail", "corral.shells", "corral.jail.workers"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [root + name.removeprefix("corral").replace(".", "/")]
from corral.shells.memory_worker import serve
serve()
"""
"""Starts it with `python -I -S -B -c`, given folders to import from and that of corral, of whose packages it imports
single modules: the packages themselves take three times as long as all the rest."""
_FOLDERS = (HOME, "/tmp", "/dev")  # noqa: S108
_VARIABLE_BYTES = 10_000_000
_ENDLESS = ("jq", "yq", "tomlq")
"""Commands that compute on after they were cancelled, and keep those of the whole shell waiting."""
_LATER = ("concurrent.futures.thread", "encodings.idna", "encodings.latin_1", "traceback")
"""Imported by the standard library only when they are needed, which is too late."""

Message: TypeAlias = Mapping[str, Any]
Reply: TypeAlias = tuple[Message, bytes]


class _Stamp(NamedTuple):
    """Data by which a change of a file shows: of a folder only its kind and mode."""

    kind: str
    mode: int
    size: int = 0
    modified: float = 0.0


_UNKNOWN = _Stamp("", 0)


def frame(message: Message, data: bytes = b"") -> bytes:
    """A message and bytes as they are sent."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(text), len(data)) + text + data


def serve() -> None:
    """Answers requests until the host is gone."""
    library = import_module("bashkit")
    for name in _LATER:
        import_module(name)
    library.Bash().execute_sync(":")  # it then has its threads, and what those load
    worker = _Worker(library)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    control = socket.socket(fileno=0)
    if sys.platform == "linux":
        lock_down("interpreter")
    os.write(1, READY)
    for stream in (1, 2):  # which nobody reads
        os.dup2(nowhere, stream)
    asyncio.run(worker.run(control))


class _Worker:
    def __init__(self, library: Any) -> None:
        self._library = library
        self._system = library.FileSystem()
        self._known: dict[str, _Stamp] = {}
        """All that the host has a copy of."""
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
        """Begins requests as they come. It ends by the end of the process."""
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
        task.exception()  # the host has not waited for the answer

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
            found = self._described(message["cwd"])
            if found is None or found["file_type"] != "directory":
                await send({"error": "there is no such folder to run the command in"})
                return
            await send({"started": True})
            try:
                end = {"done": True, "code": await self._executed(message, loop.sock_recv(connection, 1), take)}
            except BaseException as error:
                end = {"error": f"{type(error).__name__}: {error}"[:1000]}
            await send(end)

    async def _executed(self, message: Message, cancelled: Any, take: Any) -> int | None:
        """The exit code; None if it was cancelled."""
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
            await self._library.Bash().execute(":")  # only now the library has left what the command did last
            return None
        ending.cancel()
        done: ExecResult = work.result()
        if done.stdout_truncated or done.stderr_truncated:
            await take("stderr", b"bash: what is over 1 MiB of an output was left out\n")
        if done.error is not None:  # a bound, or a fault of the syntax
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
            except Exception as error:  # the library has no other kind of errors than RuntimeError
                answer = {"error": str(error).removeprefix("io error: ")[:1000] or type(error).__name__}
            connection.sendall(frame(answer))

    def _read(self, path: str, max_bytes: int) -> Iterator[Reply]:
        found = self._described(path)
        if found is None:
            return
        if found["file_type"] != "file":
            raise ValueError(f"it is no regular file, but a {found['file_type']}")
        if found["size"] > max_bytes:
            raise ValueError(f"it is larger than max_bytes={max_bytes}")
        yield {}, self._system.read_file(path)

    def _write(self, path: str, data: bytes = b"") -> Iterator[Reply]:
        self._system.mkdir(posixpath.dirname(path), recursive=True)
        self._system.write_file(path, data)
        self._known[path] = stamp = _stamp(self._system.stat(path))
        yield {"mode": stamp.mode}, b""

    def _stat(self, path: str) -> Iterator[Reply]:
        found = self._described(path)
        if found is not None:
            yield {"kind": found["file_type"], "size": found["size"]}, b""

    def _list(self, path: str, *, recursive: bool, most: int) -> Iterator[Reply]:
        if self._described(path) is None:
            return
        yield {}, b""
        for _, (found, stamp) in zip(range(most + 1), self._walk(path, recursive=recursive), strict=False):
            size = stamp.size
            yield {"path": found[len(path.rstrip("/")) + 1 :], "kind": stamp.kind, "size": size}, b""

    def _make_directory(self, path: str) -> Iterator[Reply]:
        self._system.mkdir(path, recursive=True)
        return iter(())

    def _delete(self, path: str) -> Iterator[Reply]:
        found = self._described(path)
        if found is not None:
            self._system.remove(path, recursive=found["file_type"] == "directory")
            yield {}, b""

    def _changes(self, *, all: bool) -> Iterator[Reply]:
        """All that the host does not know of yet: what is gone, and then each file before those within it."""
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
            except RuntimeError:  # a command at work has removed it meanwhile
                continue
            self._known[path] = stamp
            yield {"path": path, "kind": stamp.kind, "mode": stamp.mode}, data

    def _content(self, path: str, kind: str) -> bytes:
        if kind == "file":
            return self._system.read_file(path)
        return self._system.read_link(path).encode() if kind == "symlink" else b""

    def _restore(self, connection: socket.socket) -> None:
        """Takes files that an earlier process had."""
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
        """All below a folder, each folder before what is in it, and nothing that is in the folder `but`."""
        folders = [folder]
        while folders:
            current = folders.pop()
            try:
                entries = self._system.read_dir(current)
            except RuntimeError:
                if current == folder:
                    raise
                continue  # a command at work has removed it meanwhile
            for entry in entries:
                path = posixpath.join(current, entry["name"])
                stamp = _stamp(entry["metadata"])
                yield path, stamp
                if recursive and stamp.kind == "directory" and path != but:
                    folders.append(path)


def _stamp(found: Mapping[str, Any]) -> _Stamp:
    if found["file_type"] == "directory":
        return _Stamp("directory", found["mode"])
    return _Stamp(found["file_type"], found["mode"], found["size"], found["modified"])


def _absent(result: type[BuiltinResult], context: BuiltinContext) -> BuiltinResult:
    return result("", f"bash: {context.name}: command not found\n", 127)


def _received(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """A frame of the host's, which is trusted."""
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

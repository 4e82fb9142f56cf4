"""Server of guests in WebAssembly: runs the programs of one owner, each in a separate instance.

It is the last of the modules that `boot.py` loads. In a jail, requests for executions arrive on its standard input,
like those of the Python guests' fork server:

    {...}  [connection, lifeline] one execution: the host sends the processor seconds of its program, as a double in
        little endian, and then frames; the lifeline tells the status, as that of a process, if the program is ended

Without a jail, as on macOS and Windows, its standard streams are plain pipes that all executions share, in both
directions as messages of `u32 execution | u8 kind | u32 length | payload`, in little endian:

    OPEN    sent by the host: begins an execution, with the first bytes of its connection
    DATA    bytes of the connection
    CREDIT  sent by the host: a u32, the number of bytes that it has handled
    END     the connection is closed; the server's has the lifeline's message as JSON, or nothing

READY is DATA of the execution 0.

At most `WINDOW_BYTES` of an execution are on their way to the host, so a slow host stops only that execution.

The guest does not know the frames' format: this process puts the nonce of START into every frame that it sends.

This process also saves and restores guests of durable executions: see `_Guest.saved`.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import gc
import hashlib
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Collection, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from corral.guest.python.frames import HEADER_BYTES, NO_NONCE, NONCE_BYTES, PROTOCOL, FrameKind, encode_frame
from corral.guest.wasm.engine import (
    THREAD_STACK_BYTES,
    Engine,
    Instance,
    Trapped,
    WasmError,
    answer,
    library_name,
    numbers,
)
from corral.guest.wasm.image import (
    BUFFER_BYTES,
    HANDLES,
    IDENTITY,
    INTERPRETS,
    MODULE,
    PAGE,
    STACK_END,
    TIMED,
    bytes_in,
    text_in,
)
from corral.jail.launcher import receive, tell
from corral.jail.privileges import forgo_privileges, hide, seal
from corral.jail.seccomp import filter_program, supported

MOST_AT_ONCE = 256
_TICK_SECONDS = 0.01
_TICKS = 1
_SPARES = 2
"""Number of instances that are made before they are needed."""
_QUIET_TICKS = 10
"""Number of ticks without a turn after which they stop."""
TOTAL_MB = 4096
"""Maximum memory of all programs of a process, beside that of one."""
_GARBAGE_OBJECTS = 20_000
"""New objects until a garbage collection, of which cycles are few: those of errors."""
_SMALL_BYTES = 2048
"""Maximum size of a frame that the guest finds among others."""
_SECONDS = struct.Struct("<d")
_READ_BYTES = 1 << 16
_RESERVE_BYTES = 8 << 20
"""Memory beyond the program's limit, with which the guest reports that it is used up."""
_GUEST_BYTES = 4 << 20
"""Memory of a guest that has run nothing yet."""
_FULL = 0.9
"""Part of the memory in use from which a failure means that it is used up."""
_AGAIN, _ENDED = "?", "!"
"""Results of a turn: see guest/typescript/wasm/main.ts. Others are milliseconds until a timer is due."""
_RESULT = re.compile(rb"[?!]|\d{1,16}(?:\.\d{1,20})?(?:e-\d{1,3})?")
_MOST_RESULT = 50
_MOST_MILLISECONDS = 1e9
_FROM_GUEST = frozenset(kind for kind in FrameKind if FrameKind.READY < kind < FrameKind.SAVED)
_HEAD = 3
"""Characters before the payload of a frame of the guest: its kind, and 1 if it is tagged."""
_LENGTH = 4
_READY = encode_frame(FrameKind.READY, b"[%d]" % PROTOCOL, NO_NONCE)
_OUT_OF_CPU = -getattr(signal, "SIGXCPU", 24)
_OUT_OF_MEMORY = -signal.SIGABRT
_MOST_RANDOM = 65_536
_BELOW_MEMORY = re.compile(r"at wasm address 0xf{4}[0-9a-f]{4} in linear")
"""Matches the trap of a stack that grows below the beginning of memory, where it is. The engine does not check it."""
_REPORT_CHARS = 2000
_STACK = b'["error",["program_failed","RangeError","Maximum call stack size exceeded","",null],[],0,[]]'
_KIND = (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0) if sys.platform != "win32" else ()
MESSAGE = struct.Struct("<IBI")
OPEN, DATA, CREDIT, END = 0, 1, 2, 3
"""Kinds of messages on plain pipes."""
WINDOW_BYTES = 1 << 20
_ZEROS = bytes(PAGE)
_SAVED = struct.Struct("<32sII")
"""Head of a saved guest: identity of its image, pages of its memory, and number of pages that follow."""
PIPES = "pipes"
"""Argument that selects plain pipes."""


class _Ended(Exception):
    """The host has closed the connection."""


class _Connection(Protocol):
    """Connection of one execution to the host."""

    guest: _Guest | None
    """Its guest, once the host has sent something."""

    def receive(self) -> bytes:
        """Returns the bytes that have arrived; none if the host has closed it. Call it only if it is ready."""
        ...

    def wait(self) -> None:
        """Blocks until it is ready, or until `receive` blocks in its place."""
        ...

    def sendall(self, data: bytes, /) -> None: ...
    def is_gone(self) -> bool:
        """True once the host has closed it."""
        ...

    def tell(self, what: str, value: int | str) -> None:
        """Reports how the execution was ended."""
        ...

    def close(self) -> None: ...


class _Requests(Protocol):
    """Connections of all executions. Only one thread at a time may wait."""

    def start(self) -> None:
        """Reports READY."""
        ...

    def wait(self, seconds: float | None) -> list[_Connection] | None:
        """Waits for at most that time, or until `wake`. Returns the connections at which something has arrived.

        Returns None once the host has ended this process.
        """
        ...

    def wake(self) -> None: ...
    def watch(self, connection: Any, /) -> None:
        """Has `wait` return the connection again after `ignore`, also for bytes that arrived meanwhile."""
        ...

    def ignore(self, connection: Any, /) -> None: ...


class _SocketConnection:
    """Connection and lifeline, as descriptors from the host."""

    guest: _Guest | None = None

    def __init__(self, descriptors: list[int]) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptors[0])
        self._lifeline = socket.socket(*_KIND, fileno=descriptors[1])
        self.number = descriptors[0]
        self.sendall = self._connection.sendall

    def receive(self) -> bytes:
        try:
            return self._connection.recv(_READ_BYTES)
        except ConnectionError:
            return b""

    def wait(self) -> None:
        """Does nothing, because `receive` blocks."""

    def is_gone(self) -> bool:
        poll = select.poll()
        poll.register(self.number, getattr(select, "POLLRDHUP", select.POLLHUP))
        return bool(poll.poll(0))

    def tell(self, what: str, value: int | str) -> None:
        tell(self._lifeline, what, value)

    def close(self) -> None:
        self._connection.close()
        self._lifeline.close()


class _Sockets:
    """Requests on a socket, each with the descriptors of a connection."""

    def __init__(self) -> None:
        os.set_blocking(2, False)  # see `_report`
        self._control = socket.socket(*_KIND, fileno=os.dup(0))
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._connections: dict[int, _SocketConnection] = {}
        self._events = select.epoll()
        self._events.register(self._control, select.EPOLLIN)
        self._events.register(self._wakeup, select.EPOLLIN)

    def start(self) -> None:
        os.write(1, _READY)

    def wait(self, seconds: float | None) -> list[_Connection] | None:
        ready: list[_Connection] = []
        for number, _ in self._events.poll(seconds):
            if (connection := self._connections.get(number)) is not None:
                ready.append(connection)
            elif number == self._wakeup:
                os.eventfd_read(number)
            elif number == self._control.fileno() and not self._accept():
                return None
        return ready

    def _accept(self) -> bool:
        """Takes a request. Returns False once the host has closed the socket."""
        try:
            message, descriptors = receive(self._control, _READ_BYTES, 2)
        except ConnectionError:
            return False
        if len(descriptors) == 2:
            self.watch(_SocketConnection(descriptors))
        else:
            for descriptor in descriptors:  # none were left for the others
                os.close(descriptor)
        return bool(message)

    def wake(self) -> None:
        os.eventfd_write(self._wakeup, 1)

    def watch(self, connection: _SocketConnection) -> None:
        self._connections[connection.number] = connection
        self._events.register(connection.number, select.EPOLLIN | select.EPOLLRDHUP)

    def ignore(self, connection: _SocketConnection) -> None:
        if self._connections.pop(connection.number, None) is not None:
            self._events.unregister(connection.number)


class _PipedConnection:
    """Connection over the pipes that all executions share."""

    guest: _Guest | None = None

    def __init__(self, pipes: _Pipes, number: int) -> None:
        self._pipes = pipes
        self.number = number
        self._changed = threading.Condition()
        self._received = bytearray()
        self._is_gone = False
        self._window = WINDOW_BYTES
        self._end = b""
        self.is_watched = True

    def receive(self) -> bytes:
        with self._changed:
            data = bytes(self._received)
            self._received.clear()
            return data

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(self.has_input)

    def has_input(self) -> bool:
        """True if something has arrived, or the host has closed it."""
        return bool(self._received) or self._is_gone

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), _READ_BYTES):
            piece = data[start : start + _READ_BYTES]
            with self._changed:
                while self._window < len(piece) and not self._is_gone:
                    self._changed.wait()
                if self._is_gone:
                    raise BrokenPipeError
                self._window -= len(piece)
            self._pipes.send(self.number, DATA, piece)

    def is_gone(self) -> bool:
        return self._is_gone

    def tell(self, what: str, value: int | str) -> None:
        self._end = json.dumps({what: value}).encode()

    def close(self) -> None:
        self._pipes.forget(self.number)
        self._pipes.send(self.number, END, self._end)

    def take(self, kind: int, payload: bytes) -> None:
        """Takes a message of the host."""
        with self._changed:
            if kind in (OPEN, DATA):
                self._received += payload
            elif kind == CREDIT:
                self._window += int.from_bytes(payload, "little")
            else:
                self._is_gone = True
            self._changed.notify_all()


class _Pipes:
    """Executions on the standard streams of a process."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.buffer, sys.stdout.buffer
        sys.stdout = sys.stderr  # nothing else may write there
        self._connections: dict[int, _PipedConnection] = {}
        self._ready: SimpleQueue[_PipedConnection | None] = SimpleQueue()
        self._writing = threading.Lock()

    def start(self) -> None:
        self.send(0, DATA, _READY)
        threading.Thread(target=self._receive, daemon=True).start()

    def wait(self, seconds: float | None) -> list[_Connection] | None:
        try:
            connection = self._ready.get(timeout=seconds)
        except Empty:
            return []
        return [connection] if connection is not None and connection.is_watched and connection.has_input() else []

    def wake(self) -> None:
        self._ready.put(None)

    def watch(self, connection: _PipedConnection) -> None:
        connection.is_watched = True
        self._ready.put(connection)

    def ignore(self, connection: _PipedConnection) -> None:
        connection.is_watched = False

    def send(self, number: int, kind: int, payload: bytes) -> None:
        with self._writing:
            self._output.write(MESSAGE.pack(number, kind, len(payload)) + payload)
            self._output.flush()

    def forget(self, number: int) -> None:
        self._connections.pop(number, None)

    def _receive(self) -> None:
        """Reads until the host closes the pipe or ends. Then this process ends too."""
        try:
            while header := self._input.read(MESSAGE.size):
                number, kind, size = MESSAGE.unpack(header)
                payload = self._input.read(size)
                if kind == OPEN:
                    self._connections[number] = _PipedConnection(self, number)
                if (connection := self._connections.get(number)) is not None:  # it can have ended
                    connection.take(kind, payload)
                    self._ready.put(connection)
        finally:
            os._exit(0)


class _Guest:
    """Instance, and the functions by which its program is driven."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._handles = server.handles
        self._connection: _Connection | None = None
        self._nonce = NO_NONCE
        self.seconds_left: float | None = None
        """Processor time that is left, once the host has sent it."""
        self.due: float | None = None
        """Time at which a timer is due, by `time.monotonic`."""
        self._started = 0.0
        self.is_out_of_cpu = False
        self._is_gone = False
        self._is_crowded = False
        self.bytes = 0
        """Size of its memory at the end of the last turn."""
        self.ended = False
        self._read = bytearray()
        self._result = ""
        self.instance = Instance(server.engine, self._tick, _TICKS)  # which can call `_tick` already
        self.instance.call("set_memory_limit", server.memory_bytes + _GUEST_BYTES)

    # --- one execution

    def run(self, connection: _Connection, *, is_due: bool) -> None:
        """Runs one turn of a connection's program: handles the frames that have arrived, or the timer that is due."""
        self._connection = connection
        self._started = time.thread_time()
        try:
            if is_due:
                self._call("fire")
            elif frames := self._receive():
                self._take_all(frames)
            else:
                return
            wait = self._settle()
            self.due = None if wait is None else time.monotonic() + wait
        except _Ended:
            self.ended = True
        except Trapped as trap:
            self.ended = True
            if (status := self._status(trap)) is not None:
                connection.tell("status", status)

    def _receive(self) -> list[bytes]:
        """Returns the frames that have arrived completely."""
        assert self._connection is not None
        if not (data := self._connection.receive()):
            self._is_gone = True
            raise _Ended
        read = self._read
        read += data
        if self.seconds_left is None and len(read) >= _SECONDS.size:
            (self.seconds_left,) = _SECONDS.unpack_from(read)
            del read[: _SECONDS.size]
        return [] if self.seconds_left is None else self._complete()

    def await_frames(self) -> list[bytes]:
        """Waits for frames within a turn. If that takes long, another thread serves the other executions."""
        assert self._connection is not None
        while True:
            self._connection.wait()
            if frames := self._receive():
                return frames

    def _settle(self) -> float | None:
        """Runs all microtasks. Returns the seconds until a timer is due, or None if there is none."""
        while (result := self._turn()) == _AGAIN:
            pass
        self.ended = result == _ENDED
        return None if self.ended or not result else min(float(result), _MOST_MILLISECONDS) / 1000

    def _turn(self) -> str:
        self._result = ""
        self.instance.call("execute_pending_jobs")
        self._call("settle")
        now = time.thread_time()
        assert self.seconds_left is not None
        self.seconds_left -= now - self._started
        self._started = now
        if not self._may_go_on(now):
            raise Trapped("a limit is exceeded")
        return self._result

    def _tick(self) -> bool:
        """Called regularly while the guest's code runs. Returns False to end it."""
        if self._connection is None:  # it is being made
            return True
        self._is_gone = self._connection.is_gone()
        return self._may_go_on(time.thread_time()) and not self._is_gone

    def _may_go_on(self, now: float) -> bool:
        if self.seconds_left is not None and now - self._started >= self.seconds_left:
            self.is_out_of_cpu = True
        if (size := self.instance.size) > self.bytes:
            self.bytes = size
            self._is_crowded = self._server.is_full()
        return not (self.is_out_of_cpu or self._is_crowded)

    def _status(self, trap: Trapped) -> int | None:
        if self._is_gone:
            return None
        if self.is_out_of_cpu:
            return _OUT_OF_CPU
        if "call stack exhausted" in str(trap) or _BELOW_MEMORY.search(str(trap)):
            self._send_frame(FrameKind.EXIT, _STACK, tagged=False)
            return None
        if self._is_crowded or self.instance.size >= (self._server.memory_bytes + _GUEST_BYTES) * _FULL:
            return _OUT_OF_MEMORY
        _report(f"a guest was ended: {trap}")
        return 1

    # --- frames

    def _complete(self) -> list[bytes]:
        """Removes the complete frames from the received bytes, and returns them in the form that the guest takes.

        That is a line for each: kind, 1 if it is tagged, and payload.
        """
        frames: list[bytes] = []
        read = self._read
        while len(read) >= _LENGTH and len(read) >= (total := _LENGTH + int.from_bytes(read[:_LENGTH], "big")):
            if self._nonce is NO_NONCE:
                self._nonce = bytes(read[HEADER_BYTES - NONCE_BYTES : HEADER_BYTES])
            kind, payload = read[_LENGTH], read[HEADER_BYTES:total]
            if kind < FrameKind.SAVE:
                payload = payload.replace(b"\n", b" ")  # JSON has newlines only between its tokens
                frames.append(b"%02d%d%b" % (kind, read[_LENGTH + 1] & 1, payload))
            elif kind == FrameKind.SAVE:  # taken before the frames that follow it, so nothing is left to run
                self._send_frame(FrameKind.SAVED, self.saved(json.loads(payload)[0]), tagged=False)
            else:
                self._send_frame(FrameKind.SAVED, b"1" if self.restore(bytes(payload)) else b"", tagged=False)
            del read[:total]
        return frames

    def send(self, data: bytes) -> None:
        """Sends frames that the guest has written without their headers, or notes the result of a turn.

        Raises:
            Trapped: they are malformed.
        """
        if len(data) <= _MOST_RESULT and _RESULT.fullmatch(data):
            self._result = data.decode()
            return
        parts: list[bytes] = []
        for line in data.split(b"\n"):
            kind = line[:2]
            if not kind.isdigit() or int(kind) not in _FROM_GUEST or line[2:_HEAD] not in (b"0", b"1"):
                raise Trapped("the guest sent a malformed frame")
            parts.append(encode_frame(FrameKind(int(kind)), line[_HEAD:], self._nonce, tagged=line[2:_HEAD] == b"1"))
        self._write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _send_frame(self, kind: FrameKind, payload: bytes, *, tagged: bool) -> None:
        with contextlib.suppress(_Ended):
            self._write(encode_frame(kind, payload, self._nonce, tagged=tagged))

    def _write(self, data: bytes) -> None:
        assert self._connection is not None
        try:
            self._connection.sendall(data)
        except OSError:
            self._is_gone = True
            raise _Ended from None

    # --- saved guests

    def saved(self, most: int) -> bytes:
        """Returns the pages of memory that differ from the image, compressed; nothing if they take more than `most`.

        That is the whole state of a guest between two turns, as for the image itself. Pages of the image are stored as
        their differences from it, which are mostly zeros, except for those that each image has for itself.
        """
        memory = self.instance.read(0, self.instance.size)
        try:
            image = self._server.image()
        except (WasmError, Trapped):  # there is no room for another instance
            return b""
        timed = self._server.handles[TIMED]
        numbers = [
            at // PAGE
            for at in range(STACK_END, len(memory), PAGE)
            if memory[at : at + PAGE] != (image[at : at + PAGE] or _ZEROS) or at // PAGE in timed
        ]
        pages = _difference(_pages(memory, numbers), _pages(image, numbers, timed))
        head = _SAVED.pack(bytes.fromhex(self._server.handles[IDENTITY]), len(memory) // PAGE, len(numbers))
        body = zlib.compress(struct.pack(f"<{len(numbers)}I", *numbers) + pages, 1)
        return b"" if len(head) + len(body) > most else head + body

    def restore(self, saved: bytes) -> bool:
        """Makes this guest, which has run nothing, one that was saved. Returns False if that had another image, or if
        `saved` is malformed; nothing is changed then."""
        server = self._server
        try:
            identity, size, count = _SAVED.unpack_from(saved)
            if identity.hex() != server.handles[IDENTITY] or not count <= size <= server.engine.memory_bytes // PAGE:
                return False
            unpacked = zlib.decompressobj()
            body = unpacked.decompress(saved[_SAVED.size :], count * (4 + PAGE) + 1)
            numbers = struct.unpack_from(f"<{count}I", body)
            if len(body) != count * (4 + PAGE) or not unpacked.eof:
                return False
            if any(a >= b for a, b in zip((STACK_END // PAGE - 1, *numbers), (*numbers, size), strict=True)):
                return False
            pages = _difference(body[4 * count :], _pages(server.image(), numbers, server.handles[TIMED]))
            self.instance.grow(size * PAGE)
        except (struct.error, zlib.error, WasmError, Trapped):
            return False
        for at, number in enumerate(numbers):
            self.instance.write(number * PAGE, pages[at * PAGE : (at + 1) * PAGE])
        self.instance.call("set_memory_limit", server.memory_bytes + _GUEST_BYTES)
        return True

    # --- calls of the guest's functions

    def _take_all(self, frames: list[bytes]) -> None:
        """Passes frames to the guest: large ones alone, and others together."""
        small: list[bytes] = []
        for frame in frames:
            if len(frame) <= _SMALL_BYTES:
                small.append(frame)
                continue
            if small:
                self._take("takeLines", b"\n".join(small))
                small = []
            self._take("take", frame)
        if small:
            self._take("take" if len(small) == 1 else "takeLines", b"\n".join(small))

    def _take(self, name: str, frames: bytes) -> None:
        instance, handles = self.instance, self._handles
        address, size = handles["buffer"], len(frames)
        large = size > BUFFER_BYTES
        if large and not (address := instance.call("qjs_alloc", size)):
            raise Trapped("there is no memory for frames")
        instance.write(address, frames)
        text = instance.call("new_string", address, size)
        if large:
            instance.call("qjs_free", address, size)
        instance.write(handles["arguments"], text.to_bytes(4, "little"))
        self._call(name, 1)
        instance.call("free_value", text)

    def _call(self, name: str, count: int = 0) -> None:
        """Calls one of the guest's functions."""
        handles = self._handles
        out = handles["out"]
        if self.instance.call("call_function", handles[name], handles["undefined"], handles["arguments"], count, out):
            raise Trapped(f"the guest's `{name}` failed: {self._failure()}")
        self.instance.call("free_value", int.from_bytes(self.instance.read(out, 4), "little"))

    def _failure(self) -> str:
        out = self._handles["out"]
        self.instance.call("set_memory_limit", self._server.memory_bytes + _GUEST_BYTES + _RESERVE_BYTES)
        if self.instance.call("last_exception", out):
            return "without an error"
        try:
            return text_in(self.instance, int.from_bytes(self.instance.read(out, 4), "little"))
        except WasmError:
            return "an error"

    def evaluate(self, script: bytes) -> int:
        """Evaluates a script while the guest runs. Returns the handle of its value, or of the error."""
        instance, out = self.instance, self._handles["out"]
        address = instance.call("qjs_alloc", len(script))
        if not address:
            raise Trapped("there is no memory for a script")
        instance.write(address, script)
        failed = instance.call("eval_code", address, len(script), out)
        instance.call("qjs_free", address, len(script))
        if failed and instance.call("last_exception", out):
            raise Trapped("a script failed without an error")
        return int.from_bytes(instance.read(out, 4), "little")

    def grant_reserve(self) -> bool:
        """Returns True, and the memory to report it, if the program has used up its memory."""
        if self.instance.size < self._server.memory_bytes * _FULL:
            return False
        self.instance.call("set_memory_limit", self._server.memory_bytes + _GUEST_BYTES + _RESERVE_BYTES)
        return True

    def close(self) -> None:
        self.instance.close()


class _Server:
    """All executions of this process.

    One thread waits for all of them, and runs a turn of each that is ready. If a turn takes longer than a tick, another
    thread takes over, and the first one ends with this turn. So programs that compute do not delay others, and most
    turns need no change of threads.
    """

    def __init__(self, requests: _Requests, library: str, image: str, memory_mb: int) -> None:
        self._requests = requests
        self.memory_bytes = memory_mb << 20
        with open(f"{image}/{HANDLES}", encoding="utf-8") as file:  # noqa: PTH123
            self.handles: dict[str, Any] = json.load(file)
        most = self.memory_bytes + _GUEST_BYTES + _RESERVE_BYTES
        self.engine = Engine(
            library,
            most=MOST_AT_ONCE + _SPARES,
            memory_bytes=(most + 0xFFFF) & ~0xFFFF,
            interprets=bool(self.handles[INTERPRETS]),
        )
        self.engine.load(f"{image}/{MODULE}", self._host_call)
        self._here = threading.local()
        self._lock = threading.Lock()
        self._spares = [_Guest(self)]
        self._running: set[_Guest] = set()
        self._timers: dict[_Connection, float] = {}
        """Connections whose next timer is due at a time."""
        self._leader: object = None
        """Identity of the thread that waits for all executions."""
        self._current: _Connection | None = None
        """Connection whose turn the leader runs."""
        self._turns = 0
        self._followers = 0
        """Turns of threads that lead no more."""
        self._busy = threading.Event()
        """Set while turns run, and some ticks longer."""
        self._over = threading.Event()

    def is_full(self) -> bool:
        """True if all programs together use more memory than they may."""
        return sum(guest.bytes for guest in [*self._running]) > self.memory_bytes + (TOTAL_MB << 20)

    def serve(self) -> None:
        """Serves executions until the host closes the connection."""
        threading.stack_size(THREAD_STACK_BYTES)
        threading.Thread(target=self._tick, daemon=True).start()
        self._start_leader()
        self._over.wait()

    def _tick(self) -> None:
        seen, quiet = 0, 0
        while True:
            self._busy.wait()
            time.sleep(_TICK_SECONDS)
            self.engine.tick()
            with self._lock:
                if self._current is not None and self._turns == seen:
                    self._replace_leader(self._current)
                quiet = quiet + 1 if self._turns == seen and not self._followers else 0
                seen = self._turns
                if quiet >= _QUIET_TICKS and self._current is None:
                    self._busy.clear()

    def _replace_leader(self, connection: _Connection) -> None:
        """Has another thread wait while a turn takes long. The caller holds the lock."""
        leader = self._leader
        try:
            self._start_leader()
        except RuntimeError:  # the system has no room for another thread: the others wait
            self._leader = leader
            return
        self._requests.ignore(connection)
        self._current = None
        self._followers += 1

    def _start_leader(self) -> None:
        self._leader = leader = object()
        threading.Thread(target=self._lead, args=(leader,), daemon=True).start()

    def _lead(self, leader: object) -> None:
        try:
            self._run_turns(leader)
        except BaseException as error:  # without a leader, all executions would wait forever
            _report(f"the server of programs failed: {type(error).__name__}: {error}")
            self._over.set()

    def _run_turns(self, leader: object) -> None:
        """Runs the turns of all executions, until another thread leads or the host has ended this process."""
        with self._lock:  # the turn of the previous leader is no longer watched
            pass
        while True:
            timers = self._timers
            first = min([*timers.values()]) - time.monotonic() if timers else None
            ready = self._requests.wait(None if first is None else max(first, 0.0))
            if ready is None:
                self._over.set()
                return
            for connection in ready:
                if not self._run(connection, leader, is_due=False):
                    return
            if not timers:
                continue
            now = time.monotonic()
            for connection in [each for each, due in [*timers.items()] if due <= now]:
                if connection in timers and not self._run(connection, leader, is_due=True):
                    return

    def _run(self, connection: _Connection, leader: object, *, is_due: bool) -> bool:
        """Runs a turn. Returns False if another thread leads now."""
        with self._lock:
            self._current = connection
            self._turns += 1
            self._timers.pop(connection, None)  # here, so that no other leader can run it at the same time
            if not self._busy.is_set():
                self._busy.set()
        self._take_turn(connection, is_due=is_due)
        with self._lock:
            leads = self._leader is leader
            if leads:
                self._current = None
            else:
                self._followers -= 1
            if (guest := connection.guest) is not None:
                if guest.due is not None:
                    self._timers[connection] = guest.due
                if not leads:
                    self._requests.watch(connection)
                    self._requests.wake()  # for its timer
        return leads

    def _take_turn(self, connection: _Connection, *, is_due: bool) -> None:
        """Runs a turn of the connection's guest, and closes both if that was the last one."""
        try:
            guest = connection.guest
            if guest is None:
                guest = connection.guest = self._guest()
                self._running.add(guest)
            self._here.guest = guest
            guest.run(connection, is_due=is_due)
            if not guest.ended:
                return
        except (WasmError, Trapped) as error:
            connection.tell("error", str(error))
        except BaseException as error:
            _report(f"an execution failed: {type(error).__name__}: {error}")
            connection.tell("status", 1)
        self._end(connection)

    def _end(self, connection: _Connection) -> None:
        with self._lock:
            self._requests.ignore(connection)
        with contextlib.suppress(OSError):  # the host has ended
            connection.close()
        guest, connection.guest = connection.guest, None
        self._here.guest = None
        if guest is not None:
            self._running.discard(guest)
            guest.close()
        if len(self._spares) < _SPARES:
            with contextlib.suppress(WasmError, Trapped):
                self._spares.append(_Guest(self))

    def _guest(self) -> _Guest:
        with contextlib.suppress(IndexError):
            return self._spares.pop()
        return _Guest(self)

    # --- saved guests

    def image(self) -> bytes:
        """Returns the memory with which every instance begins. Raises as `Instance`."""
        instance = Instance(self.engine)
        try:
            return instance.read(0, instance.size)
        finally:
            instance.close()

    # --- functions that guests call

    def _host_call(self, _: int, address: int, __: int) -> None:
        guest: _Guest = self._here.guest
        instance = guest.instance
        name, size, ___, count, arguments = numbers(address, 5)
        if count != 1:
            raise Trapped("the guest called its server with another number of arguments")
        handle = int.from_bytes(instance.read(arguments, 4), "little")
        data = bytes_in(instance, handle)
        match instance.read(name, size):
            case b"send":
                guest.send(data)
                answer(address, instance.call("new_undefined"))
                return
            case b"evaluate":
                answer(address, guest.evaluate(data))
                return
            case b"receive":
                frames = guest.await_frames()
                reply = (b"1" if len(frames) == 1 else b"+") + b"\n".join(frames)
            case _:
                reply = _answer(guest, data.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
        place = instance.call("qjs_alloc", len(reply))
        if reply and not place:
            raise Trapped("there is no memory for an answer")
        instance.write(place, reply)
        answer(address, instance.call("new_string", place, len(reply)))
        instance.call("qjs_free", place, len(reply))


def _report(text: str) -> None:
    """Writes a line to standard error. In a jail, it is lost if the pipe is full: the host reads that at the end."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text[:_REPORT_CHARS]}\n".encode("utf-8", "replace"))


def _pages(memory: bytes, numbers: Sequence[int], without: Collection[int] = ()) -> bytes:
    """Returns pages of memory, and zeros for those beyond its end or in `without`."""
    return b"".join(memory[n * PAGE : (n + 1) * PAGE] or _ZEROS if n not in without else _ZEROS for n in numbers)


def _difference(one: bytes, other: bytes) -> bytes:
    """Returns the bits in which two texts of the same length differ."""
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(one), "little")


# --- answers for the platform: see `Host.answer` in guest/typescript/platform/base.ts


class _Refused(Exception):
    """A question has an error as its answer."""

    def __init__(self, name: str, code: str, message: str) -> None:
        super().__init__(message)
        self.parts = name, code, message


def _answer(guest: _Guest, question: str) -> str:
    try:
        name, *arguments = json.loads(question)
        match name:
            case "seed":
                value: Any = list(struct.unpack("<4i", os.urandom(16)))
            case "full":
                value = guest.grant_reserve()
            case _:
                value = _ANSWERS[name](*arguments)
    except _Refused as error:
        return json.dumps({"error": error.parts})
    except Exception:  # only a program that has taken the guest apart asks such questions
        return json.dumps({"error": ["TypeError", "", "the question is malformed"]})
    return json.dumps({"value": value})


def _random(count: int) -> str:
    return base64.b64encode(os.urandom(min(max(count, 0), _MOST_RANDOM))).decode()


_LABELS = {
    label: name
    for name, labels in {
        "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
        "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
        "utf-16be": "unicodefffe utf-16be",
        "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
        "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    }.items()
    for label in labels.split()
}
"""Encodings of https://encoding.spec.whatwg.org that the platform has, by their labels."""


def _encoding(label: str) -> str:
    name = _LABELS.get(label.strip("\t\n\f\r ").lower())
    if name is None:
        known = ", ".join(sorted(set(_LABELS.values())))
        raise _Refused("RangeError", "", f"The encoding label provided ('{label}') is invalid here; there are {known}")
    return name


def _decode(encoding: str, fatal: bool, kept: str, data: str, stream: bool) -> list[str]:
    whole = base64.b64decode(kept) + base64.b64decode(data)
    if encoding == "windows-1252":
        return ["".join(map(_WINDOWS_1252.__getitem__, whole)), ""]
    decoder = codecs.getincrementaldecoder(encoding)("strict" if fatal else "replace")
    try:
        text = decoder.decode(whole, not stream)
    except UnicodeDecodeError:
        raise _Refused("TypeError", "ERR_ENCODING_INVALID_ENCODED_DATA", "The encoded data was not valid.") from None
    rest, _ = decoder.getstate()
    return [text, base64.b64encode(rest).decode()]


_WINDOWS_1252 = [bytes([code]).decode("cp1252", "ignore") or chr(code) for code in range(256)]
"""Characters by byte: those that the code page leaves out are controls."""


def _digest(name: str, data: str) -> str:
    return base64.b64encode(hashlib.new(name, base64.b64decode(data), usedforsecurity=False).digest()).decode()


_ANSWERS: dict[str, Any] = {"random": _random, "encoding": _encoding, "decode": _decode, "digest": _digest}


def serve(arguments: list[str]) -> None:
    """Prepares everything, reports READY, and serves until the host closes the pipe.

    `arguments` are the folders of wasmtime's library and of the image, the memory of a program in MiB, and `PIPES` if
    this process has no jail.
    """
    folder, image, memory_mb, *without_jail = arguments
    requests = _Pipes() if without_jail == [PIPES] else _Sockets()
    if sys.platform == "linux":
        hide()
    hashlib.sha256(b"").digest()
    server = _Server(requests, f"{folder}/{library_name()}", image, int(memory_mb))
    os.environ.clear()
    if sys.platform == "linux" and supported():  # from here on it starts nothing, and opens no file for writing
        with contextlib.suppress(*([OSError] if without_jail else [])):  # such a system may have no filters
            if without_jail:
                forgo_privileges()
            seal(filter_program(profile="interpreter"))
    gc.collect()
    gc.freeze()  # so that collections look only at objects made later
    gc.set_threshold(_GARBAGE_OBJECTS)
    requests.start()
    server.serve()
    os._exit(0)

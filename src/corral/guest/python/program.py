"""One execution of a program: reads START, runs the program, and answers with EXIT."""

from __future__ import annotations
import __future__

import ast
import asyncio
import builtins
import errno
import functools
import gc
import importlib.util
import inspect
import io
import json
import linecache
import mmap
import os
import sys
import tempfile
import threading
import types
import warnings
from _thread import _count as count_threads  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from operator import itemgetter
from types import CodeType, ModuleType
from typing import Any, NamedTuple, Protocol, cast

from corral.guest.python.calls import CELL, PROGRAM, CallLimits, Calls, Pending, PendingCall, Tools
from corral.guest.python.console import Console, Stream, print_at_once, print_unraised
from corral.guest.python.errors import (
    Parts,
    described,
    error_parts,
    missing_module,
    place_of,
    session_mounts,
    session_places,
    syntax_error_parts,
    warning_text,
)
from corral.guest.python.failures import failure_classes
from corral.guest.python.frames import HEADER, HEADER_BYTES, LEAST_LENGTH, NO_NONCE, FrameKind, encode_frame
from corral.guest.python.loop import Deadlock, Finished, GuestLoop
from corral.guest.python.network import install_network
from corral.guest.python.values import Encoded, TooLarge, UnencodableValue, decode, encode

_READ_BYTES = 1 << 16
_MAX_UNAWAITED = 100
_MAX_REMARKS = 20
_MAX_REMARK = 1000
_MAX_TEXT = 8000
_RESERVE_BYTES = 1 << 19
"""Memory to free when it runs out, so that enough is left to report that."""
_RESULT = "_corral_result"
"""Name of the global that holds the program's result."""
_ASSIGNED = f"{_RESULT} = "
_REHEARSED_CALLS = 16
"""Number of warm-up calls after which the interpreter has specialized the code of a call."""
_REHEARSAL: Mapping[str, Any] = {
    "code": f"""
import asyncio
async def call(number):
    return await tools.call(number=number, text="text")
replies = await asyncio.gather(*(call(number) for number in range({_REHEARSED_CALLS})))
print("replies:", len(replies))
{_RESULT} = {{"replies": replies, "text": "text"}}
""",
    "tools": ["call"],
    "env": None,
    "limits": {
        "calls": _REHEARSED_CALLS,
        "calls_in_flight": _REHEARSED_CALLS,
        "value_bytes": 10_000,
        "log_bytes": 10_000,
        "tool_input_bytes": 10_000,
    },
}
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | __future__.annotations.compiler_flag
"""Compiler flag that keeps annotations strings: models write types from the declarations, which do not exist at run
time."""
_MESSAGE_KINDS = {"credit": FrameKind.CREDIT, "cancel": FrameKind.CANCEL}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_SKILLS = "/root/skills"
presets: dict[str, str] = {}
"""Environment variables that programs have in addition to their own."""
_DID_NOT_RUN = "it was not awaited, so it did not run"
_ONE_PATH = """
    access chdir chmod listdir lstat mkdir open readlink remove rmdir scandir stat statvfs truncate unlink utime
""".split()
_TWO_PATHS = "link rename replace symlink".split()


class Pipes:
    """Frames over two descriptors. Reading and writing block. The end of the input ends the process."""

    def __init__(self, reading: int, writing: int) -> None:
        self.descriptor = reading
        self._writing = writing
        self._buffer = bytearray()
        self._needed = HEADER_BYTES  # bytes to wait for before parsing the buffer again
        self._unsent = bytearray()
        self._nonce = NO_NONCE
        self._turn = threading.RLock()  # a thread of the program can print
        self._between_cells = False

    def read_start(self) -> dict[str, Any]:
        while True:
            for kind, payload, _, nonce in self._read():
                if kind == FrameKind.START:  # otherwise a reply that the cell before did not wait for
                    self._nonce = nonce
                    self._between_cells = False
                    return json.loads(payload)[0]

    def read_replies(self) -> list[tuple[int, bytes, bool]]:
        """Returns the data of one read, which can be part of a reply."""
        return [(kind, payload, tagged) for kind, payload, tagged, _ in self._read()]

    def append(self, kind: FrameKind, payload: bytes, *, tagged: bool = False) -> None:
        """Adds a frame for the next `flush`."""
        with self._turn:
            if not self._between_cells:
                self._unsent += encode_frame(kind, payload, self._nonce, tagged=tagged)

    def exit(self, payload: bytes, *, tagged: bool) -> None:
        """Sends EXIT, and nothing more until the next START."""
        with self._turn:
            self.append(FrameKind.EXIT, payload, tagged=tagged)
            self._between_cells = True
            self.flush()

    def flush(self) -> None:
        if not self._unsent:
            return
        with self._turn:
            data = bytes(self._unsent)
            self._unsent.clear()
            self._send(data)

    def _send(self, frames: bytes) -> None:
        data = memoryview(frames)
        while data:
            data = data[os.write(self._writing, data) :]

    def _receive(self) -> bytes:
        data = os.read(self.descriptor, _READ_BYTES)
        if not data:
            os._exit(0)
        return data

    def _read(self) -> list[tuple[int, bytes, bool, bytes]]:
        data = self._receive()
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        frames: list[tuple[int, bytes, bool, bytes]] = []
        at, size = 0, len(data)
        self._needed = HEADER_BYTES
        while size - at >= HEADER_BYTES:
            length, kind, flags, nonce = HEADER.unpack_from(data, at)
            end = at + length + HEADER_BYTES - LEAST_LENGTH
            if size < end:
                self._needed = end - at
                break
            frames.append((kind, data[at + HEADER_BYTES : end], flags == 1, nonce))
            at = end
        if at < size:
            self._buffer += data[at:]
        return frames


class _Outcome(NamedTuple):
    kind: str
    content: Encoded
    lasts: bool = False
    """True if tasks that the program started without awaiting them are waited for, and can make calls."""
    value: object = None
    """Result of the program. Encoded again once the tasks have ended, because they can still fill a list."""


class Durable(Protocol):
    """Hooks of a durable execution, in servers that have them."""

    @property
    def state(self) -> bytes:
        """Returns the number of calls and the digest, as members of a frame."""
        ...

    def begin(self, start: Mapping[str, Any]) -> None:
        """Starts a notebook's next cell."""
        ...

    def receive(self) -> None: ...
    def note(self, output: bytes) -> None:
        """Adds console output to the digest."""
        ...


class Execution:
    """One execution, created before its START arrives: work done before a fork costs no execution anything.

    Also the source of its event loops, which wait for replies.
    """

    def __init__(
        self, pipes: Pipes, begin_durably: Callable[[Mapping[str, Any], Pipes, Calls], Durable] | None = None
    ) -> None:
        self._pipes = pipes
        self._begin_durably = begin_durably
        self._start: Mapping[str, Any] = {}
        self._limits: Mapping[str, Any] = {}
        self._cell = 0
        """Number of a notebook's cell; 0 if the process runs one program."""
        self._file = PROGRAM
        self._networked = False
        self._calls = Calls(self._send_call, self._tell, CallLimits(0, 0, 0))
        self._console = Console(self._send_log)
        self._streams = Stream(self._console, "log", "<stdout>"), Stream(self._console, "error", "<stderr>")
        self._durable: Durable | None = None
        self._remarks: list[str] = []
        self._reserve: mmap.mmap | None = mmap.mmap(-1, _RESERVE_BYTES, mmap.MAP_PRIVATE)
        self._module = ModuleType("__main__")
        vars(self._module).update(failure_classes(), exit=sys.exit, quit=sys.exit)
        vars(self._module).update({"__builtins__": builtins, "__file__": PROGRAM, _RESULT: None})
        self.descriptor = pipes.descriptor
        sys.excepthook = print_unraised
        builtins.print = print_at_once
        warnings.formatwarning = warning_text
        json.loads = _giving_back(json.loads, self._remark)
        GuestLoop.install(self)
        self.loop = GuestLoop()
        self.loop.set_exception_handler(self._uncaught)

    # --- called by the event loop

    @property
    def expects(self) -> bool:
        return any(pending.expected for pending in [*self._calls.sent.values()])

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()
        self._pipes.flush()

    def receive(self) -> None:
        for kind, payload, tagged in self._pipes.read_replies():
            if kind == FrameKind.FINISH:
                raise Finished
            reply: list[Any] = decode(payload, tagged=tagged)
            if kind == FrameKind.CHUNK:
                self._calls.deliver(*reply)
            elif reply[1]:
                self._calls.settle(reply[0], reply[2] if len(reply) > 2 else None)
            else:
                self._calls.fail(reply[0], *reply[2])

    # --- the run

    def run(self, start: Mapping[str, Any]) -> bool:
        """Runs the program, from its first instruction to EXIT. True if it is a cell, and another can follow."""
        before, self._start, limits = self._start, start, start["limits"]
        self._limits = limits
        self._cell = start.get("cell", 0)
        self._file = f"{CELL}{self._cell}.py" if self._cell else PROGRAM
        services = frozenset[str](start.get("services", ()))
        call_limits = CallLimits(
            limits["calls"], limits["calls_in_flight"], limits["tool_input_bytes"], False, services
        )
        self._calls.begin(call_limits, self._cell, old_threads=count_threads() > 0)
        self._console.left, self._console.dropped = limits["log_bytes"], 0
        if not before:
            self._prepare(start)
        elif self._durable is not None:
            self._durable.begin(start["durable"])
        if self._reserve is None:
            with suppress(OSError, MemoryError):
                self._reserve = mmap.mmap(-1, _RESERVE_BYTES, mmap.MAP_PRIVATE)
        if "$http" in services and not self._networked:
            self._networked = True
            install_network(self._calls, self.loop, durable=self._durable is not None)
        for name in before.get("env") or ():
            os.environ.pop(name, None)
        self._run()
        if not self._cell:
            return False
        vars(self._module)[_RESULT] = None
        return True

    def _prepare(self, start: Mapping[str, Any]) -> None:
        """Prepares the process for its first program."""
        mounts: list[tuple[str, bool, str | None]] = start.get("mounts", [])
        session_mounts[:] = [(path, writable) for path, writable, _ in mounts]
        if places := [(path, real) for path, _, real in mounts if real is not None]:
            session_places[:] = places
            _map_paths(places, next((path for path, writable, _ in mounts if writable), None))
        for path, _, real in mounts:
            if path == _SKILLS:
                _offer_skills(real or path)
        if os.environ:
            os.environ.clear()
        if (durable := start.get("durable")) is not None:
            assert self._begin_durably is not None
            self._durable = self._begin_durably(durable, self._pipes, self._calls)
            self.receive = self._durable.receive

    def _run(self) -> None:
        loop = self.loop
        outcome = self._outcome(loop)
        if not outcome.lasts:
            self._calls.close()
        unawaited = self._finish(loop, outcome)
        if outcome.lasts and outcome.value is not None and not outcome.content.consumed:
            outcome = self._value(outcome.value)
        if session_mounts and outcome.kind == "value" and (problem := _write_open_files()) is not None:
            outcome = _error(("program_failed", "OSError", problem, "", None))
        unawaited += [[0, call.tool, _DID_NOT_RUN, place_of(call.site), False] for call in self._calls.unstarted]
        if self._cell:
            self._calls.end()
            loop.end_work()
        for stream in self._streams:
            stream.finish()
        for error in loop.unseen_errors():
            self._uncaught(loop, {"exception": error})
        if self._calls.replaced:
            self._remark(_replaced("a tool call's input"))
        rest = _json([unawaited[:_MAX_UNAWAITED], self._console.dropped, self._remarks])
        payload = b'["%b",%b,%b%b]' % (outcome.kind.encode(), outcome.content.text, rest[1:-1], self._state())
        self._remarks.clear()
        if self._cell:
            loop.forget()
        self._pipes.exit(payload, tagged=outcome.content.tagged)

    def _outcome(self, loop: GuestLoop) -> _Outcome:
        try:
            code = compile(self._start["code"], self._file, "exec", _FLAGS, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return _error(syntax_error_parts(error, self._start["code"]), "rejected")
        if (missing := self._missing_module()) is not None:
            return _error(missing, "rejected")
        try:
            return self._value(self._evaluate(loop, code))
        except SystemExit as error:
            if error.code is None or error.code == 0:
                return self._value(None)
            return _error(error_parts(error))
        except BaseException as error:
            self._reserve = None
            return _error(error_parts(error))

    def _missing_module(self) -> Parts | None:
        """Returns the parts of an import error that would otherwise occur only after other statements.

        A program with files, or one that changes the module search path, may create the module first.
        """
        source: str = self._start["code"]
        if "import " not in source or "sys." in source or self._start.get("mounts"):
            return None
        began = False
        for statement in ast.parse(source).body:
            match statement:
                case ast.Import(names=names):
                    modules = [each.name for each in names]
                case ast.ImportFrom(module=str() as module, level=0):
                    modules = [module]
                case _:
                    began = began or not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                    continue
            for name in modules if began else ():
                top = name.partition(".")[0]
                if top not in sys.modules and importlib.util.find_spec(top) is None:
                    error = ModuleNotFoundError(f"No module named {top!r}", name=top)
                    return missing_module(error, self._file, statement.lineno, statement.col_offset + 1)
        return None

    def _evaluate(self, loop: GuestLoop, code: CodeType) -> object:
        """Returns the program's result. A program without its own `await` runs outside a loop, and can start one."""
        scope = self._scope()
        if types := self._start.get("types"):
            exec(compile(types, PROGRAM, "exec", _FLAGS, dont_inherit=True), scope)  # noqa: S102
        if code.co_flags & inspect.CO_COROUTINE:
            loop.run_until_complete(eval(code, scope))  # noqa: S307
        else:
            exec(code, scope)  # noqa: S102
        value = scope.get(_RESULT)
        if inspect.iscoroutine(value):
            value = loop.run_until_complete(value)
        loop.begin_tasks()
        return value

    def _scope(self) -> dict[str, Any]:
        """Returns the program's globals, in a separate module named like a program."""
        tools = Tools(self._calls, tuple(self._start["tools"]))
        scope = vars(self._module)
        scope["tools"] = scope["codemode"] = tools
        sys.modules["__main__"] = self._module
        sys.modules["tools"] = sys.modules["codemode"] = tools  # type: ignore[assignment]
        sys.stdout, sys.stderr = self._streams
        os.environ.update({**presets, **(self._start["env"] or {})})
        source: str = self._start["code"]
        shown = source.replace(_ASSIGNED, " " * len(_ASSIGNED))  # the model's text, in the same columns
        linecache.cache[self._file] = (len(shown), None, [f"{line}\n" for line in shown.split("\n")], self._file)
        return scope

    def _value(self, value: object) -> _Outcome:
        try:
            content = encode(value, "result", self._limits["value_bytes"])
        except TooLarge as error:
            return _error(("output_exceeded", "OutputExceeded", str(error), "", None))
        except UnencodableValue as error:
            forgotten = next((call for call in self._calls.unstarted if call.not_awaited in str(error)), None)
            name, place = ("ValueError", "") if forgotten is None else ("NotAwaited", place_of(forgotten.site))
            return _error(("program_failed", name, str(error), place, None))
        if content.replaced:
            self._remark(_replaced("the result"))
        lasts = not GuestLoop.raced and (value is None or bool(self.loop.left))
        return _Outcome("value", content, lasts, value)

    def _finish(self, loop: GuestLoop, outcome: _Outcome) -> list[list[Any]]:
        """Waits for the calls that the program left unfinished, and returns those that it never awaited."""

        def calls() -> bool:
            return any(call.expected for call in self._calls.pending)

        def awaited() -> list[asyncio.Future[Any]]:
            if outcome.lasts and outcome.value is not None:
                return loop.left
            return [*loop.tasks] if outcome.lasts or calls() else []

        async def settle() -> None:
            while futures := awaited():
                await loop.first_of(futures)

        if not calls() and not (outcome.lasts and loop.tasks):
            return []
        # Otherwise something else awaits it.
        alone: set[Any] = {
            getattr(task, "_fut_waiter", None)
            for task in loop.tasks
            if isinstance(task.get_coro(), PendingCall)
            and not getattr(task, "_callbacks", None)
            and task not in loop.losers
        }
        left = [call for call in self._calls.pending if call.future in alone]
        late: list[Pending] = []
        if outcome.lasts and outcome.value is not None:
            late = self._calls.late = [call for call in self._calls.pending if call.future not in alone]
        payload = b'["%b",%b,%b%b]' % (
            outcome.kind.encode(),
            outcome.content.text,
            b"true" if outcome.lasts else b"false",
            self._state(),
        )
        self._pipes.append(FrameKind.OUTCOME, payload, tagged=outcome.content.tagged)
        try:
            loop.run_until_complete(settle())
        except (Finished, Deadlock):
            pass
        except BaseException as error:
            self._remark(f"calls that were not awaited were cut short: {described(error)}")
        unawaited = sorted([(call.sequence, call) for call in (*left, *late)], key=itemgetter(0))
        return [
            [sequence, call.tool, _error_of(call.future), place_of(call.site), call not in left]
            for sequence, call in unawaited
            if not call.future.cancelled() and call.tool not in self._calls.limits.services
        ]

    # --- sending

    def _send_call(self, sequence: int, path: str, input: Encoded, /) -> None:
        payload = b"[%d,%b,%b]" % (sequence, path.encode(), input.text)
        self._pipes.append(FrameKind.CALL, payload, tagged=input.tagged)

    def _tell(self, message: str, sequence: int, /) -> None:
        self._pipes.append(_MESSAGE_KINDS[message], b"[%d]" % sequence)

    def _state(self) -> bytes:
        """Returns the last members of a frame in a durable execution."""
        return b"" if self._durable is None else self._durable.state

    def _send_log(self, payload: bytes) -> None:
        if self._durable is not None:
            self._durable.note(payload)
        self._pipes.append(FrameKind.LOG, payload)
        self._pipes.flush()

    def _remark(self, text: str) -> None:
        if len(self._remarks) < _MAX_REMARKS and text not in self._remarks:
            self._remarks.append(text[:_MAX_REMARK])

    def _uncaught(self, _loop: object, context: Mapping[str, Any]) -> None:
        """Reports errors that asyncio would log: those of tasks that were not awaited."""
        error = context.get("exception")
        if error is not None:
            self._remark(f"a task failed and nothing awaited it: {described(error)}")


def run_program(pipes: Pipes, execution: Execution) -> None:
    """Reads START and runs the program to its EXIT; cells of a notebook one after another."""
    while execution.run(pipes.read_start()):
        pass


def warm_up() -> None:
    """Runs a warm-up program, so that everything is loaded and specialized before the first real one."""
    replying, writing = os.pipe()
    reading, sending = os.pipe()
    modules, streams, environment = dict(sys.modules), (sys.stdout, sys.stderr), dict(os.environ)
    try:
        for sequence in range(1, _REHEARSED_CALLS + 1):
            os.write(writing, encode_frame(FrameKind.REPLY, b"[%d,true,[1,null]]" % sequence, NO_NONCE))
        execution = Execution(Pipes(replying, sending))
        execution.run(_REHEARSAL)
        execution.loop.close()
    finally:
        sys.stdout, sys.stderr = streams
        sys.modules.clear()
        sys.modules.update(modules)
        os.environ.update(environment)
        linecache.cache.pop(PROGRAM)
        for descriptor in (replying, writing, reading, sending):
            os.close(descriptor)


def _error(parts: tuple[str, str, str, str, str | None], kind: str = "error") -> _Outcome:
    shown = [None if part is None else _clipped(part) for part in parts]
    return _Outcome(kind, Encoded(_json(shown), tagged=False, replaced=False))


def _error_of(future: asyncio.Future[Any]) -> str | None:
    error = future.exception() if future.done() else None
    return None if error is None else described(error)[:_MAX_REMARK]


def _clipped(text: str) -> str:
    left = len(text) - _MAX_TEXT
    return text if left <= 0 else f"{text[:_MAX_TEXT]}… ({left} more characters)"


def _json(value: object) -> bytes:
    return _encode(value).encode("utf-8", "replace")


def _write_open_files() -> str | None:
    """Writes what files that are still open have buffered, and describes the first failure for lack of room.

    When Python closes such a file itself, it ignores errors before version 3.13. Other errors are ignored here too: the
    file is closed or detached, or of a class of the program's own, which can raise anything.
    """
    for each in gc.get_objects():
        if not issubclass(type(each), io.BufferedWriter | io.BufferedRandom | io.TextIOWrapper):
            continue
        with suppress(Exception):
            try:
                each.flush()
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    name = getattr(each, "name", "a file")
                    return f"{name} was not closed, and its end could not be written: {error.strerror}"
    return None


def _replaced(where: str) -> str:
    return f"{where} contained lone surrogates, which no text encoding can represent; they were replaced by U+FFFD"


def _giving_back(loads: Callable[..., Any], remark: Callable[[str], None]) -> Callable[..., Any]:
    """Wraps `json.loads` so that it returns values that are already parsed, instead of rejecting them."""

    @wraps(loads)
    def read(s: Any, **options: Any) -> Any:
        if options or not isinstance(s, (dict, list, int, float)):
            return loads(s, **options)
        remark("json.loads got a value that is already parsed, and returned it unchanged")
        return cast("object", s)

    return read


def _offer_skills(folder: str) -> None:
    """Makes the folders in this one importable from a package `skills`, unless the host has a package of that name."""
    if importlib.util.find_spec("skills") is None:
        package = types.ModuleType("skills")
        package.__path__ = [folder]
        sys.modules["skills"] = package


def _map_paths(places: Sequence[tuple[str, str]], home: str | None) -> None:
    """Translates paths from the first of each pair to the second. Changes the working directory to `home`, one of the
    first."""

    import sqlite3

    def mapped(path: Any) -> Any:
        try:
            text = cast("str | bytes", os.fspath(path))
        except TypeError:  # a descriptor, or an argument that the function itself rejects
            return path
        shown = text if isinstance(text, str) else os.fsdecode(text)
        for place, real in places:
            if shown == place or shown.startswith(f"{place}/"):
                target = real + shown[len(place) :]
                return target if isinstance(text, str) else os.fsencode(target)
        return path

    def wrapped(function: Callable[..., Any], count: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return function(*map(mapped, arguments[:count]), *arguments[count:], **named)

        return call

    for names, count in ((_ONE_PATH, 1), (_TWO_PATHS, 2)):
        for name in names:
            setattr(os, name, wrapped(getattr(os, name), count))
    builtins.open = io.open = wrapped(io.open, 1)
    getcwd = os.getcwd

    def shown_directory() -> str:
        here = getcwd()
        for place, real in places:
            if here == real or here.startswith(f"{real}/"):
                return place + here[len(real) :]
        return here

    os.getcwd = shown_directory
    sqlite3.connect = wrapped(sqlite3.connect, 1)
    if home is not None:
        os.chdir(home)
        tempfile.tempdir = mapped(home)  # functions that were captured before the translation also remove its files

"""One job in Monty, as run by the thread that drives the interpreter.

Monty stops at each call, import and sleep, and asks for a result. That exchange blocks, so it has its own thread, on
asyncio and trio alike. A call starts when the program makes it, because Monty does not report which calls a program
awaits.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import json
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from pydantic_monty import (
    ClassInstance,
    ExternalModule,
    ExternalSettledResult,
    Frame,
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyFileHandle,
    MontyRuntimeError,
    MontySyntaxError,
    NameLookupSnapshot,
    ScanEntry,
    StatResult,
    SyncSnapshot,
)

from corral.errors import (
    CALL_ERRORS,
    AccessDenied,
    CallBudgetExceeded,
    CorralError,
    InvalidArguments,
    MemoryExceeded,
    MessageTooLarge,
    OutputExceeded,
    ProgramFailed,
    ProgramRejected,
    ToolNotFound,
)
from corral.guest import decode_value, encode_value
from corral.guest.python.calls import BY_POSITION
from corral.guest.python.console import Console
from corral.guest.python.hints import MAX_SEGMENT, hint
from corral.guest.python.values import TooLarge, UnencodableValue
from corral.sandboxes.base import GRACE_SECONDS, Job
from corral.sandboxes.framed.exits import failed_exit
from corral.sandboxes.monty.values import NORMALIZE, NotData, Tools, encode_input, encode_result, value_for_program
from corral.sandboxes.monty.worker import Worker
from corral.sessions import Entry, ProgramFiles
from corral.sessions.files import PROGRAM_REASONS
from corral.sessions.text_files import MAX_READ_BYTES
from corral.types import (
    MAX_TOOL_PATH,
    CallError,
    EncodedValue,
    ExecutionError,
    Exit,
    LogEntry,
    LogLevel,
    Position,
    Program,
    Reply,
    ToolName,
    Unawaited,
)

SCRIPT = "<python-input-0>"
"""Name that Monty gives to the first text of a session."""
_EXCEPTIONS: Mapping[str, type[Exception]] = {
    "ToolNotFound": AttributeError,
    "InvalidArguments": ValueError,
} | {error.__name__: PermissionError for error in CALL_ERRORS if issubclass(error, AccessDenied)}
"""Exceptions to raise for failed calls; all others raise RuntimeError. Monty only has Python's own classes."""
_MAX_TEXT = 8000
_MAX_FRAMES = 20
_WRAPPER = "_corral_program"
"""Name of the function that wraps a program with its own `return`."""
_FULL = "CPythonSandbox, which runs all of Python"
_PARSER = "The monty syntax parser does not yet support "
_INTERNAL = "Internal error in monty: "
_MODULE = re.compile(r"No module named '([\w.]{1,100})'")
_NAME_OF_MODULE = re.compile(r"cannot import name '(\w{1,100})' from '([\w.]{1,100})'")
_MEMBER_OF_MODULE = re.compile(r"module '([\w.]{1,100})' has no attribute '(\w{1,100})'")
_MEMBER_OF_TYPE = re.compile(r"(?:type object )?'([\w.]{1,100})'(?: object)? has no attribute '(\w{1,100})'")
_UNMAKEABLE = re.compile(r"cannot create '(\w{1,100})' instances")
_NAME = re.compile(r"name '(\w{1,100})' is not defined")

_INSTEAD = (
    ("update modes ('+') are", "read the file, change its text, and write it with mode 'w'"),
    ("exclusive creation mode is", "ask Path(...).exists() first, and open with mode 'w'"),
    ("'encoding' argument is", "files are UTF-8; for another encoding read and write bytes, with modes 'rb' and 'wb'"),
    (
        "read_text() takes no ",
        "files are UTF-8; leave out the encoding, or decode the result of read_bytes",
    ),
    (
        "write_text() takes exactly one argument",
        "files are UTF-8; leave out the encoding, or use write_bytes with encoded text",
    ),
    ("argument is not yet supported", "leave it out"),
    ("iterating an unread _io.", "iterate over readlines()"),
    ("print() 'file' argument must be", "use its write(...)"),
)
"""Remedies for messages about files, by a part of the message."""


def _exception_for(error: CallError) -> Exception:
    """Returns the exception that a failed call raises in the program. Its text begins with the error's name."""
    return _EXCEPTIONS.get(error.name, RuntimeError)(f"{error.name}: {error.message}")


def failure(
    error: MontySyntaxError | MontyRuntimeError,
    program: Program,
    *,
    raised: Callable[[str], CallError | None],
    forgotten: Callable[[], str | None],
    memory_mb: int,
    ran: bool,
) -> Exit:
    """Returns the exit of a program that did not parse, or that raised. `ran` is true if it has made calls.

    `raised` returns a call's error, given its text in the program. `forgotten` returns the tool whose call was not
    awaited.
    """
    inner = error.exception()
    name, message = type(inner).__name__, str(inner)
    frames = error.traceback()
    own = [frame for frame in frames if frame.filename == SCRIPT]
    unread = (frames or isinstance(error, MontySyntaxError)) and all(frame.function_name is None for frame in frames)
    if unread and not ran:
        return _rejected(name, message, frames, program)
    code = ProgramFailed.code
    if isinstance(inner, MemoryError):
        code, name = MemoryExceeded.code, MemoryExceeded.__name__
        message = f"the program needed more than its {memory_mb} MB of memory"
    elif (of_call := raised(message)) is not None:
        code, name, message = of_call.code, of_call.name, of_call.message
    elif isinstance(inner, TypeError | AttributeError) and "coroutine" in message:
        name, message = "NotAwaited", _not_awaited(message, forgotten())
    else:
        message = f"{_explained(name, message)}{_hint(name, message, own, program)}"
    position = _position(own, program)
    return Exit(
        status="failed",
        error=ExecutionError(
            code=code,
            name=name,
            message=message[:_MAX_TEXT],
            line=position and position.line,
            column=position and position.column,
            stack=_stack(own, program) or None,
        ),
    )


def locate(program: Program, line: int, column: int) -> Position:
    """Maps a position in `program.code`, with its column in characters, to the model's source, up to its end."""
    lines = program.code.split("\n")
    if line > len(lines):
        line, column = len(lines), len(lines[-1]) + 1
    before = lines[line - 1][: column - 1]
    return program.locate(line, len(before) + sum(character > "\uffff" for character in before) + 1)


def _hint(name: str, message: str, frames: Sequence[Frame], program: Program) -> str:
    """Returns a hint about an error, or "". It names no values, because Monty does not report them."""
    if not frames or name not in ("TypeError", "AttributeError"):
        return ""
    frame = frames[-1]
    lines = program.code.split("\n")[frame.line - 1 : frame.end_line]
    if not lines or len(lines) > MAX_SEGMENT:
        return ""
    lines[-1] = lines[-1][: frame.end_column - 1]
    lines[0] = lines[0][frame.column - 1 :]
    return hint(name, message, "\n".join(lines), {})


def _rejected(name: str, message: str, frames: Sequence[Frame], program: Program) -> Exit:
    if name == "NotImplementedError":
        message = f"Monty does not run {message.removeprefix(_PARSER)}: write it without, or use {_FULL}"
    position = _position(frames, program)
    return Exit(
        status="rejected",
        error=ExecutionError(
            code=ProgramRejected.code,
            name=name,
            message=message[:_MAX_TEXT],
            line=position and position.line,
            column=position and position.column,
        ),
    )


def _position(frames: Sequence[Frame], program: Program) -> Position | None:
    return locate(program, frames[-1].line, frames[-1].column) if frames else None


def _stack(frames: Sequence[Frame], program: Program) -> str:
    """Formats frames, outermost first. The middle of a long stack is left out, because recursion repeats it."""
    half = _MAX_FRAMES // 2
    shown = frames if len(frames) <= _MAX_FRAMES else [*frames[:half], *frames[-half:]]
    lines: list[str] = []
    for frame in shown:
        function = frame.function_name or "<module>"
        line = locate(program, frame.line, frame.column).line
        lines.append(f'  File "program.py", line {line}, in {"<module>" if function == _WRAPPER else function}')
    return "\n".join(lines)


def _not_awaited(message: str, tool: str | None) -> str:
    if tool is None:
        return f"{message}: an async function was called without `await`"
    return f"tools.{tool}(...) was not awaited: write `await tools.{tool}(...)`"


def _explained(name: str, message: str) -> str:
    """Returns the message, with a remedy if Monty lacks a feature."""
    if message.startswith(_INTERNAL):
        return f"Monty cannot do this: {message.removeprefix(_INTERNAL)}; use {_FULL}"
    if name == "NotImplementedError" and message.startswith(_PARSER):
        return f"Monty does not run {message.removeprefix(_PARSER)}: write it without, or use {_FULL}"
    if name == "ModuleNotFoundError" and (match := _MODULE.search(message)):
        module = match[1].partition(".")[0]
        has = "CPythonSandbox" if module in sys.stdlib_module_names else f'CPythonSandbox(packages=["{module}"])'
        return f"Monty has no module {module}; {has} has"
    remedy = next((instead for part, instead in _INSTEAD if part in message), None)
    if remedy is not None and name in ("TypeError", "ValueError", "NotImplementedError"):
        return f"{message}: {remedy}, or use {_FULL}"
    if (match := _NAME_OF_MODULE.search(message)) and _may_have(match[2], match[1]):
        return _lacking(match[2], match[1])
    if name == "AttributeError" and (match := _MEMBER_OF_MODULE.search(message)) and _may_have(match[1], match[2]):
        return _lacking(match[1], match[2])
    match = _MEMBER_OF_TYPE.fullmatch(message)
    if name == "AttributeError" and match and hasattr(_known(match[1]), match[2]):
        return f"Monty's {match[1]} has no {match[2]}; CPythonSandbox's has"
    if name == "TypeError" and (match := _UNMAKEABLE.fullmatch(message)) and callable(_known(match[1])):
        return f"Monty cannot make a {match[1]}; CPythonSandbox can"
    if name == "NameError" and (match := _NAME.search(message)) and hasattr(builtins, match[1]):
        return f"Monty has no built-in {match[1]}; CPythonSandbox has"
    return message


def _may_have(module: str, member: str) -> bool:
    """True if Python's own module has the name, or is not loaded here and so could have it."""
    return module not in sys.modules or hasattr(sys.modules[module], member)


def _known(path: str) -> object:
    """Returns Python's own object of this name, if its module is loaded here."""
    module, _, name = ("pathlib.PosixPath" if path == "PosixPath" else path).rpartition(".")
    return getattr(sys.modules.get(module or "builtins"), name, None)


def _lacking(module: str, member: str) -> str:
    instead = "; calls run at the same time in `await asyncio.gather(...)`" if module == "asyncio" else ""
    return f"Monty's module {module} has no {member}{instead}; CPythonSandbox has all of it"


_MAX_SHOWN = 200


class MontyFiles:
    """Serves a program's file requests, or refuses them all if there are no session files. Paths are absolute, without
    `..`."""

    def __init__(self, files: ProgramFiles | None, memory_bytes: int) -> None:
        self._files = files
        self._max_bytes = min(MAX_READ_BYTES, memory_bytes)
        self.home = None if files is None else files.home

    def call(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Performs a request, by Monty's name for it.

        Raises:
            OSError, ValueError, TypeError: the error that the program gets.
        """
        path = _path(arguments[0])
        if self._files is None:
            text = "programs without a session have no files; call a tool that reads or writes"
            raise PermissionError(f"[Errno {errno.EACCES}] Permission denied: {path[:_MAX_SHOWN]!r}: {text}")
        try:
            return self._read(self._files, name, path, options, arguments[1:])
        except OSError as error:
            raise _for_program(error, path) from None

    def _read(
        self, files: ProgramFiles, name: str, path: str, options: Mapping[str, Any], others: Sequence[Any]
    ) -> Any:
        match name:
            case "Path.exists":
                return files.kind(path) not in (None, "link")
            case "Path.is_file":
                return files.kind(path) == "file"
            case "Path.is_dir":
                return files.kind(path) == "directory"
            case "Path.is_symlink":
                return files.kind(path) == "link"
            case "Path.read_text":
                return files.read(path, self._max_bytes).decode()
            case "Path.read_bytes":
                return files.read(path, self._max_bytes)
            case "Path.stat":
                return _stat(files.stat(path))
            case "Path.iterdir":
                return [PurePosixPath(path, each.path) for each in files.list(path, recursive=False)]
            case "Path.scan":
                return _scan(files, path, options.get("max_depth"))
            case "Path.resolve" | "Path.absolute":
                return PurePosixPath(path)
            case _:
                return _write(files, name, path, options, others)


def _write(files: ProgramFiles, name: str, path: str, options: Mapping[str, Any], others: Sequence[Any]) -> Any:
    match name, others:
        case "open", (str() as mode,):
            handle = MontyFileHandle(path, mode)
            if handle.writable:
                files.write(path, b"", append=handle.mode.startswith("a"))
            else:
                files.expect_file(path)
            return handle
        case (("Path.write_text" | "Path.append_text"), (str() as text,)):
            files.write(path, text.encode(), append="append" in name)
            return len(text)
        case (("Path.write_bytes" | "Path.append_bytes"), (bytes() as data,)):
            files.write(path, data, append="append" in name)
            return len(data)
        case "Path.mkdir", ():
            files.make_directory(path, parents=bool(options.get("parents")), exist_ok=bool(options.get("exist_ok")))
        case "Path.unlink", ():
            files.remove(path, directory=False)
        case "Path.rmdir", ():
            files.remove(path, directory=True)
        case "Path.rename", (target,):
            files.rename(path, _path(target))
        case _:
            raise OSError(errno.ENOSYS, f"Monty has no {name}; CPythonSandbox has")
    return None


def _scan(files: ProgramFiles, path: str, depth: int | None) -> list[ScanEntry]:
    """Lists a folder, or a file, and its contents up to `depth` levels."""
    top = files.stat(path)
    entries = [_scanned("", top)]
    if top.kind == "directory" and depth != 0:
        below = files.list(path, recursive=depth != 1)
        entries += [_scanned(each.path, each) for each in below if depth is None or each.path.count("/") < depth]
    return entries


def _scanned(path: str, entry: Entry) -> ScanEntry:
    return ScanEntry(path, entry.kind == "directory", entry.kind == "file", entry.kind == "link")


def _stat(entry: Entry) -> StatResult:
    formats = {"file": stat.S_IFREG | 0o644, "directory": stat.S_IFDIR | 0o755, "link": stat.S_IFLNK | 0o777}
    seconds = entry.modified / 1e9
    return StatResult(formats.get(entry.kind, 0), entry.inode, 0, 1, 0, 0, entry.size, seconds, seconds, seconds)


def _path(argument: Any) -> str:
    return argument.path if isinstance(argument, MontyFileHandle) else str(argument)


def _for_program(error: OSError, path: str) -> OSError:
    """Returns the error with its final text, because exceptions in Monty have no other attributes."""
    number = error.errno or 0
    text = os.strerror(number)
    reason = PROGRAM_REASONS.get(number, "") if error.strerror in (text, None) else error.strerror
    return type(error)(f"[Errno {number}] {text}: {path[:_MAX_SHOWN]!r}{f': {reason}' if reason else ''}")


_END = "\n\n_corral_result\n"
"""Makes the program's value the value of the text. The empty line ends a continued line."""
_COROUTINE = re.compile(r"<coroutine object \w+>")
_MAX_PATHS = 1000
"""Maximum number of attributes of `tools` that a program can look up without calling them."""
_MAX_UNAWAITED = 100
_MAX_REMARK = 1000
_LEVELS: dict[str, LogLevel] = {"stdout": "log", "stderr": "error"}
_MODULES = ("tools", "codemode")


class Ended(Exception):
    """The program's result is no longer needed."""


class PendingRequest(NamedTuple):
    """Request of the program: a call or, without an input, a sleep."""

    number: int
    """Number in Monty, by which the request is settled."""
    alone: bool
    """True if the program awaits it at once, and does nothing else."""
    seconds: float = 0.0
    tool: str = ""
    sequence: int = 0
    input: EncodedValue | None = None
    offset: int | None = None
    """Offset in the code, in bytes; None for a call from a text that the program made."""


class _MontyHost(Protocol):
    """Part of the event loop's side that the program's thread uses."""

    def submit(self, request: PendingRequest) -> None: ...
    def log(self, entry: LogEntry) -> None: ...
    def report_early_outcome(self, outcome: Exit) -> None: ...


class MontyProgram:
    """Drives one program from its first instruction to its `Exit`."""

    def __init__(self, worker: Worker, job: Job, host: _MontyHost) -> None:
        self._worker = worker
        self._job = job
        self._host = host
        self._settled: SimpleQueue[tuple[int, Reply | None] | None] = SimpleQueue()
        self._ended = threading.Event()
        self._waits = False
        self._over = False
        self._made = 0
        self._sequence = 0
        self._pending: dict[int, PendingRequest] = {}
        """Requests to which Monty has no answer yet."""
        self._ready: dict[int, Reply | None] = {}
        """Answers that have arrived."""
        self._tools: dict[int, str] = {}
        """Tools of calls that were not awaited at once."""
        self._raised: dict[str, CallError] = {}
        """Errors of calls, by their text in the program."""
        self._paths: dict[str, ClassInstance] = {}
        self._prefixes: dict[UUID, str] = {}
        self._console = Console(self._log, job.limits.log_bytes)
        self._lines = {"stdout": "", "stderr": ""}
        self._files = MontyFiles(job.files, worker.memory_mb << 20)
        self.file_seconds = 0.0
        """Processor seconds that the host spent on the program's files. They count as the program's."""
        self._began: float | None = None
        self._idle: tuple[float, float | None] = 0.0, None
        """Seconds of past pauses, and the time at which the current one began. Replaced as a whole, because the event
        loop reads it too."""

    def settle(self, number: int, reply: Reply | None) -> None:
        """Stores the reply to a `PendingRequest`; None for a sleep."""
        self._settled.put((number, reply))

    def end(self) -> None:
        """Makes `run` raise `Ended` wherever it waits."""
        self._ended.set()
        self._settled.put(None)

    @property
    def ended(self) -> bool:
        """True if the result is no longer needed."""
        return self._ended.is_set()

    @property
    def waits(self) -> bool:
        """True while the program waits for an answer."""
        return self._waits and not self._over

    @property
    def busy_seconds(self) -> float:
        """Seconds since the start without those in which the program waited. Its process has one thread, so it has
        used at most as much processor time."""
        now = time.monotonic()
        past, since = self._idle
        return 0.0 if self._began is None else now - self._began - past - (0.0 if since is None else now - since)

    def run(self) -> Exit:
        """Blocks until the program and all its calls have ended.

        Raises:
            Ended: `end` was called.
            MontyCrashedError: the worker is gone.
        """
        self._began = time.monotonic()
        try:
            exit = self._succeeded()
        except (MontySyntaxError, MontyRuntimeError) as error:
            exit = failure(
                error,
                self._job.program,
                raised=self._raised.get,
                forgotten=self._forgotten,
                memory_mb=self._worker.memory_mb,
                ran=self._sequence > 0,
            )
        finally:
            if not self.ended:
                self.end_lines()
        return self._finished(exit)

    def end_lines(self) -> None:
        """Emits the last, unfinished lines. After `end`, the event loop can also call this."""
        for stream in self._lines:
            self._print(stream, "", last=True)

    def _succeeded(self) -> Exit:
        tools = self._node("")
        output = self._feed(self._job.program.code + _END, {"tools": tools, "codemode": tools, "_corral_result": None})
        if isinstance(output, str) and _COROUTINE.fullmatch(output):
            output = self._feed("_corral_result = await _corral_result\n_corral_result")
        limit = self._job.limits.value_bytes
        try:
            try:
                encoded = encode_result(output, limit, self._tools.get, normalized=False)
            except NotData:
                encoded = encode_result(self._feed(NORMALIZE), limit, self._tools.get, normalized=True)
        except TooLarge as error:
            return failed_exit(OutputExceeded(str(error)))
        except UnencodableValue as error:
            failed = ExecutionError(code=ProgramFailed.code, name="ValueError", message=str(error))
            return Exit(status="failed", error=failed)
        return Exit(value=decode_value(encoded.text, tagged=encoded.tagged))

    def _finished(self, exit: Exit) -> Exit:
        """Waits for the calls that the program left unfinished, and reports those that it never awaited.

        After an error they have a grace period, after which `MontyRun` ends them.
        """
        self._over = True
        left = [request for request in self._pending.values() if request.input is not None]
        exit = replace(exit, dropped_log_bytes=self._console.dropped)
        if not left:
            return exit
        if any(request.number not in self._ready for request in left):
            self._host.report_early_outcome(exit)
        deadline = None if exit.error is None and not self._raised else time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(Empty):
            while any(request.number not in self._ready for request in left):
                self._wait(deadline)
        if self._raised and "gather" in self._job.program.code:
            return exit  # a failed `gather` may have left them behind, which Monty does not report
        return replace(exit, unawaited=tuple(map(self._unawaited, left[:_MAX_UNAWAITED])))

    # --- the exchange

    def _feed(self, text: str, inputs: dict[str, Any] | None = None) -> Any:
        """Runs a text in the session and returns its value."""
        snapshot: SyncSnapshot = self._worker.session.feed_start(
            text, inputs=inputs, print_callback=self._print, cwd=self._files.home
        )
        while not isinstance(snapshot, MontyComplete):
            match snapshot:
                case FunctionSnapshot():
                    snapshot = self._function(snapshot)
                case NameLookupSnapshot():
                    snapshot = self._name(snapshot)
                case FutureSnapshot():
                    snapshot = snapshot.resume(self._results(snapshot.pending_call_ids))
        return snapshot.output

    def _function(self, snapshot: FunctionSnapshot) -> SyncSnapshot:
        name = snapshot.function_name
        if snapshot.is_os_function:
            return self._system(snapshot, name)
        owner = snapshot.object_id
        if owner is not None:
            tool = self._prefixes[owner] + name
        elif name.partition(".")[0] in _MODULES and "." in name:
            tool = name.partition(".")[2]
        else:
            return snapshot.resume({"exc_type": "NameError", "message": f"name '{name}' is not defined"})
        place = snapshot.position
        offset = place.start if place.filename == SCRIPT else None
        self._call(snapshot, tool, offset, alone=snapshot.allow_eager_await)
        return snapshot.resume({"future": ...})

    def _system(self, snapshot: FunctionSnapshot, name: str) -> SyncSnapshot:
        """Answers a program's other requests: for a file, a module, a pause, its environment."""
        if name == "open" or name.startswith("Path."):
            return self._file(snapshot, name)
        arguments = snapshot.args
        env = self._job.env
        match name:
            case "import":
                if arguments[0] in _MODULES:
                    self._worker.modules[arguments[0]] = self._module()
                return snapshot.resume_auto()
            case "system.sleep":
                with self._pause():
                    if self._ended.wait(min(max(arguments[0], 0), threading.TIMEOUT_MAX)):
                        raise Ended
                return snapshot.resume({"return_value": None})
            case "system.async_sleep":
                request = PendingRequest(snapshot.call_id, snapshot.allow_eager_await, arguments[0])
                self._pending[request.number] = request
                self._host.submit(request)
                return snapshot.resume({"future": ...})
            case "os.environ" if env is not None:
                return snapshot.resume({"return_value": dict(env)})
            case "os.getenv" if env is not None:
                return snapshot.resume({"return_value": env.get(*arguments)})
            case _:
                return snapshot.resume_not_handled()

    def _file(self, snapshot: FunctionSnapshot, name: str) -> SyncSnapshot:
        began = time.thread_time()
        try:
            answer: ExternalSettledResult
            try:
                answer = {"return_value": self._files.call(name, snapshot.args, snapshot.kwargs)}
            except (OSError, ValueError, TypeError) as error:
                answer = {"exception": error}
            return snapshot.resume(answer)
        finally:
            self.file_seconds += time.thread_time() - began

    def _results(self, numbers: list[int]) -> dict[int, ExternalSettledResult]:
        """Returns answers to some of Monty's pending requests. Blocks until there is one."""
        while not (settled := [number for number in numbers if number in self._ready]):
            self._wait()
        return {number: self._taken(number) for number in settled}

    def _taken(self, number: int) -> ExternalSettledResult:
        return self._result(self._pending.pop(number), self._ready.pop(number))

    def _wait(self, deadline: float | None = None) -> None:
        """Collects all answers that have arrived. Blocks until there is one.

        Raises:
            Empty: none arrived before the deadline.
        """
        self._waits = True
        while True:
            with self._pause():
                settled = self._settled.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            if settled is None:
                raise Ended
            self._ready[settled[0]] = settled[1]
            if self._settled.empty():
                break
        self._waits = False

    @contextlib.contextmanager
    def _pause(self) -> Generator[None]:
        past, since = self._idle[0], time.monotonic()
        self._idle = past, since
        try:
            yield
        finally:
            self._idle = past + time.monotonic() - since, None

    def _result(self, request: PendingRequest, reply: Reply | None) -> ExternalSettledResult:
        if reply is None or reply.nothing:
            return {"return_value": None}
        error = reply.error
        if error is None:
            encoded = reply.encoded or encode_value(reply.value)
            limit = self._job.limits.tool_output_bytes
            if len(encoded.text) <= limit:
                return {"return_value": value_for_program(encoded)}
            size = len(encoded.text)
            error = CallError.of(
                MessageTooLarge(f"tools.{request.tool}: the output has {size} bytes; {limit} are allowed")
            )
        exception = _exception_for(error)
        self._raised[str(exception)] = error
        return {"exception": exception}

    # --- calls

    def _call(self, snapshot: FunctionSnapshot, tool: str, offset: int | None, *, alone: bool) -> None:
        """Makes a call. If it is refused here, it is settled at once."""
        number = snapshot.call_id
        if not alone:
            self._tools[number] = tool
        self._made += 1
        try:
            encoded = self._input(snapshot, tool)
        except CorralError as error:
            self._pending[number] = PendingRequest(
                number, alone, tool=tool, input=EncodedValue(b"", tagged=False), offset=offset
            )
            self._ready[number] = Reply(error=CallError.of(error))
            return
        self._sequence += 1
        request = PendingRequest(number, alone, tool=tool, sequence=self._sequence, input=encoded, offset=offset)
        self._pending[number] = request
        self._host.submit(request)

    def _input(self, snapshot: FunctionSnapshot, tool: str) -> EncodedValue:
        limits = self._job.limits
        if len(tool) > MAX_TOOL_PATH:
            raise ToolNotFound(f"no tool {json.dumps(tool[:50])}")
        if self._made > limits.calls:
            raise CallBudgetExceeded(
                f"the budget of {limits.calls} tool call{'' if limits.calls == 1 else 's'} is used up, "
                f"so tools.{tool} was not called"
            )
        arguments, members = snapshot.args, snapshot.kwargs
        if tool in BY_POSITION and len(arguments) == 1 and members:
            members, arguments = {BY_POSITION[tool]: arguments[0], **members}, ()
        if len(arguments) > 1 or (arguments and members):
            raise InvalidArguments(f"tools.{tool} takes keyword arguments, or its whole input as the only argument")
        try:
            return encode_input(arguments[0] if arguments else members, limits.tool_input_bytes, self._tools.get)
        except TooLarge as error:
            raise MessageTooLarge(f"tools.{tool}: {error}") from None
        except UnencodableValue as error:
            raise InvalidArguments(f"tools.{tool}: {error}") from None

    def _forgotten(self) -> str | None:
        """Returns the tool of the call that was most likely not awaited: the last one without an answer, or else the
        last one."""
        waiting = [number for number in self._tools if number in self._pending]
        return self._tools[max(waiting or self._tools)] if self._tools else None

    def _unawaited(self, request: PendingRequest) -> Unawaited:
        reply = self._ready.get(request.number)
        error = reply.error if reply is not None else None
        position = None
        if request.offset is not None:
            before = self._job.program.code.encode()[: request.offset].decode("utf-8", "ignore")
            line = before.rpartition("\n")[2]
            position = locate(self._job.program, before.count("\n") + 1, len(line) + 1)
        return Unawaited(
            tool=request.tool,
            sequence=request.sequence,
            error=f"{error.name}: {error.message}"[:_MAX_REMARK] if error is not None else None,
            line=position and position.line,
            column=position and position.column,
        )

    # --- names

    def _name(self, snapshot: NameLookupSnapshot) -> SyncSnapshot:
        """Resolves an undefined name, or an attribute of `tools` or of a namespace that is not called at once."""
        name = snapshot.variable_name
        if snapshot.object_id is None or name.startswith("_"):
            return snapshot.resume()
        path = self._prefixes[snapshot.object_id] + name
        if ToolName.parse(path) in self._job.tools:
            return snapshot.resume(value=_function(path))
        if len(path) > MAX_TOOL_PATH or len(self._paths) >= _MAX_PATHS:
            return snapshot.resume()
        return snapshot.resume(value=self._node(f"{path}."))

    def _node(self, prefix: str) -> ClassInstance:
        """Makes `tools`, or a namespace in it, even an unknown one, so that the host can suggest similar names."""
        node = self._paths.get(prefix)
        if node is None:
            node = self._paths[prefix] = ClassInstance(Tools())
            self._prefixes[node.id] = prefix
        return node

    def _module(self) -> ExternalModule:
        """Makes `tools` for `import tools`."""
        own: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for tool in self._job.tools:
            members = own if tool.namespace is None else nested.setdefault(tool.namespace, {})
            members[tool.name] = _function(str(tool))
        return ExternalModule(own | {namespace: ExternalModule(members) for namespace, members in nested.items()})

    # --- the console

    def _print(self, stream: str, text: str, *, last: bool = False) -> None:
        """Collects Monty's output, which arrives in pieces of any size. Each line is an entry."""
        lines = (self._lines[stream] + text).split("\n")
        self._lines[stream] = lines.pop()
        if self._lines[stream] and (last or len(self._lines[stream]) > self._job.limits.log_bytes):
            lines.append(self._lines[stream])
            self._lines[stream] = ""
        for line in lines:
            self._console.log(_LEVELS[stream], line)

    def _log(self, payload: bytes) -> None:
        level, text = json.loads(payload)
        self._host.log(LogEntry(level=level, text=text))


def _function(path: str) -> Callable[[], None]:
    """Returns a placeholder for a tool, as in `f = tools.x`; Monty identifies it by its name."""

    def tool() -> None: ...

    tool.__name__ = f"tools.{path}"
    return tool

"""One job in Monty, on the side of the thread that drives the interpreter.

Monty stops at each call, import and sleep and asks what to do. That exchange blocks, so it has a thread, on asyncio and
trio alike. A call starts when the program makes it: Monty does not tell which of its calls a program awaits.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from pydantic_monty import (
    ClassInstance,
    ExternalModule,
    ExternalSettledResult,
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyRuntimeError,
    MontySyntaxError,
    NameLookupSnapshot,
    SyncSnapshot,
)

from corral.errors import (
    CallBudgetExceeded,
    CorralError,
    InvalidArguments,
    MessageTooLarge,
    OutputExceeded,
    ProgramFailed,
    ToolNotFound,
)
from corral.guest import decode_value, encode_value
from corral.guest.python.calls import BY_POSITION
from corral.guest.python.console import Console
from corral.guest.python.values import TooLarge, UnencodableValue
from corral.sandboxes.base import GRACE_SECONDS, Job
from corral.sandboxes.framed.exits import failed_exit
from corral.sandboxes.monty.errors import SCRIPT, exception_for, failure, locate
from corral.sandboxes.monty.files import MontyFiles
from corral.sandboxes.monty.values import NORMALIZE, NotData, Tools, encode_input, encode_result, value_for_program
from corral.sandboxes.monty.worker import Worker
from corral.types import (
    MAX_TOOL_PATH,
    CallError,
    EncodedValue,
    ExecutionError,
    Exit,
    LogEntry,
    LogLevel,
    Reply,
    ToolName,
    Unawaited,
)

_END = "\n\n_corral_result\n"
"""Makes the value of the program that of the text. The empty line ends a line that goes on in a next one."""
_COROUTINE = re.compile(r"<coroutine object \w+>")
_MAX_PATHS = 1000
"""Attributes of `tools` that a program may have looked up without calling them."""
_MAX_UNAWAITED = 100
_MAX_REMARK = 1000
_LEVELS: dict[str, LogLevel] = {"stdout": "log", "stderr": "error"}
_MODULES = ("tools", "codemode")


class Ended(Exception):
    """Nobody waits for the program any longer."""


class PendingRequest(NamedTuple):
    """Request of the program: a call, or, without an input, a sleep."""

    number: int
    """Monty's, by which it is settled."""
    alone: bool
    """The program awaits it at once, and has nothing else to do."""
    seconds: float = 0.0
    tool: str = ""
    sequence: int = 0
    input: EncodedValue | None = None
    offset: int | None = None
    """Offset in the code, in bytes; None for a call from a text that the program made."""


class MontyHost(Protocol):
    """The event loop's side, as the program's thread sees it."""

    def submit(self, request: PendingRequest) -> None: ...
    def log(self, entry: LogEntry) -> None: ...
    def report_early_outcome(self, outcome: Exit) -> None: ...


class MontyProgram:
    """Drives one program from its first instruction to its `Exit`."""

    def __init__(self, worker: Worker, job: Job, host: MontyHost) -> None:
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
        """Answers to it that have come."""
        self._tools: dict[int, str] = {}
        """The tools of calls that were not awaited at once."""
        self._raised: dict[str, CallError] = {}
        """Errors of calls by their texts in the program."""
        self._paths: dict[str, ClassInstance] = {}
        self._prefixes: dict[UUID, str] = {}
        self._console = Console(self._log, job.limits.log_bytes)
        self._lines = {"stdout": "", "stderr": ""}
        self._files = MontyFiles(job.files, worker.memory_mb << 20)
        self.file_seconds = 0.0
        """Processor time of the host for files of the program, which counts as the program's."""

    def settle(self, number: int, reply: Reply | None) -> None:
        """Takes the reply to a `PendingRequest`; None for a sleep."""
        self._settled.put((number, reply))

    def end(self) -> None:
        """Has `run` raise `Ended` wherever it waits."""
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

    def run(self) -> Exit:
        """Blocks until the program has ended, and all of its calls.

        Raises:
            Ended: `end` was called.
            MontyCrashedError: the worker is gone.
        """
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
        """Passes on the last lines that did not end. Once `end` was called, the event loop may call it, too."""
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
            return Exit(status="failed", exit_code=1, error=failed)
        return Exit(value=decode_value(encoded.text, tagged=encoded.tagged))

    def _finished(self, exit: Exit) -> Exit:
        """Waits for the calls that the program left behind, and says which it never awaited.

        Of a program with an error they have a grace; `MontyRun` ends the rest.
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
            return exit  # they may be those that a failed `gather` left behind, which Monty does not tell
        return replace(exit, unawaited=tuple(map(self._unawaited, left[:_MAX_UNAWAITED])))

    # --- the exchange

    def _feed(self, text: str, inputs: dict[str, Any] | None = None) -> Any:
        """Runs a text in the session to its value."""
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
        """Answers other requests of the program: a file, a module, a pause, its environment."""
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

    def _results(self, wanted: list[int]) -> dict[int, ExternalSettledResult]:
        """Answers to some of what Monty waits for; blocks until there is one."""
        while not (found := [number for number in wanted if number in self._ready]):
            self._wait()
        return {number: self._taken(number) for number in found}

    def _taken(self, number: int) -> ExternalSettledResult:
        return self._result(self._pending.pop(number), self._ready.pop(number))

    def _wait(self, deadline: float | None = None) -> None:
        """Takes all answers that have come; blocks until there is one.

        Raises:
            Empty: there was none until the deadline.
        """
        self._waits = True
        while True:
            settled = self._settled.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            if settled is None:
                raise Ended
            self._ready[settled[0]] = settled[1]
            if self._settled.empty():
                break
        self._waits = False

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
        exception = exception_for(error)
        self._raised[str(exception)] = error
        return {"exception": exception}

    # --- calls

    def _call(self, snapshot: FunctionSnapshot, tool: str, offset: int | None, *, alone: bool) -> None:
        """Makes a call; one that is refused here is settled at once."""
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
        """The tool of the call that was most likely not awaited: the last that Monty has no answer to, or the last."""
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
        """An undefined name; or an attribute of `tools`, or of a namespace, that is not called in the same breath."""
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
        """`tools`, or a namespace in it; an unknown one too, so that the host can say what is near."""
        node = self._paths.get(prefix)
        if node is None:
            node = self._paths[prefix] = ClassInstance(Tools())
            self._prefixes[node.id] = prefix
        return node

    def _module(self) -> ExternalModule:
        """`tools` for `import tools`."""
        own: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for tool in self._job.tools:
            members = own if tool.namespace is None else nested.setdefault(tool.namespace, {})
            members[tool.name] = _function(str(tool))
        return ExternalModule(own | {namespace: ExternalModule(members) for namespace, members in nested.items()})

    # --- the console

    def _print(self, stream: str, text: str, *, last: bool = False) -> None:
        """Takes what Monty printed, in pieces of any size; each line is an entry."""
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
    """Stands for a tool by itself, as in `f = tools.x`; Monty knows it by its name."""

    def tool() -> None: ...

    tool.__name__ = f"tools.{path}"
    return tool

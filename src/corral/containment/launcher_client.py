"""The host's side of the launcher: one per provider, started at the first guest, for all threads and event loops."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.concurrency.forks import ProcessOwner
from corral.errors import StartFailed

__all__ = ["Child", "LauncherClient", "Plan", "child_pipes"]

_LAUNCHER = Path(__file__).with_name("launcher.py")
_END_SECONDS = 10
"""Time for the launcher to kill and reap everything; it takes a few milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """All that is done to a child between fork and exec. `launcher` applies it as it stands.

    `limits` are resource limits as (number, value). With `confine`, the launcher itself drops every privilege and
    applies the Landlock `ruleset` and the system call `filter`; without it, the executable gets the filter to apply.
    """

    executable: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    limits: tuple[tuple[int, int], ...] = ()
    user: int | None = None
    confine: bool = False
    ruleset: int | None = None
    filter: bytes | None = None
    serves: bool = False
    """Its standard input is a socket over which it is asked for processes, as the launcher is."""
    scratch: Path | None = None
    """A directory of files that is removed if the host ends without having done so."""
    directory: Path | None = None
    """Working directory; by default the root."""

    @property
    def wraps(self) -> bool:
        """The executable is not the guest itself but makes its jail, and will say which process the guest is."""
        return self.filter is not None and not self.confine


@dataclass(slots=True)
class Child:
    """The host's ends of a new child's pipes, as raw descriptors, and its lifeline."""

    stdin: int
    stdout: int
    stderr: int
    lifeline: socket.socket
    info: int | None


@contextlib.contextmanager
def child_pipes(*, sockets: bool = False, report: bool = False) -> Generator[tuple[Child, list[int]]]:
    """Both ends of what connects a new child: the host's, and those to send; the latter are closed after the block.

    With `sockets` its standard input is a socket; with `report` it has one more pipe. If the block raises, all are.

    Raises:
        OSError: no descriptors are left.
    """
    ours: list[int] = []
    theirs: list[int] = []
    lifeline: socket.socket | None = None
    try:
        stdin, input_ = _socket() if sockets else os.pipe()
        _connect(ours, theirs, (input_, stdin))
        _connect(ours, theirs, os.pipe())
        _connect(ours, theirs, os.pipe())
        _connect(ours, theirs, _socket())
        if report:
            _connect(ours, theirs, os.pipe())
        _, output, errors, alive, *info = ours
        lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=alive)
        lifeline.setblocking(False)
        yield Child(input_, output, errors, lifeline, info[0] if report else None), theirs
    except BaseException:
        if lifeline is not None:
            lifeline.detach()
        for descriptor in ours:
            os.close(descriptor)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)


def _connect(ours: list[int], theirs: list[int], ends: tuple[int, int]) -> None:
    ours.append(ends[0])
    theirs.append(ends[1])


class LauncherClient:
    """Starts children in the launcher's process, which ends with this object and with the process that made it.

    Any thread may use it. After `fork`, a child process that uses it gets a launcher of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = ProcessOwner()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._plans: dict[Plan, int] = {}

    def spawn(self, plan: Plan) -> Child:
        """Asks for a child. It is born some time later: its lifeline tells.

        Raises:
            StartFailed: there is no launcher and none could be started.
            OSError: no descriptors are left.
        """
        with child_pipes(sockets=plan.serves, report=plan.wraps) as (child, theirs):
            self._send(plan, theirs)
        return child

    def close(self) -> None:
        """Ends the launcher and, with it, every child. Idempotent; `spawn` would start another."""
        with self._lock:
            self._end()

    def _send(self, plan: Plan, descriptors: list[int]) -> None:
        with self._lock:
            for attempt in range(2):
                control = self._running()
                try:
                    number = self._plans.get(plan)
                    if number is None:
                        number = len(self._plans)
                        self._tell(control, _message(plan, number), [] if plan.ruleset is None else [plan.ruleset])
                        self._plans[plan] = number
                    self._tell(control, {"start": number}, descriptors)
                    return
                except OSError as error:  # somebody has killed the launcher
                    reason = self._last_words() or str(error)
                    self._end()
                    if attempt:
                        raise StartFailed(f"the process that starts sandboxes ended: {reason}") from error

    def _tell(self, control: socket.socket, message: Mapping[str, object], descriptors: list[int]) -> None:
        socket.send_fds(control, [json.dumps(message).encode()], descriptors, socket.MSG_NOSIGNAL)

    def _running(self) -> socket.socket:
        if self._control is not None and self._owner.is_current:
            return self._control
        self._plans.clear()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LAUNCHER), str(theirs.fileno()), str(os.getpid())],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise StartFailed(f"cannot start {sys.executable}, which starts sandboxes: {error}") from error
        finally:
            theirs.close()
        self._owner.take_over()
        self._control = ours
        return ours

    def _last_words(self) -> str:
        process = self._process
        if process is None or process.poll() is None:
            return ""
        assert process.stderr is not None
        lines = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"status {process.returncode}"

    def _end(self) -> None:
        control, process = self._control, self._process
        self._control = self._process = None
        if control is not None:
            if self._owner.is_current:
                with contextlib.suppress(OSError):
                    self._tell(control, {"end": True}, [])
            control.close()
        if process is None or not self._owner.is_current:
            return
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _socket() -> tuple[int, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return ours.detach(), theirs.detach()


def _message(plan: Plan, number: int) -> dict[str, object]:
    return {
        "plan": number,
        "executable": str(plan.executable),
        "arguments": plan.arguments,
        "environment": dict(plan.environment),
        "limits": plan.limits,
        "user": plan.user,
        "confine": plan.confine,
        "ruleset": plan.ruleset is not None,
        "scratch": None if plan.scratch is None else str(plan.scratch),
        "directory": None if plan.directory is None else str(plan.directory),
        "filter": None if plan.filter is None else b64encode(plan.filter).decode(),
    }

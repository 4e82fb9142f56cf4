"""Host's side of the launcher. A provider starts one with its first guest, for all threads and event loops."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from corral.concurrency.descriptors import why_no_process_descriptors
from corral.concurrency.forks import ProcessOwner
from corral.errors import StartFailed

_LAUNCHER = Path(__file__).with_name("start_launcher.py")
_BUFFER_BYTES = 1 << 20
"""Requested size of the socket buffer. The kernel can grant less: /proc/sys/net/core/wmem_max."""
_SPACE_SECONDS = 10.0
_ANSWER_BYTES = 10_000
_END_SECONDS = 10
"""Seconds for the launcher to kill and reap everything. That takes a few milliseconds."""
_launchers: set[int] = set()
"""Processes of all launchers that this process has started."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Everything done to a child between fork and exec. `launcher` applies it unchanged.

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
    connection: int | None = None
    """Kind of the socket that serves as standard input and output; None for three pipes. With a socket, the launcher
    reports the standard error at the end."""
    scratch: Path | None = None
    """Directory of files that the launcher removes if the host ends without doing so."""
    directory: Path | None = None
    """Working directory; by default the root."""
    enter: tuple[int, ...] = ()
    """Descriptors of namespaces to enter first: a user and a mount namespace of the same user, and optionally a network
    namespace."""

    supervise: bool = False
    """True to run commands, each with its own arguments, environment and working directory, and end everything they
    start."""

    @property
    def wraps(self) -> bool:
        """True if the executable makes the guest's jail and reports the guest's process."""
        return self.filter is not None and not self.confine


class Programs(NamedTuple):
    """Folders of the host that a space sees through its own overlays, except for the folders `kept` below them."""

    overlays: Sequence[str] = ()
    kept: Sequence[str] = ()


@dataclass(slots=True)
class Child:
    """Host's ends of a new child's streams, as raw descriptors, and its lifeline.

    A connection is both its standard input and output.
    """

    stdin: int
    stdout: int
    stderr: int | None
    lifeline: socket.socket
    info: int | None


@contextlib.contextmanager
def child_streams(connection: int | None = None, *, report: bool = False) -> Generator[tuple[Child, list[int]]]:
    """Yields the host's ends of a new child's streams, and the child's ends to send, which are closed after the block.

    The streams are three pipes or a socket of kind `connection`, the lifeline and, with `report`, another pipe. If the
    block raises, all are closed.

    Raises:
        OSError: no descriptors are left.
    """
    ours: list[int] = []
    theirs: list[int] = []
    lifeline: socket.socket | None = None
    try:
        if connection is None:
            stdin, input_ = os.pipe()
            _connect(ours, theirs, (input_, stdin))
            _connect(ours, theirs, os.pipe())
            _connect(ours, theirs, os.pipe())
        else:
            _connect(ours, theirs, _sockets(connection))
        streams = ours[0], ours[-2] if connection is None else ours[0], ours[-1] if connection is None else None
        _connect(ours, theirs, _sockets(socket.SOCK_SEQPACKET))
        lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=ours[-1])
        lifeline.setblocking(False)
        if report:
            _connect(ours, theirs, os.pipe())
        yield Child(*streams, lifeline, ours[-1] if report else None), theirs
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
    """Starts children in the launcher process, which ends with this object and with the process that created it.

    Thread-safe. After a fork, the child process gets its own launcher on first use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = ProcessOwner()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._plans: dict[Plan, int] = {}
        self._numbers = itertools.count()

    def begin(self) -> None:
        """Starts the launcher if it is not running. Does not wait for it.

        Raises:
            StartFailed: it could not be started.
        """
        with self._lock:
            self._running()

    def spawn(self, plan: Plan, *, options: int | None = None) -> Child:
        """Asks the launcher to start a child. The child is created later, and reported on its lifeline.

        `options` is a descriptor that a wrapping executable finds as `OPTIONS_FD`. For a plan that supervises, it
        contains the result of `supervised_options`.

        Raises:
            StartFailed: the launcher could not be started.
            OSError: no descriptors are left.
        """
        with child_streams(plan.connection, report=plan.wraps) as (child, theirs):
            self._send(plan, theirs if options is None else [*theirs, options])
        return child

    def close(self) -> None:
        """Ends the launcher and, with it, every child. Idempotent; another `spawn` starts a new one."""
        with self._lock:
            self._end()

    def make_space(
        self, sizes: Sequence[tuple[int, int]], place: Path, user: int | None, programs: Programs | None = None
    ) -> list[int]:
        """Returns descriptors of a user namespace, a mount namespace, and the roots of its in-memory file systems.

        `sizes` has the bytes and files of each file system, which are mounted on the existing folders "0", "1", ... of
        `place`. `place` also has an empty folder "empty" for overlays. With `programs`, files in them can be executed.
        Closing the descriptors frees everything once no child is inside any more.

        Raises:
            StartFailed: such namespaces cannot be made here, or the launcher could not be started.
            OSError: no descriptors are left.
        """
        overlays, kept = programs or Programs()
        message = {
            "space": sizes, "place": str(place), "user": user, "executable": programs is not None,
            "overlays": overlays, "kept": kept,
        }  # fmt: skip
        return self._made("file system in memory", message, [], 2 + len(sizes))

    def make_network(self, owner: int, user: int | None, port: int) -> tuple[int, socket.socket]:
        """Makes a network namespace with only the loopback interface, and a non-blocking socket that listens there.

        `owner` is the descriptor of the user namespace that owns it, which `user` created.

        Raises:
            StartFailed: such a namespace cannot be made here, or the launcher could not be started.
            OSError: no descriptors are left.
        """
        namespace, listener = self._made("network", {"network": port, "user": user}, [owner], 2)
        listening = socket.socket(fileno=listener)
        listening.setblocking(False)
        return namespace, listening

    def limit_data(self, pid: int, bytes_: int, user: int) -> bool:
        """Limits the memory of a process of this user (RLIMIT_DATA). Returns False if it has ended or cannot be
        limited.

        Raises:
            StartFailed: the launcher could not be started.
            OSError: no descriptors are left.
        """
        data, _ = self._ask({"limit": pid, "data": bytes_, "user": user}, [], 0)
        return bool(data) and "limit" in json.loads(data)

    def _made(self, name: str, message: Mapping[str, object], descriptors: Sequence[int], count: int) -> list[int]:
        data = b""
        for attempt in range(2):
            data, made = self._ask(message, descriptors, count)
            if len(made) == count:
                return made
            for descriptor in made:
                os.close(descriptor)
            if data or attempt:
                break  # no answer: the launcher was killed
        reason = json.loads(data).get("error") if data else "the process that makes it ended"
        raise StartFailed(f"cannot make a {name} for a session: {reason}")

    def _ask(self, message: Mapping[str, object], descriptors: Sequence[int], count: int) -> tuple[bytes, list[int]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self._tell_running(lambda control: self._tell(control, message, [theirs.fileno(), *descriptors]))
            ours.settimeout(_SPACE_SECONDS)
            try:
                data, made, _, _ = socket.recv_fds(ours, _ANSWER_BYTES, count)
            except TimeoutError:
                return b"", []
        for descriptor in made:
            os.set_inheritable(descriptor, False)
        return data, made

    def forget(self, plans: Iterable[Plan]) -> None:
        """Frees the launcher's resources for these plans."""
        with self._lock:
            numbers = [number for plan in plans if (number := self._plans.pop(plan, None)) is not None]
            if numbers and self._control is not None and self._owner.is_current:
                with contextlib.suppress(OSError):
                    self._tell(self._control, {"forget": numbers}, [])

    def _send(self, plan: Plan, descriptors: list[int]) -> None:
        def send(control: socket.socket) -> None:
            number = self._plans.get(plan)
            if number is None:
                number = next(self._numbers)
                ruleset = [] if plan.ruleset is None else [plan.ruleset]
                self._tell(control, _message(plan, number), [*ruleset, *plan.enter])
                self._plans[plan] = number
            self._tell(control, {"start": number}, descriptors)

        self._tell_running(send)

    def _tell_running(self, tell: Callable[[socket.socket], None]) -> None:
        """Sends a message to the launcher; if it has ended, starts a new one.

        Raises:
            StartFailed: the launcher could not be started.
            OSError: too many descriptors are in flight.
        """
        with self._lock:
            for attempt in range(2):
                control = self._running()
                try:
                    tell(control)
                    return
                except OSError as error:
                    if error.errno == errno.ETOOMANYREFS:
                        raise  # requests arrive faster than children start: unix(7)
                        # the launcher was killed
                    reason = self._last_words() or str(error)
                    self._end()
                    if attempt:
                        raise StartFailed(f"the process that starts sandboxes ended: {reason}") from error

    def _tell(self, control: socket.socket, message: Mapping[str, object], descriptors: list[int]) -> None:
        socket.send_fds(control, [encoded(message)], descriptors, socket.MSG_NOSIGNAL)

    def _running(self) -> socket.socket:
        if self._control is not None and self._owner.is_current:
            return self._control
        if (reason := why_no_process_descriptors()) is not None:
            raise StartFailed(reason)
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
        _launchers.add(self._process.pid)
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
        _launchers.discard(process.pid)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stderr is not None
        process.stderr.close()


def guests() -> Iterator[int]:
    """Returns the processes that this process's launchers have started, and their descendants."""
    for launcher in [*_launchers]:
        yield from processes_below(launcher)


def processes_below(pid: int) -> Iterator[int]:
    """Yields a process's live descendants (proc_tid_children(5))."""
    pending = [pid]
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                children = [*map(int, (task / "children").read_bytes().split())]
                pending += children
                yield from children


def encoded(message: object) -> bytes:
    """Encodes a message for the launcher."""
    return marshal.dumps(_exact(message))


def _exact(value: object) -> Any:
    """Converts subclasses of str and int, which `marshal` rejects, to str and int."""
    if isinstance(value, Mapping):
        return {_exact(key): _exact(each) for key, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_exact(each) for each in cast("Sequence[object]", value)]
    if isinstance(value, str):
        return str.__str__(value)
    return value if value is None or isinstance(value, (bool, bytes)) else int(cast("int", value))


def _sockets(kind: int) -> tuple[int, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    if kind == socket.SOCK_STREAM:
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
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
        "enters": bool(plan.enter),
        "supervise": plan.supervise,
        "connection": plan.connection is not None,
        "scratch": None if plan.scratch is None else str(plan.scratch),
        "directory": None if plan.directory is None else str(plan.directory),
        "filter": plan.filter,
    }

"""Language server that starts in the background and restarts after a loss."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from corral.checking.servers.lsp import ServerLost
from corral.checking.servers.specs import ServerKind
from corral.checking.servers.workspace import Workspace
from corral.concurrency.fairness import FairQueue
from corral.concurrency.forks import ProcessOwner, finalize_in_owner
from corral.errors import StartFailed
from corral.jail import Engine
from corral.jail.process import can_limit
from corral.logs import get_logger

T = TypeVar("T")
_Job: TypeAlias = Callable[[Workspace | None], T]
"""Job for a server. Its argument is None if the server did not start."""

logger = get_logger("corral.checking")

_WARMING_SECONDS = 60.0
_DECLARING_SECONDS = 10.0
"""Seconds to read the declarations at startup, after which the server starts without them."""
_PAUSES_SECONDS = (0.0, 1.0, 10.0, 60.0, 300.0)
"""Seconds until the next start, by the number of consecutive failed starts."""
_SPARE_SECONDS = 60.0
"""Seconds for which an unused server is kept."""
_ALMOST_IDLE_SECONDS = 0.1
_MEASURED_CHECKS = 50
_MEASURED_SECONDS = 0.5
"""Memory is measured after this many jobs, and after any job that takes this long."""


class LanguageServer:
    """Server of one kind. Any thread can submit jobs, and owners take turns.

    It runs in the best jail that works here: it can read one directory of ours, but cannot write, use a network or
    start processes. Where no jail works it runs without one, because it only reads programs.

    Jobs run in a thread that lives while the queue is not empty; the first job starts the server. A server that a
    program crashes or blocks is replaced at once.
    """

    def __init__(self, kind: ServerKind, engine: Engine, packages: Path | None = None) -> None:
        self.kind = kind
        self._engine = engine
        self._packages = packages
        self._declare: Callable[[], str] = str
        self._state = threading.Lock()
        self._jobs: FairQueue[tuple[Future[Any], _Job[Any]]] = FairQueue()
        self._busy = False
        """Held by the server's exclusive user: the thread, or an event loop."""
        self._idle = threading.Event()
        self._idle.set()
        self._workspace: Workspace | None = None
        self._opening: Workspace | None = None
        """Most recently started workspace."""
        self._finalizer: weakref.finalize[..., LanguageServer] | None = None
        self._owner = ProcessOwner()
        self._checks = 0
        self._failures = 0
        self._starts_at = 0.0
        """Earliest time of the next start (`time.monotonic`)."""
        self._used_at = 0.0
        self._closing = threading.Event()

    @property
    def ready(self) -> bool:
        """True if the server can answer now."""
        return self._workspace is not None and self._owner.is_current

    @property
    def pid(self) -> int | None:
        """Process number, if the server is running."""
        workspace = self._workspace
        return workspace.pid if workspace is not None and self.ready else None

    def start(self, declare: Callable[[], str] = str) -> None:
        """Starts the server in the background, unless it runs. It is ready once it has checked an empty program.

        `declare`, which can be slow, returns the declarations that it reads first.
        """
        self._declare = declare
        self.submit(None, _nothing)

    def wait(self, seconds: float) -> bool:
        """Waits for the server to start; returns True if it is ready."""
        started = self.submit(None, _nothing)
        wait([started], seconds)
        started.cancel()
        return self.ready

    def submit(self, owner: Hashable, job: Callable[[Workspace | None], T]) -> Future[T]:
        """Queues a job for the owner's turn. If the job raises ServerLost, the next one gets another server."""
        future: Future[T] = Future()
        with self._state:
            if self._owner.take_over():
                self._workspace, self._jobs, self._busy = None, FairQueue(), False
            self._jobs.add(owner, (future, job))
            if self._busy:
                return future
            self._busy = True
            self._idle.clear()
        self._go_on()
        return future

    def is_wanted_by_others(self, owner: Hashable) -> bool:
        """True if jobs of another owner are waiting."""
        with self._state:
            return self._jobs.has_others(owner)

    def seize(self, declarations: str | None = None) -> Workspace | None:
        """Takes the server exclusively until `hand_back`; returns None if it is busy or lacks these declarations."""
        with self._state:
            workspace = self._workspace
            if self._busy or workspace is None or not self.ready:
                return None
            if declarations is not None and not workspace.holds(declarations):
                return None
            self._busy = True
            self._idle.clear()
            return workspace

    def hand_back(self, rest: Callable[[Workspace | None], object] | None = None) -> None:
        """Releases the server, after running the job `rest` if passed."""
        if rest is None:
            with self._state:
                if not self._jobs:
                    self._busy = False
                    self._idle.set()
                    return
        self._go_on(rest)

    def lose(self) -> None:
        """Ends the server and queues the cleanup; the next job starts another one. Only its exclusive user may call
        this."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.kill()
            with self._state:
                self._jobs.add(None, (Future(), lambda _: workspace.close()))

    def end_if_idle(self, seconds: float) -> None:
        """Ends the server in the background if it has been idle for `seconds`. The next job starts it again."""
        if time.monotonic() > self._used_at + seconds and self.seize() is not None:
            self.hand_back(self._end)

    def close(self) -> None:
        """Closes the server for good, and waits for the current job. Idempotent.

        An idle process is kept for a minute, for the next server of its kind.
        """
        self._closing.set()
        if not self._owner.is_current:
            return
        self._idle.wait(_ALMOST_IDLE_SECONDS)
        if self._packages is None and (workspace := self.seize()) is not None:
            self._workspace = self._opening = None
            if self._finalizer is not None:
                self._finalizer.detach()
            self.hand_back()
            spares.keep(workspace)
            return
        for each in (self._opening, self._workspace):
            if each is not None:
                each.kill()  # ends a check that waits for an answer
        self._idle.wait(_WARMING_SECONDS)
        self._end(None)

    def _go_on(self, first: _Job[Any] | None = None) -> None:
        name = f"corral-{self.kind.name}"
        threading.Thread(target=self._work, args=(first,), name=name, daemon=True).start()

    def _work(self, first: _Job[Any] | None) -> None:
        """Runs all jobs, one after another."""
        if first is not None:
            self._do(Future(), first)
        while True:
            with self._state:
                if not self._jobs:
                    self._busy = False
                    self._idle.set()
                    return
                future, job = self._jobs.take()
            self._do(future, job)

    def _do(self, future: Future[T], job: _Job[T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            workspace = self._present()
            began = self._used_at = time.monotonic()
            result = job(workspace)
        except BaseException as error:
            if isinstance(error, ServerLost):
                self.lose()
            future.set_exception(error)
        else:
            if workspace is not None and workspace is self._workspace:
                self._measure(workspace, time.monotonic() - began)
            future.set_result(result)

    def _measure(self, workspace: Workspace, seconds: float) -> None:
        self._checks += 1
        is_due = self._checks % _MEASURED_CHECKS == 0 or seconds > _MEASURED_SECONDS
        if is_due and workspace.resident_bytes() > self.kind.resident_bytes:
            self.lose()

    def _present(self) -> Workspace | None:
        """Returns the server. Starts it if it is missing and a start is allowed now."""
        if self._workspace is None and not self._closing.is_set() and time.monotonic() >= self._starts_at:
            try:
                self._workspace = self._opened()
                self._failures = 0
            except Exception as error:
                self._starts_at = time.monotonic() + _PAUSES_SECONDS[min(self._failures, len(_PAUSES_SECONDS) - 1)]
                self._failures += 1
                if not self._closing.is_set():
                    level = logging.WARNING if can_limit else logging.INFO  # nobody can help it without a jail
                    text = "the language server %r does not start, so programs are not checked: %s"
                    logger.log(level, text, self.kind.name, error)
        return self._workspace

    def _opened(self) -> Workspace:
        declarations = self._declare()
        if declarations:
            try:
                return self._warm(declarations, _DECLARING_SECONDS)
            except ServerLost as error:
                if self._closing.is_set():
                    raise
                logger.warning("the language server %r did not take the declarations: %s", self.kind.name, error)
                self._declare = str
        return self._warm("", _WARMING_SECONDS)

    def _warm(self, declarations: str, seconds: float) -> Workspace:
        spare = spares.take(self.kind) if self._packages is None else None
        workspace = self._opening = spare or Workspace(self.kind, self._packages)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = finalize_in_owner(self, _end, workspace, self._closing)
        try:
            if self._closing.is_set():
                raise StartFailed("it is no longer needed")
            if spare is None:
                workspace.open(self._engine)
            document = workspace.document(declarations, time.monotonic() + seconds)
            document.write("")
            document.remarks()
        except BaseException:
            workspace.close()
            raise
        return workspace

    def _end(self, _: Workspace | None) -> None:
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()


class _Spares:
    """Unused servers of this process, at most one of each kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Workspace, threading.Timer]] = {}
        """Servers by name of their kind."""
        self._owner = ProcessOwner()

    def keep(self, workspace: Workspace) -> None:
        """Keeps a server for a minute; ends it if it is too large or one of its kind is already kept."""
        kind = workspace.kind
        timer = threading.Timer(_SPARE_SECONDS, self._end, [kind])
        timer.daemon = True
        with self._lock:
            if self._owner.take_over():
                self._kept.clear()
            if 0 < workspace.resident_bytes() <= kind.resident_bytes and kind.name not in self._kept:
                self._kept[kind.name] = workspace, timer
                timer.start()
                return
        workspace.close()

    def take(self, kind: ServerKind) -> Workspace | None:
        with self._lock:
            kept = self._kept.pop(kind.name, None) if self._owner.is_current else None
        if kept is None:
            return None
        workspace, timer = kept
        timer.cancel()
        if workspace.kind == kind and workspace.resident_bytes() > 0:
            return workspace
        workspace.close()
        return None

    def end(self) -> None:
        """Ends all kept servers."""
        for workspace, _ in list(self._kept.values()):
            self._end(workspace.kind)

    def _end(self, kind: ServerKind) -> None:
        workspace = self.take(kind)
        if workspace is not None:
            workspace.close()


spares = _Spares()
atexit.register(spares.end)


def _nothing(_: Workspace | None) -> None:
    """Job that only starts the server."""


def _end(workspace: Workspace, closing: threading.Event) -> None:
    closing.set()
    workspace.close()

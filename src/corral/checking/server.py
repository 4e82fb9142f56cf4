"""A language server that is kept: started in the background, and started anew when it dies."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator

from corral.checking.kinds import ServerKind
from corral.checking.lsp import ServerLost
from corral.checking.workspace import Document, Workspace
from corral.errors import StartFailed
from corral.logs import get_logger
from corral.sandboxes.jail import Engine

__all__ = ["LanguageServer"]

logger = get_logger("corral.checking")

_WARMING_SECONDS = 60.0
_PAUSES_SECONDS = (0.0, 1.0, 10.0, 60.0, 300.0)
"""Before a server is started again, by how often in a row it has died early."""
_STABLE_CHECKS = 50
"""A server that has lasted so many may be started again at once."""


class LanguageServer:
    """A server of one kind. Any thread may use it; checks take turns.

    It lives in the best jail that works here: it reads one directory of ours, and may not write, reach a network or
    start anything. Where no jail works it runs without, since it never runs a program, but only reads it.
    """

    def __init__(self, kind: ServerKind, engine: Engine) -> None:
        self.kind = kind
        self._engine = engine
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._workspace: Workspace | None = None
        self._opening: Workspace | None = None
        """The last one that was started."""
        self._lost: Workspace | None = None
        """One that has died and is not cleared away yet."""
        self._finalizer: weakref.finalize[..., LanguageServer] | None = None
        self._owner = 0
        self._checks = 0
        self._failures = 0
        self._starting = False
        self._starts_at = 0.0
        """When the last start begins or began, after a pause (`time.monotonic`)."""
        self._closing = threading.Event()
        self._settled = threading.Event()
        """Set while no start is under way."""
        self._settled.set()

    @property
    def ready(self) -> bool:
        """Whether it would answer now."""
        return self._workspace is not None and self._owner == os.getpid()

    @property
    def pid(self) -> int | None:
        """Of its process, if it runs."""
        workspace = self._workspace
        return workspace.pid if workspace is not None and self.ready else None

    def start(self, declare: Callable[[], str] = str) -> None:
        """Has it started in the background, unless it runs. It is ready when it has checked an empty program.

        `declare` gives the declarations that it is to know by then, which may take a while.
        """
        with self._state:
            if self._closing.is_set() or self._starting or self.ready:
                return
            self._starting = True
            pause_seconds = _PAUSES_SECONDS[min(max(self._failures - 1, 0), len(_PAUSES_SECONDS) - 1)]
            self._starts_at = time.monotonic() + pause_seconds
            self._settled.clear()
        name = f"corral-{self.kind.name}"
        threading.Thread(target=self._start, args=(declare,), name=name, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Waits for a start that is under way, unless it will not even begin in time. Tells if the server is ready."""
        if self._starts_at < time.monotonic() + seconds:
            self._settled.wait(seconds)
        return self.ready

    @contextlib.contextmanager
    def document(
        self, declarations: str, *, turn_seconds: float, seconds: float, at_once: bool = False
    ) -> Generator[Document | None]:
        """A document beside these declarations, for some time. None: it is not ready, or its turn did not come.

        `at_once`: None also if the server does not have the declarations yet.

        Raises:
            ServerLost: it has died, or took too long; another one is being started.
        """
        if not self._turn.acquire(timeout=turn_seconds):
            yield None
            return
        try:
            workspace = self._workspace
            if workspace is None or not self.ready or (at_once and not workspace.holds(declarations)):
                yield None
                return
            try:
                yield workspace.document(declarations, time.monotonic() + seconds)
            except ServerLost:
                self._lose(workspace, declarations)
                raise
            self._checks += 1
            if self._checks % _STABLE_CHECKS == 0:
                self._failures = 0
                if workspace.resident_bytes() > self.kind.resident_bytes:
                    self._lose(workspace, declarations)
                    self._failures = 0
        finally:
            self._turn.release()

    def close(self) -> None:
        """Ends it for good, and waits for what is under way. Idempotent."""
        self._closing.set()
        if self._owner not in (0, os.getpid()):
            return  # it belongs to the process that this one was forked from
        if self._opening is not None:
            self._opening.kill()
        workspace = self._workspace
        if workspace is not None:
            workspace.kill()
            with self._turn:  # a check that waits for an answer ends now
                self._workspace = None
                workspace.close()
        self._settled.wait(_WARMING_SECONDS)

    def _start(self, declare: Callable[[], str]) -> None:
        try:
            if self._lost is not None:
                self._lost.close()
                self._lost = None
            if not self._closing.wait(self._starts_at - time.monotonic()):
                self._keep(self._warm(declare()))
        except Exception as error:
            self._failures += 1
            if not self._closing.is_set():
                logger.warning(
                    "the language server %r does not start, so programs are not checked: %s", self.kind.name, error
                )
        finally:
            self._starting = False
            self._settled.set()

    def _warm(self, declarations: str) -> Workspace:
        workspace = self._opening = Workspace(self.kind)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _end, os.getpid(), workspace, self._closing)
        try:
            if self._closing.is_set():
                raise StartFailed("it is not needed any more")
            workspace.open(self._engine)
            document = workspace.document(declarations, time.monotonic() + _WARMING_SECONDS)
            document.write("")
            document.remarks()
        except BaseException:
            workspace.close()
            raise
        return workspace

    def _keep(self, workspace: Workspace) -> None:
        with self._state:
            if not self._closing.is_set():
                self._workspace, self._owner, self._checks = workspace, os.getpid(), 0
                return
        workspace.close()

    def _lose(self, workspace: Workspace, declarations: str) -> None:
        """Ends it, and has another one started; what takes time is left to the thread that does so."""
        workspace.kill()
        self._workspace = None
        self._failures += 1
        if self._closing.is_set():
            workspace.close()
        else:
            self._lost = workspace
            self.start(lambda: declarations)


def _end(owner: int, workspace: Workspace, closing: threading.Event) -> None:
    if os.getpid() == owner:
        closing.set()
        workspace.kill()
        workspace.close()

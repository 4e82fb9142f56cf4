"""Notebooks: the programs of a session are cells, which share a process and its variables."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import anyio

from corral.concurrency.kept import Kept
from corral.programs import EarlierCell, earlier_cell, joined, without_old_texts
from corral.sandboxes import Sandbox
from corral.sessions import OpenSession
from corral.types import Diagnostic, Exit, Language, Owner, Program

_IDLE_SECONDS = 900.0
_MOST_OPEN = 100
_MOST_CELLS = 1_000
"""Maximum number of cells of one process."""
_MOST_NAMES = 20_000
_NO_ROOM = "notebooks are running cells, and this user has a fair share of them; wait until one of them has ended"
_KEPT = "Variables that the program set before it failed are kept: continue from there."
_AGAIN = (
    "Program {} of this session was the same, so its variables were set and its calls made already; send only new code."
)
_MANY_CELLS = f"their process ran {_MOST_CELLS:,} programs, which is the maximum"
_MANY_NAMES = f"there were more than {_MOST_NAMES:,} of them"
_SCOPES = "a program with more permissions does not share a process with them"


class _Key(NamedTuple):
    owner: Owner
    session: OpenSession
    language: Language


class Notebook:
    """Cells of one session in one language. Use it while you hold its `turn`."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.turn = anyio.Lock()
        self.count = 0
        """Number of cells that have run."""
        self.names: frozenset[str] = frozenset()
        """Names of the variables in the process."""
        self._first = 1
        """Number of the process's first cell."""
        self._cells: list[EarlierCell] = []
        self._scopes: frozenset[str] = frozenset()
        self._lost = ""
        self._has_failed = False
        self._sources: dict[bytes, int] = {}
        """Numbers of the cells of the process that succeeded, by digest."""
        self._again = 0
        """Number of an earlier cell with the source of the last one."""

    def end_reason(self, scopes: frozenset[str]) -> str | None:
        """Returns the reason why the process cannot run another cell with these scopes; None if it can."""
        if self._cells and not scopes <= self._scopes:
            return _SCOPES  # code of earlier cells can act in later cells
        if len(self._cells) >= _MOST_CELLS:
            return _MANY_CELLS
        return _MANY_NAMES if len(self.names) > _MOST_NAMES else None

    def checked(self, program: Program) -> Program:
        """Returns a cell together with the earlier ones, for its check."""
        return joined(self._cells, program)

    def begin(self, scopes: frozenset[str]) -> int:
        """Counts a cell that starts now, and returns its number."""
        self._scopes = scopes if not self._cells else self._scopes & scopes
        self.count += 1
        return self.count

    def add(self, program: Program, exit: Exit) -> None:
        """Adds a cell that has ended normally."""
        if exit.status != "rejected":
            cell = earlier_cell(program, is_complete=exit.status == "succeeded")
            self._cells = without_old_texts([*self._cells, cell])
            self.names |= {*program.binds}
            digest = blake2b(program.source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            self._again = self._sources.get(digest, 0)
            if exit.status == "succeeded":
                self._sources.setdefault(digest, self.count)
        self._has_failed = exit.status == "failed" and bool(program.binds)

    def lose(self, reason: str) -> None:
        """Records that the process is gone. The next result will say so."""
        if self._first <= self.count:
            cells = f"program {self._first}" if self._first == self.count else f"programs {self._first} to {self.count}"
            self._lost = f"The variables of {cells} of this session are gone, because {reason}. Define them again."
        self._first = self.count + 1
        self.names, self._cells, self._sources, self._again = frozenset(), [], {}, 0

    def lost(self) -> str:
        """Returns the remark about lost variables for the next result, once."""
        lost, self._lost = self._lost, ""
        return lost

    def with_remarks(self, exit: Exit, before: str) -> Exit:
        """Adds remarks about variables that are lost, or that a failed cell has set."""
        texts = [
            before,
            self._lost,
            _KEPT if self._has_failed else "",
            _AGAIN.format(self._again) if self._again else "",
        ]
        self._has_failed, self._again = False, 0
        remarks = (Diagnostic(severity="info", code="variables", message=each) for each in texts if each)
        return replace(exit, diagnostics=(*remarks, *exit.diagnostics))


class _Process:
    """Process of a notebook."""

    def __init__(self, notebook: Notebook, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.lost_by = "their process was idle and made room"
        self._notebook = notebook

    async def aclose(self) -> None:
        self._notebook.lose(self.lost_by)
        await self.sandbox.aclose()


class Notebooks(Kept[_Key, _Process]):
    """Processes of the notebooks of one Corral."""

    def __init__(self, idle_seconds: float = _IDLE_SECONDS, max_open: int = _MOST_OPEN) -> None:
        super().__init__(idle_seconds, max_open, _NO_ROOM)
        self._settings = idle_seconds, max_open
        self._notebooks: dict[_Key, Notebook] = {}

    def empty(self) -> Notebooks:
        """Returns a copy of the settings, without notebooks."""
        return Notebooks(*self._settings)

    def of(self, session: OpenSession, language: Language) -> Notebook:
        """Returns the notebook of a session, which ends with it."""
        key = _Key(session.context.owner, session, language)
        if key not in self._notebooks:
            self._notebooks[key] = Notebook(key)
            session.on_close.append(partial(self._drop, key))
        return self._notebooks[key]

    async def _drop(self, key: _Key) -> None:
        self._notebooks.pop(key, None)
        await self.close(key)

    @asynccontextmanager
    async def process(self, notebook: Notebook, start: Callable[[], Awaitable[Sandbox]]) -> AsyncGenerator[Sandbox]:
        """Yields the process of a notebook for one cell. Starts it if necessary, and ends it if the cell is
        interrupted."""

        async def open_() -> _Process:
            return _Process(notebook, await start())

        async with self.use(notebook.key, open_) as process:
            try:
                yield process.sandbox
            finally:
                if not process.sandbox.is_usable:
                    process.lost_by = f"program {notebook.count} was cut off, which ends their process"
                    with anyio.CancelScope(shield=True):
                        await self.close(notebook.key)

    async def end(self, notebook: Notebook, reason: str) -> None:
        """Ends the process of a notebook before its next cell."""
        kept = self._kept.get(notebook.key)
        if kept is not None and kept.value is not None:
            kept.value.lost_by = reason
            await self.close(notebook.key)

"""Notebooks: the programs of a session are cells, which share a process and its variables."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from secrets import token_hex
from typing import NamedTuple, Protocol

import anyio
import anyio.lowlevel

from corral.concurrency.kept import Kept
from corral.errors import LedgerDamaged, LedgerError, LedgerFailed, Outdated, SandboxLost, StartFailed
from corral.ledger import NOT_KEPT, Recorded, Records
from corral.programs import EarlierCell, earlier_cell, joined, without_old_texts
from corral.sandboxes import Sandbox
from corral.sessions import OpenSession
from corral.types import Diagnostic, Exit, Language, Owner, Program, Status

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
_OTHER_KIND = "programs with and without durable=True do not share a process"
_REBUILD_SECONDS = 60.0
"""Maximum time for running the cells of a lost process again."""
_MOST_BYTES = 32_000_000
"""Maximum size of their records."""
_MOST_LOSSES = 3
"""Number of processes in a row that may be lost while cells run again: a cell can be the cause."""
_ENDED = ("succeeded", "failed", "rejected")
_ANOTHER_HOST = "another host has run programs of this session meanwhile"
_OUTDATED = "they were set with another version of the engine or of a package"
_WAITS = (
    "The variables of program {} of this session are missing, because it waits for a decision. Its calls are made once "
    "that is taken, so do not make them again."
)
_RUNS = (
    "The variables of program {} of this session are missing, because its host was lost, or still runs it. It may have "
    "made its calls, or make them later, so look for their effects before you make them again."
)


class _Key(NamedTuple):
    owner: Owner
    session: OpenSession
    language: Language


class CellAgain(Protocol):
    """Recorded cell that can run again."""

    async def read_again(self, bound: frozenset[str], /) -> tuple[Program, frozenset[str]]:
        """Returns its program, behind cells that have bound these names, and its scopes."""
        ...

    async def run_again(self, program: Program, sandbox: Sandbox | None, /) -> Sandbox:
        """Runs it in the process of its notebook, which it starts unless it has one.

        Raises:
            LedgerError: it took another course, or was recorded with other versions.
            SandboxLost: the process was lost.
        """
        ...


class Notebook:
    """Cells of one session in one language. Use it while you hold its `turn`.

    `name` is its name in the ledger: its organization, user, session and language.
    """

    def __init__(self, name: Sequence[str | None]) -> None:
        self._name = name
        self.key: _Key | None = None
        """Key of its process, if that is kept."""
        self.turn = anyio.Lock()
        self.earlier: list[tuple[CellAgain, Program]] = []
        """Recorded cells to run again in the next process."""
        self._tail: str | None = None
        """Execution of the last recorded cell of the process."""
        self._seen: str | None = None
        """Last cell on record that this host has read or run."""
        self._executions: set[str] = set()
        """Executions of the cells that were read from the record."""
        self._is_gone = False
        """True if the process is gone, and its cells are on record. They have to be read before another one starts."""
        self._is_durable: bool | None = None
        """True for a process of recorded cells; None before its first one."""
        self._losses = 0
        """Number of processes in a row that were lost while recorded cells ran again."""
        self._last = 0
        """Number of the last cell that has ended normally."""
        self._is_running = False
        """True from the start of a cell to its normal end."""
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

    def end_reason(self, scopes: frozenset[str], *, is_durable: bool) -> str | None:
        """Returns the reason why the process cannot run another cell with these scopes; None if it can."""
        if self._is_durable not in (None, is_durable):
            return _OTHER_KIND
        if self._cells and not scopes <= self._scopes:
            return _SCOPES  # code of earlier cells can act in later cells
        if len(self._cells) >= _MOST_CELLS:
            return _MANY_CELLS
        return _MANY_NAMES if len(self.names) > _MOST_NAMES else None

    def checked(self, program: Program) -> Program:
        """Returns a cell together with the earlier ones, for its check."""
        return joined(self._cells, program)

    def begin(self, scopes: frozenset[str], *, is_durable: bool) -> int:
        """Counts a cell that starts now, and returns its number."""
        self._is_durable, self._is_running = is_durable, True
        self._scopes = scopes if not self._cells else self._scopes & scopes
        self.count += 1
        return self.count

    def add(self, program: Program, status: Status, execution_id: str) -> None:
        """Adds a cell that has ended normally."""
        self._last, self._tail, self._is_running = self.count, execution_id, False
        if status != "rejected":
            cell = earlier_cell(program, is_complete=status == "succeeded")
            self._cells = without_old_texts([*self._cells, cell])
            self.names |= {*program.binds}
            digest = blake2b(program.source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            self._again = self._sources.get(digest, 0)
            if status == "succeeded":
                self._sources.setdefault(digest, self.count)
        self._has_failed = status == "failed" and bool(program.binds)

    def lose(self, reason: str) -> None:
        """Records that the process is gone. The next result will say so."""
        if self._first <= self.count:
            self._lost = _gone(self._first, self.count, reason)
        self._forget(self.count + 1)

    def _forget(self, first: int) -> None:
        self._first = first
        self.names, self._cells, self._sources, self._again = frozenset(), [], {}, 0
        self.earlier, self._tail, self._is_gone, self._is_durable = [], None, False, None

    # --- with a ledger

    @property
    def is_recorded(self) -> bool:
        """True if the process has cells that are on record, or gets them when it starts."""
        return bool(self._is_durable) and self._tail is not None

    def end(self, reason: str) -> None:
        """Records that the process is gone. Cells on record run again in the next one, except one that was cut off."""
        if not self._is_durable:
            self.lose(reason)
            return
        self._is_gone = True
        if self._is_running:
            self._lost, self._is_running = _gone(self.count, self.count, reason), False

    @property
    def place(self) -> dict[str, object]:
        """Place of the cell that starts now, for its record."""
        return {"notebook": [*self._name], "number": self.count, "before": self._tail}

    async def record(self, records: Records, execution_id: str) -> None:
        """Makes a cell that starts now the last one on record.

        Raises:
            LedgerError: it could not be recorded.
        """
        state = {"last": execution_id, "count": self.count, "first": self._first}
        await records.update_session(self._name, lambda _: (False, state))
        self._seen = execution_id

    async def is_behind(self, records: Records) -> bool:
        """Returns True if cells on record are not in the process. Takes the numbers of cells from the record.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        state = await records.session_state(self._name)
        if state is None:
            if self._is_gone:
                self.lose("the ledger does not have them any more")
            return False
        if self._is_gone or state["last"] != self._seen:
            self._is_gone = True  # until the process has them, even if reading or running them is interrupted
            self._seen, self._first, self.count = state["last"], state["first"], max(self.count, state["count"])
        return self._is_gone

    async def load(self, records: Records, make: Callable[[Recorded], CellAgain]) -> None:
        """Takes over the cells on record, after `is_behind`. They run again when the next process starts."""
        count, tail, last = self.count, self._tail, self._last
        try:
            await self.load_up_to(self._seen, records, make)
            if tail is not None and tail not in self._executions and not self._lost:
                self._lost = _gone(last, last, _ANOTHER_HOST)
        except LedgerError as error:
            self.count = count
            self.lose(loss_of(error))
        self.count, self._is_running, self._has_failed, self._again = count, False, False, 0

    async def load_up_to(self, last: str | None, records: Records, make: Callable[[Recorded], CellAgain]) -> None:
        """Takes over the cells on record up to one of them.

        Raises:
            LedgerError: they cannot be read, or not run again.
        """
        recorded, self._lost = await self._recorded(last, records)
        self._forget(recorded[0].head["cell"]["number"] if recorded else self.count + 1)
        self._is_gone = bool(recorded)
        for each in recorded:
            await anyio.lowlevel.checkpoint()  # reading a short program does not let others run
            cell = make(each)
            program, scopes = await cell.read_again(self.names)
            self.count = each.head["cell"]["number"] - 1
            self.begin(scopes, is_durable=True)
            self.add(program, each.result["status"], each.execution.execution_id)
            self.earlier.append((cell, program))
        self._executions = {each.execution.execution_id for each in recorded}

    async def _recorded(self, last: str | None, records: Records) -> tuple[list[Recorded], str]:
        """Reads the cells up to one of them, and returns them with a remark if that one is not among them."""
        cells, size, remark = list[Recorded](), 0, ""
        while last is not None:
            recorded = await records.find(last)
            cell = None if recorded is None else recorded.head.get("cell")
            if recorded is None or cell is None or cell["notebook"] != [*self._name]:
                raise LedgerDamaged("the ledger does not have all of them any more")
            stored = recorded.execution
            last, number, status = cell["before"], cell["number"], stored.status
            if recorded.result.get("kept") and status in _ENDED:
                cells.append(recorded)
                size += len(stored.head) + len(stored.result or b"") + sum(row.size for row in recorded.calls)
                if any(row.reply == NOT_KEPT for row in recorded.calls):
                    raise LedgerError(f"program {number} got an output that is not kept")
                if size > _MOST_BYTES or len(cells) > _MOST_CELLS:
                    raise LedgerError("there are too many programs to run again, or their records are too large")
            elif cells:
                raise LedgerError(f"program {number} is not on record up to its end ({status})")
            elif status in ("paused", "running"):
                remark = (_WAITS if status == "paused" else _RUNS).format(number)
            else:
                remark = _gone(number, number, f"it did not end normally ({status})")
        return cells[::-1], remark

    async def start(self, start: Callable[[], Awaitable[Sandbox]]) -> Sandbox:
        """Starts the process, and runs the recorded cells in it again.

        Raises:
            LedgerError: they took another course or too long, or were recorded with other versions.
            StartFailed: the process did not start, was lost, or had ended after the cells were read.
        """
        cells, self.earlier = self.earlier, []
        if self._is_gone and not cells:
            raise StartFailed("the process with the variables of this session has just ended; run the program again")
        sandbox: Sandbox | None = None
        with anyio.move_on_after(_REBUILD_SECONDS):
            try:
                for cell, program in cells:
                    sandbox = await cell.run_again(program, sandbox)
            except SandboxLost as error:
                self._losses += 1
                if self._losses < _MOST_LOSSES:
                    text = (
                        "the process was lost while earlier programs of this session ran again; run the program again"
                    )
                    raise StartFailed(text) from error
                raise LedgerError(f"{_MOST_LOSSES} processes were lost while they ran again") from error
            self._is_gone, self._losses = False, 0
            return sandbox or await start()
        raise LedgerError(f"running their programs again took longer than {_REBUILD_SECONDS:g} s")

    def lost(self) -> str:
        """Returns the remark about lost variables for the next result, once."""
        lost, self._lost = self._lost, ""
        return lost

    def with_remarks(self, exit: Exit, before: str) -> Exit:
        """Adds remarks about variables that are lost, or that a failed cell has set."""
        texts = [
            before,
            "" if exit.status == "paused" else self._lost,
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
        self._notebook.end(self.lost_by)
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
            context = session.context
            name = context.session_id or token_hex(16)
            notebook = Notebook(("notebook", context.organization_id, context.user_id, name, language))
            self._notebooks[key], notebook.key = notebook, key
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
            return _Process(notebook, await notebook.start(start))

        assert notebook.key is not None
        async with self.use(notebook.key, open_) as process:
            try:
                yield process.sandbox
            finally:
                if not process.sandbox.is_usable:
                    process.lost_by = f"program {notebook.count} was cut off, which ends their process"
                    with anyio.CancelScope(shield=True):
                        await self.close(notebook.key)

    async def end(self, notebook: Notebook, reason: str) -> None:
        """Ends the process of a notebook before its next cell. The variables are lost."""
        assert notebook.key is not None
        if (kept := self._kept.get(notebook.key)) is not None and kept.value is not None:
            kept.value.lost_by = reason
            await self.close(notebook.key)
        notebook.lose(reason)

    async def load(self, notebook: Notebook, records: Records, make: Callable[[Recorded], CellAgain]) -> None:
        """Takes over the cells on record, if the process does not have them all: another host can have run some.

        Raises:
            LedgerFailed: the ledger cannot be read.
        """
        if await notebook.is_behind(records):
            assert notebook.key is not None
            await self.close(notebook.key)
            await notebook.load(records, make)


def loss_of(error: LedgerError) -> str:
    """Returns the reason why recorded cells cannot run again.

    Raises:
        LedgerFailed: the ledger cannot be used at all.
    """
    if isinstance(error, LedgerFailed):
        raise error
    return _OUTDATED if isinstance(error, Outdated) else str(error)


def _gone(first: int, last: int, reason: str) -> str:
    cells = f"program {first}" if first == last else f"programs {first} to {last}"
    return f"The variables of {cells} of this session are gone, because {reason}. Define them again."

"""Sinks of audit events, and readers of their logs: files of JSON lines, SQLite and PostgreSQL, and any callable.

In a table, an event is a row with a column for each field, and `arguments` as JSON.
"""

from __future__ import annotations

import errno
import inspect
import operator
import os
import re
import stat
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic_core import from_json

from corral.arguments import checked
from corral.audit.events import AuditEvent, json_of, short_text
from corral.concurrency.sqlite import write_ahead
from corral.errors import ConfigError, requires_extra
from corral.rendering.preview import json_text

if TYPE_CHECKING:
    from sqlite3 import Connection

_left_behind: list[object] = []


class AuditSink(ABC):
    """Destination of events. All methods run in one thread of the log; async ones on that thread's event loop.

    After a pause there can be another loop. `aclose` is called before a loop ends; the next `write` reopens resources.
    """

    @abstractmethod
    def write(self, events: Sequence[AuditEvent]) -> Awaitable[None] | None:
        """Returns when the events are durable. If it raises, all of them are written again later."""

    def is_outage(self, error: BaseException) -> bool:
        """True if an error of `write` is not caused by its events. Otherwise, after some failures, events are written
        one by one, and those that fail while others succeed are dropped."""
        return isinstance(error, OSError) or not isinstance(error, Exception)

    def aclose(self) -> Awaitable[None] | None:
        """Closes files and connections."""

    def after_fork(self) -> None:
        """Drops, in a forked process, the parent's files and connections."""


@checked
class CallbackSink(AuditSink):
    """Passes batches of events to a sync or async function; a batch for which it raises is retried."""

    def __init__(self, function: Callable[[Sequence[AuditEvent]], object]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"CallbackSink({self._function!r})"

    async def write(self, events: Sequence[AuditEvent]) -> None:
        answer = self._function(events)
        if inspect.isawaitable(answer):
            await answer


AuditSource: TypeAlias = str | Path | AuditSink | Callable[[Sequence[AuditEvent]], object]
"""Path of a file, URL of a database, sink, or function that takes a list of events."""


def as_sink(source: Any) -> AuditSink:
    """Returns the sink for an `AuditSource`. Raises ConfigError."""
    match source:
        case AuditSink():
            return source
        case str() if source.startswith(("postgresql://", "postgres://")):
            return PostgresSink(source)
        case str() | Path() if Path(source).suffix in (".jsonl", ".ndjson"):
            return JsonLinesSink(source)
        case str() | Path() if Path(source).suffix in (".sqlite", ".sqlite3", ".db"):
            return SqliteSink(source)
        case _ if callable(source):
            return CallbackSink(source)
        case _:
            raise ConfigError(
                f"{source!r} cannot be an audit log; pass a path that ends in .jsonl or .sqlite, "
                "a postgresql:// URL, a sink, or a function that takes a list of events"
            )


class AuditFilter(NamedTuple):
    """Filter of events: exact fields, and times from `since` to before `until` (seconds since the epoch). Unset fields
    match every value, so always set `organization_id` for readers who may see only one organization."""

    kind: str | None = None
    outcome: str | None = None
    code: str | None = None
    execution_id: str | None = None
    user_id: str | None = None
    organization_id: str | None = None
    session_id: str | None = None
    tool: str | None = None
    since: float | None = None
    until: float | None = None

    def conditions(self) -> list[tuple[str, str, Any]]:
        """Returns the field, operator and value of each condition, with texts in their stored form."""
        bounds = [("time", ">=", self.since), ("time", "<", self.until)]
        equal = [
            (field, "=", text and short_text(text)) for field, text in zip(self._fields[:-2], self[:-2], strict=True)
        ]
        return [condition for condition in [*equal, *bounds] if condition[2] is not None]

    def takes(self, event: AuditEvent) -> bool:
        """True if the event matches."""
        return all(_COMPARE[sign](getattr(event, field), value) for field, sign, value in self.conditions())


_COMPARE = {"=": operator.eq, ">=": operator.ge, "<": operator.lt}


class AuditReader(ABC):
    """Reads a log in steps; each read continues where the last one ended."""

    torn = 0
    """Number of lines that are not events, for example because a process was killed while writing."""

    @abstractmethod
    async def read(self, wanted: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        """Returns the last `limit` matching events since the previous call, in the order in which they were written."""

    async def aclose(self) -> None:
        """Closes files and connections."""


@checked
def open_audit(source: str) -> AuditReader:
    """Opens a reader of a `.jsonl` or `.sqlite` file, or of the table `corral_audit` at a `postgresql://` URL.

    Raises:
        ConfigError: `source` is of another kind, or the file does not exist.
        MissingExtra: it is a PostgreSQL URL, but `corral[postgres]` is not installed.
    """
    match as_sink(source):
        case PostgresSink(table=table):
            return _PostgresReader(source, table)
        case JsonLinesSink(path=path) | SqliteSink(path=path) as sink:
            if not path.is_file():
                raise ConfigError(
                    f"the audit log {source} does not exist; pass the path of a file that AuditLog has written"
                )
            return _JsonLinesReader(path) if isinstance(sink, JsonLinesSink) else _SqliteReader(path)
        case _:
            raise ConfigError(f"{source} cannot be read back; pass a .jsonl or .sqlite file, or a postgresql:// URL")


# --- files


def create_private(path: Path) -> None:
    """Creates a file readable only by its owner, unless it exists, and makes its name durable.

    Raises:
        PermissionError: it exists and belongs to another user, in a world-writable directory.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        directory, status = path.parent.stat(), path.lstat()
        if (
            os.name == "posix"
            and directory.st_mode & stat.S_IWOTH
            and status.st_uid not in (os.geteuid(), directory.st_uid)
        ):
            raise PermissionError(
                errno.EPERM, "the file belongs to another user, in a world-writable directory", str(path)
            ) from None
        return
    if os.name != "posix":
        return  # Windows opens no directories
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def identity(file: Path | int) -> tuple[int, int] | None:
    """Returns the device and inode of a file, which change when log rotation replaces it; None if it is missing."""
    try:
        status = os.stat(file)  # noqa: PTH116 - also of a descriptor
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@checked
class JsonLinesSink(AuditSink):
    """Appends to a file, which several processes on one machine can share. POSIX only.

    A batch is written completely or not at all: a partly written batch is removed under a lock of the file. If the
    file was renamed or deleted, the next batch goes to a new file with the old name.

    Raises:
        ConfigError: this system is Windows.
    """

    def __init__(self, path: str | Path) -> None:
        if os.name != "posix":
            raise ConfigError(f"{path}: files of JSON lines need POSIX locks; use SqliteSink, a path with .sqlite")
        self.path = Path(path)
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"JsonLinesSink({str(self.path)!r})"

    def write(self, events: Sequence[AuditEvent]) -> None:
        text = b"".join([json_of(event) + b"\n" for event in events])
        file = self._opened()
        import fcntl  # POSIX only

        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            _append(file, text)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def aclose(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def after_fork(self) -> None:
        self._file = None  # left open: closing it would release the lock for every process that inherited it

    def _opened(self) -> int:
        if self._file is None or self._identity != identity(self.path):
            self.aclose()
            create_private(self.path)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self._identity = identity(self._file)
        return self._file


def _append(file: int, text: bytes) -> None:
    before = os.fstat(file).st_size
    if before and os.pread(file, 1, before - 1) != b"\n":
        text = b"\n" + text  # a process was killed while writing
    try:
        while text:
            text = text[os.write(file, text) :]
        getattr(os, "fdatasync", os.fsync)(file)  # macOS has only the second
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, before)
        raise


class _JsonLinesReader(AuditReader):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = identity(path)
        self._offset = 0
        self._begun = 0
        """Returns 1 if the last line is incomplete, as while it is being written; else 0."""

    async def read(self, wanted: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        self.torn -= self._begun
        self._begun = 0
        matches: deque[AuditEvent] = deque(maxlen=limit)
        with self._path.open("rb") as file:
            if self._identity != (now := identity(file.fileno())):  # rotated
                self._identity, self._offset = now, 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    self._begun = 1
                    break
                self._offset += len(line)
                try:
                    event = AuditEvent.from_json(line)
                except ValueError:
                    self.torn += line != b"\n"
                else:
                    if wanted.takes(event):
                        matches.append(event)
        self.torn += self._begun
        return matches


# --- tables

_FIELDS = ", ".join(AuditEvent._fields)
_ARGUMENTS = AuditEvent._fields.index("arguments")
_INDEXED = ("time", "organization_id", "user_id", "execution_id", "tool", "outcome")
_CONSTRAINTS = {
    **dict.fromkeys(("time", "kind", "outcome", "duration_ms", "protocol"), " NOT NULL"),
    "id": " NOT NULL UNIQUE",
}


def _columns(*, integer: str, real: str, json: str) -> str:
    """Returns the column definitions for a database, without `position`. Columns not listed here are text."""
    types = {"time": real, "duration_ms": real, "sequence": integer, "calls": integer, "arguments": json}
    return ", ".join(f"{name} {types.get(name, 'text')}{_CONSTRAINTS.get(name, '')}" for name in AuditEvent._fields)


def _row_of(event: AuditEvent) -> tuple[object, ...]:
    """Returns an event's values in the order of its fields."""
    arguments = None if event.arguments is None else json_text(event.arguments)
    return (*event[:_ARGUMENTS], arguments, *event[_ARGUMENTS + 1 :])


class _TableReader(AuditReader):
    _last = 0

    async def read(self, wanted: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        rows = await self._rows([("position", ">", self._last), *wanted.conditions()], limit)
        self._last = rows[0][0] if rows else self._last
        events = [AuditEvent._make(row[1:]) for row in reversed(rows)]
        return [
            each if each.arguments is None else each._replace(arguments=from_json(str(each.arguments)))
            for each in events
        ]

    @abstractmethod
    async def _rows(self, conditions: Sequence[tuple[str, str, Any]], limit: int) -> Sequence[Sequence[Any]]:
        """Returns the last rows that meet the conditions, the latest first."""


def _query(table: str, mark: Callable[[int], str], conditions: Sequence[tuple[str, str, Any]]) -> str:
    """Returns a query for the values of the conditions and the limit. `mark` returns the placeholder for a value's
    number. SQLite's placeholders are not numbered: Python 3.12.0 to 3.12.3 mistake numbers for names, and warn."""
    where = " AND ".join(f"{field} {sign} {mark(number)}" for number, (field, sign, _) in enumerate(conditions, 1))
    return f"""
        SELECT position, {_FIELDS} FROM {table} WHERE {where}
        ORDER BY position DESC LIMIT {mark(len(conditions) + 1)}
    """  # noqa: S608 - the names of our own fields, and a table's that was checked


# --- SQLite

_BUSY_SECONDS = 3
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS audit (
    position INTEGER PRIMARY KEY, {_columns(integer="INTEGER", real="REAL", json="TEXT")}
);
{"".join(f"CREATE INDEX IF NOT EXISTS audit_{column} ON audit ({column});" for column in _INDEXED)}
"""
_INSERT = f"""
INSERT INTO audit ({_FIELDS}) VALUES ({", ".join("?" * len(AuditEvent._fields))}) ON CONFLICT (id) DO NOTHING
"""  # noqa: S608 - the names of our own fields


@checked
class SqliteSink(AuditSink):
    """Inserts into the table `audit` of a database file, in WAL mode and durably; several processes can share it.

    If it is open when a process forks, the new process cannot write to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._forked = False

    def __repr__(self) -> str:
        return f"SqliteSink({str(self.path)!r})"

    def write(self, events: Sequence[AuditEvent]) -> None:
        connection = self._connected()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_INSERT, map(_row_of, events))
            connection.execute("COMMIT")
        except BaseException:
            self.aclose()  # rolls back
            raise

    def is_outage(self, error: BaseException) -> bool:
        import sqlite3  # most hosts need none

        return isinstance(error, sqlite3.OperationalError) or super().is_outage(error)  # locked, read-only, disk full

    def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork(self) -> None:
        if self._connection is not None:
            _left_behind.append(self._connection)  # closing it would release the parent's locks
            self._connection = None
            self._forked = True

    def _connected(self) -> Connection:
        import sqlite3  # most hosts need none

        if self._forked:  # SQLite tracks its file locks per process; the new process does not hold them
            raise RuntimeError(f"{self.path} was open when this process was forked: close the AuditLog before a fork")
        if self._connection is None or self._identity != identity(self.path):
            self.aclose()
            create_private(self.path)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                write_ahead(connection, _BUSY_SECONDS)
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection, self._identity = connection, identity(self.path)
        return self._connection


class _SqliteReader(_TableReader):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: Connection | None = None

    async def _rows(self, conditions: Sequence[tuple[str, str, Any]], limit: int) -> Sequence[Sequence[Any]]:
        import sqlite3  # most hosts need none

        if self._connection is None:
            self._connection = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True)
        query = _query("audit", lambda _: "?", conditions)
        return self._connection.execute(query, [*(value for *_, value in conditions), limit]).fetchall()

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()


# --- PostgreSQL

_CONNECT_SECONDS = 5
_COMMAND_SECONDS = 10
_STATES_OF_ROWS = ("22", "23", "54", "XX")
"""SQLSTATE classes of errors that a row can cause: invalid data, a constraint, a program limit, or a bug."""


def _driver() -> Any:
    with requires_extra("an audit log in PostgreSQL", "postgres"):
        import asyncpg
    return asyncpg


async def _connect(dsn: str) -> Any:
    return await _driver().connect(dsn, timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS)


@checked
class PostgresSink(AuditSink):
    """Inserts into a table, which is created if missing; a role with only INSERT is enough if the table exists.

    Events already inserted are skipped.

    Raises:
        MissingExtra: `corral[postgres]` is not installed.
        ConfigError: `table` is not a name such as `audit` or `schema.audit`.
    """

    def __init__(self, dsn: str, *, table: str = "corral_audit") -> None:
        if not re.fullmatch(r"([a-z_][a-z0-9_]{0,50}\.)?[a-z_][a-z0-9_]{0,40}", table):
            raise ConfigError(
                f"{table!r} is not a table name; use lower-case letters, digits and _: 'audit' or 'schema.audit'"
            )
        _driver()
        self.table = table
        self._dsn = dsn
        self._connection: Any = None
        self._insert = f"""
            INSERT INTO {table} ({_FIELDS})
            VALUES ({", ".join(f"${number + 1}" for number in range(len(AuditEvent._fields)))}) ON CONFLICT DO NOTHING
        """  # noqa: S608 - the table's name was checked

    def __repr__(self) -> str:
        return f"PostgresSink(table={self.table!r})"  # without the password

    async def write(self, events: Sequence[AuditEvent]) -> None:
        try:
            if self._connection is None:
                self._connection = await _connect(self._dsn)
                await self._create_table()
            await self._connection.executemany(self._insert, [_row_of(event) for event in events])
        except BaseException:
            self._drop()
            raise

    def is_outage(self, error: BaseException) -> bool:
        state: str | None = getattr(error, "sqlstate", None)
        return super().is_outage(error) if state is None else not state.startswith(_STATES_OF_ROWS)

    async def aclose(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close(timeout=_CONNECT_SECONDS)

    def after_fork(self) -> None:
        _left_behind.append(self._connection)  # closing it would end the parent's session
        self._connection = None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _create_table(self) -> None:
        if await self._connection.fetchval("SELECT to_regclass($1) IS NOT NULL", self.table):
            return
        name = self.table.rpartition(".")[2]
        columns = _columns(integer="bigint", real="double precision", json="jsonb")
        async with self._connection.transaction():
            await self._connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", self.table)
            await self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self.table} "
                f"(position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {columns})"
            )
            for column in _INDEXED:
                await self._connection.execute(
                    f"CREATE INDEX IF NOT EXISTS {name}_{column} ON {self.table} ({column}, position)"
                )


class _PostgresReader(_TableReader):
    def __init__(self, dsn: str, table: str) -> None:
        self._dsn = dsn
        self._table = table
        self._connection: Any = None

    async def _rows(self, conditions: Sequence[tuple[str, str, Any]], limit: int) -> Sequence[Sequence[Any]]:
        if self._connection is None:
            self._connection = await _connect(self._dsn)
        query = _query(self._table, lambda number: f"${number}", conditions)
        rows = await self._connection.fetch(query, *(value for *_, value in conditions), limit)
        return [tuple(row) for row in rows]

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.close()

"""Reads events from a file of JSON lines, a SQLite database or PostgreSQL."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from corral.arguments import checked
from corral.audit.events import AuditEvent, short_text
from corral.audit.sinks.base import identity
from corral.audit.sinks.factory import as_sink
from corral.audit.sinks.json_lines import JsonLinesSink
from corral.audit.sinks.postgres import PostgresSink, columns_of, connect
from corral.audit.sinks.rows import event_of, selected
from corral.audit.sinks.sqlite import SqliteSink
from corral.errors import ConfigError

if TYPE_CHECKING:
    from sqlite3 import Connection

_COMPARE = {"=": operator.eq, ">=": operator.ge, "<": operator.lt}


class AuditFilter(NamedTuple):
    """Filter of events: exact fields, from `since` to before `until` (seconds since the epoch). None matches every
    value, so for readers who may see only one organization it must be set."""

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
        """Returns field, comparison and value of each condition, with texts in their stored form."""
        bounds = [("time", ">=", self.since), ("time", "<", self.until)]
        equal = [
            (field, "=", text and short_text(text)) for field, text in zip(self._fields[:-2], self[:-2], strict=True)
        ]
        return [condition for condition in [*equal, *bounds] if condition[2] is not None]

    def takes(self, event: AuditEvent) -> bool:
        """True if the event matches."""
        return all(_COMPARE[sign](getattr(event, field), value) for field, sign, value in self.conditions())


class AuditReader(ABC):
    """Reads one log, starting where the last read ended."""

    torn = 0
    """Number of lines without an event, from a process killed while writing or from another program."""

    @abstractmethod
    async def read(self, wanted: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        """Returns the last `limit` matching events since the previous call, in the order of writing."""

    async def aclose(self) -> None:
        """Closes files and connections."""


class _JsonLinesReader(AuditReader):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = identity(path)
        self._offset = 0
        self._begun = 0
        """1 if the last line has no end, as while it is being written; else 0."""

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


class _SqliteReader(AuditReader):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: Connection | None = None
        self._last = 0

    async def read(self, wanted: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        import sqlite3  # most hosts need none

        if self._connection is None:
            self._connection = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True)
            self._selected = selected(name for _, name, *_ in self._connection.execute("PRAGMA table_info(audit)"))
        query, values = _query("audit", self._selected, lambda _: "?", wanted, self._last, limit)
        rows = self._connection.execute(query, values).fetchall()
        self._last = rows[0][0] if rows else self._last
        return [event_of(row[1:]) for row in reversed(rows)]

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _PostgresReader(AuditReader):
    def __init__(self, dsn: str, table: str) -> None:
        self._dsn = dsn
        self._table = table
        self._connection: Any = None
        self._last = 0

    async def read(self, wanted: AuditFilter, limit: int) -> Sequence[AuditEvent]:
        if self._connection is None:
            self._connection = await connect(self._dsn)
            self._selected = selected(await columns_of(self._connection, self._table))
        query, values = _query(self._table, self._selected, lambda number: f"${number}", wanted, self._last, limit)
        rows = await self._connection.fetch(query, *values)
        self._last = rows[0][0] if rows else self._last
        return [event_of(row[1:]) for row in reversed([tuple(row) for row in rows])]

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def _query(
    table: str, selected: str, mark: Callable[[int], str], criteria: AuditFilter, after: int, limit: int
) -> tuple[str, list[Any]]:
    """Returns the query and its values. `mark` returns the placeholder of a value by its number. SQLite's have none:
    Python 3.12.0 to 3.12.3 mistake numbers for names, and warn."""
    conditions = [("position", ">", after), *criteria.conditions()]
    where = " AND ".join(f"{field} {sign} {mark(number)}" for number, (field, sign, _) in enumerate(conditions, 1))
    query = f"""
        SELECT position, {selected} FROM {table} WHERE {where}
        ORDER BY position DESC LIMIT {mark(len(conditions) + 1)}
    """  # noqa: S608 - the names of our own fields, and a table's that was checked
    return query, [*(value for _, _, value in conditions), limit]


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

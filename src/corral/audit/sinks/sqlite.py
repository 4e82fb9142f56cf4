"""Stores events in a SQLite database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corral.arguments import checked
from corral.audit.events import AuditEvent
from corral.audit.sinks.base import AuditSink, create_private, identity, leave_behind
from corral.audit.sinks.rows import INDEXED, columns, missing_columns, row_of
from corral.concurrency.sqlite import write_ahead

if TYPE_CHECKING:
    from sqlite3 import Connection

_BUSY_SECONDS = 3
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS audit (position INTEGER PRIMARY KEY, {columns(integer="INTEGER", real="REAL", json="TEXT")});
{"".join(f"CREATE INDEX IF NOT EXISTS audit_{column} ON audit ({column});" for column in INDEXED)}
"""
_INSERT = f"""
INSERT INTO audit ({", ".join(AuditEvent._fields)}) VALUES ({", ".join("?" * len(AuditEvent._fields))})
ON CONFLICT (id) DO NOTHING
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
            connection.executemany(_INSERT, map(row_of, events))
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
            leave_behind(self._connection)
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
                if _missing(connection):
                    connection.execute("BEGIN IMMEDIATE")
                    for column in _missing(connection):  # another process could have added them meanwhile
                        connection.execute(f"ALTER TABLE audit ADD COLUMN {column} TEXT")
                    connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._connection, self._identity = connection, identity(self.path)
        return self._connection


def _missing(connection: Connection) -> list[str]:
    return missing_columns(name for _, name, *_ in connection.execute("PRAGMA table_info(audit)"))

"""Ledgers in a SQLite database."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from corral.arguments import checked
from corral.audit.sinks import create_private
from corral.concurrency.forks import ProcessOwner
from corral.concurrency.sqlite import write_ahead
from corral.errors import ConfigError, LedgerFailed
from corral.ledger.base import Ledger
from corral.ledger.postgres import PostgresLedger
from corral.ledger.rows import ExecutionStatus, Query, StoredCall, StoredDecision, StoredExecution, StoredSession
from corral.logs import get_logger

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from sqlite3 import Connection

_BUSY_SECONDS = 5
_CACHE_KB = 256
"""SQLite's default of 2 MB is more than 1,000 paused executions take of the host otherwise."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS executions (
    execution_id TEXT PRIMARY KEY, organization_id TEXT, user_id TEXT NOT NULL, status TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, claim INTEGER NOT NULL, lease REAL NOT NULL,
    head BLOB NOT NULL, result BLOB);
CREATE INDEX IF NOT EXISTS executions_updated ON executions (updated);
CREATE INDEX IF NOT EXISTS executions_paused ON executions (updated) WHERE status = 'paused';
CREATE TABLE IF NOT EXISTS calls (
    execution_id TEXT NOT NULL, sequence INTEGER NOT NULL, status TEXT NOT NULL, place INTEGER, body BLOB NOT NULL,
    PRIMARY KEY (execution_id, sequence)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_waiting ON calls (execution_id) WHERE status IN ('pending', 'uncertain');
CREATE TABLE IF NOT EXISTS decisions (
    execution_id TEXT NOT NULL, sequence INTEGER NOT NULL, binding BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (execution_id, sequence, binding)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    key TEXT PRIMARY KEY, is_exposed INTEGER NOT NULL, version INTEGER NOT NULL, updated REAL NOT NULL, body BLOB);
CREATE INDEX IF NOT EXISTS sessions_updated ON sessions (updated) WHERE body IS NOT NULL;
"""
_PUT_SESSION = """
INSERT INTO sessions VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
is_exposed = excluded.is_exposed, version = excluded.version, updated = excluded.updated, body = excluded.body
WHERE sessions.version = excluded.version - 1
"""
_INSERT_EXECUTION = "INSERT INTO executions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CLAIM = """
UPDATE executions SET status = 'running', claim = claim + 1, lease = ?, updated = ?
WHERE execution_id = ? AND (status = 'paused' OR (status = 'running' AND lease < ?) OR (status <> 'running' AND ?))
"""
_LIST = """
SELECT * FROM executions WHERE (?1 = '' OR instr(?1, ',' || status || ',')) AND updated >= ?2
AND (?3 IS NULL OR user_id = ?3) AND (?4 IS NULL OR organization_id = ?4) ORDER BY updated DESC LIMIT ?5
"""
_WAITING = """
SELECT executions.status, calls.* FROM executions JOIN calls USING (execution_id)
WHERE executions.status IN ('paused', 'running') AND calls.status IN ('pending', 'uncertain')
AND (?1 IS NULL OR user_id = ?1) AND (?2 IS NULL OR organization_id = ?2)
ORDER BY updated, execution_id, sequence LIMIT ?3
"""
_OLD = """
SELECT execution_id FROM executions
WHERE (status NOT IN ('paused', 'running') AND updated < ?) OR (status = 'paused' AND updated < ?)
"""
_OLDEST_OF_LARGEST = """
WITH paused AS (
    SELECT execution_id, organization_id, user_id, updated, length(head)
    + coalesce((SELECT sum(length(body)) FROM calls WHERE calls.execution_id = executions.execution_id), 0) AS size
    FROM executions WHERE status = 'paused' OR (status = 'running' AND lease < ?))
SELECT execution_id FROM paused
JOIN (SELECT organization_id, user_id FROM paused GROUP BY 1, 2 ORDER BY sum(size) DESC LIMIT 1) AS largest
ON paused.organization_id IS largest.organization_id AND paused.user_id = largest.user_id ORDER BY updated LIMIT 1
"""
_PAGE_BYTES = 4096
"""SQLite's default."""
_LEAST_BYTES = 1_000_000
_OLD_SESSIONS = """
SELECT max(updated) FROM (SELECT updated FROM sessions WHERE body IS NOT NULL ORDER BY updated LIMIT 10)
"""
logger = get_logger("corral.ledger")


class SqliteLedger(Ledger):
    """Ledger in a database file that only its owner can read. Several processes of one machine can share it.

    `keys` are named keys of 16, 24 or 32 bytes with which all values are sealed: the first one seals, and all of them
    open. They default to those in the environment variable CORRAL_LEDGER_KEYS. `{}` stores values in plain text.

    Ended executions are deleted after `keep_days`. A paused one expires after `expires_seconds`, and can then no longer
    be resumed. With None it does not expire.

    Raises:
        ConfigError: there are no keys, or an option is invalid.
        MissingExtra: `cryptography` is not installed.
    """

    @checked
    def __init__(
        self,
        path: str | Path,
        *,
        keys: Mapping[str, bytes] | None = None,
        keep_days: float = 30.0,
        expires_seconds: float | None = None,
    ) -> None:
        super().__init__(keys=keys, keep_days=keep_days, expires_seconds=expires_seconds)
        self.path = Path(path)
        self._connection: Connection | None = None
        self._owner = ProcessOwner()
        self._is_full = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @override
    def create(self, execution: StoredExecution) -> None:
        with self._transaction(durably=False) as database:
            database.execute(_INSERT_EXECUTION, execution)

    @override
    def claim(self, execution_id: str, *, now: float, lease: float, ended: bool = False) -> StoredExecution | None:
        with self._transaction(durably=True) as database:
            before = self.get(execution_id)
            taken = database.execute(_CLAIM, (lease, now, execution_id, now, ended)).rowcount == 1
            return before._replace(claim=before.claim + 1) if taken and before is not None else None

    @override
    def renew(self, claims: Mapping[str, int], *, lease: float) -> Collection[str]:
        with self._transaction(durably=False) as database:
            statement = "UPDATE executions SET lease = ? WHERE execution_id = ? AND claim = ? AND status = 'running'"
            return {
                execution_id
                for execution_id, claim in claims.items()
                if not database.execute(statement, (lease, execution_id, claim)).rowcount
            }

    @override
    def write(self, claims: Mapping[str, int], calls: Sequence[StoredCall], *, durably: bool) -> Collection[str]:
        with self._transaction(durably=durably) as database:
            statement = "SELECT 1 FROM executions WHERE execution_id = ? AND claim = ? AND status = 'running'"
            names = {each[0] for each in claims.items() if database.execute(statement, each).fetchone() is None}
            stored = [each for each in calls if each.execution_id not in names] if names else calls
            database.executemany("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?)", stored)
            if durably and not stored:  # SQLite syncs only transactions that change something
                held = [(self.now(), execution_id) for execution_id in claims.keys() - names]
                database.executemany("UPDATE executions SET updated = ? WHERE execution_id = ?", held)
            return names

    @override
    def end(self, execution_id: str, claim: int, status: ExecutionStatus, result: bytes | None, *, now: float) -> bool:
        statement = """
            UPDATE executions SET status = ?, result = coalesce(?, result), updated = ?, lease = 0
            WHERE execution_id = ? AND claim = ? AND status = 'running'
        """
        with self._transaction(durably=True) as database:
            return database.execute(statement, (status, result, now, execution_id, claim)).rowcount == 1

    @override
    def decide(self, decision: StoredDecision, *, now: float) -> bool:
        with self._transaction(durably=True) as database:
            stored = database.execute("INSERT OR IGNORE INTO decisions VALUES (?, ?, ?, ?)", decision).rowcount == 1
            if stored:
                database.execute(
                    "UPDATE executions SET updated = ? WHERE execution_id = ?", (now, decision.execution_id)
                )
            return stored

    @override
    def get(self, execution_id: str) -> StoredExecution | None:
        row = self._connected().execute("SELECT * FROM executions WHERE execution_id = ?", (execution_id,)).fetchone()
        return None if row is None else StoredExecution(*row)

    @override
    def calls(self, execution_id: str) -> Sequence[StoredCall]:
        statement = "SELECT * FROM calls WHERE execution_id = ? ORDER BY sequence"
        return [StoredCall(*row) for row in self._connected().execute(statement, (execution_id,))]

    @override
    def waiting(self, query: Query) -> Sequence[tuple[ExecutionStatus, StoredCall]]:
        rows = self._connected().execute(_WAITING, (query.user_id, query.organization_id, query.limit))
        return [(status, StoredCall(*row)) for status, *row in rows]

    @override
    def decisions(self, execution_id: str) -> Sequence[StoredDecision]:
        statement = "SELECT * FROM decisions WHERE execution_id = ?"
        return [StoredDecision(*row) for row in self._connected().execute(statement, (execution_id,))]

    @override
    def list(self, query: Query) -> Sequence[StoredExecution]:
        joined = f",{','.join(query.statuses)}," if query.statuses else ""
        values = (joined, query.since or 0.0, query.user_id, query.organization_id, query.limit)
        return [StoredExecution(*row) for row in self._connected().execute(_LIST, values)][::-1]

    @override
    def session(self, key: str) -> StoredSession | None:
        row = self._connected().execute("SELECT * FROM sessions WHERE key = ?", (key,)).fetchone()
        return None if row is None else StoredSession(row[0], bool(row[1]), *row[2:])

    @override
    def put_session(self, session: StoredSession) -> bool:
        with self._transaction(durably=True) as database:
            return database.execute(_PUT_SESSION, session).rowcount == 1

    @override
    def prune(self, *, ended_before: float, paused_before: float | None) -> int:
        with self._transaction(durably=False) as database:
            old = database.execute(_OLD, (ended_before, paused_before or 0.0)).fetchall()
            self._delete(database, old)
            self._strip_sessions(database, ended_before)
            return len(old)

    def _strip_sessions(self, database: Connection, before: float) -> None:
        database.execute("DELETE FROM sessions WHERE is_exposed = 0 AND updated < ?", (before,))
        database.execute("UPDATE sessions SET body = NULL WHERE body IS NOT NULL AND updated < ?", (before,))

    def _delete(self, database: Connection, names: Sequence[tuple[str]]) -> None:
        for table in ("executions", "calls", "decisions"):
            database.executemany(f"DELETE FROM {table} WHERE execution_id = ?", names)  # noqa: S608 - own names

    @override
    def close(self) -> None:
        if self._connection is not None and self._owner.is_current:
            self._connection.close()
            self._connection = None

    def _transaction(self, *, durably: bool) -> AbstractContextManager[Connection]:
        """Begins a transaction. As a context manager, the connection ends it: commits, or rolls back if there is an
        error."""
        database = self._connected()
        if durably != self._is_full:  # in WAL mode, NORMAL does not wait for the disk, and FULL does
            database.execute(f"PRAGMA synchronous = {'FULL' if durably else 'NORMAL'}")
            self._is_full = durably
        database.execute("BEGIN IMMEDIATE")
        return database

    def _connected(self) -> Connection:
        import sqlite3  # most hosts do not need this module

        if self._connection is not None and self._owner.is_current:
            return self._connection
        if self._connection is not None:  # SQLite tracks its file locks per process; a fork does not hold them
            raise LedgerFailed(f"{self!r} was open when this process was forked; close the Corral before a fork")
        self._owner.take_over()
        try:
            connection = sqlite3.connect(
                self._place(), timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                write_ahead(connection, _BUSY_SECONDS)
                connection.executescript(f"PRAGMA cache_size = -{_CACHE_KB};{_SCHEMA}")
            except BaseException:
                connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise LedgerFailed(f"the ledger {self.path} cannot be opened: {reason}") from error
        self._connection, self._is_full = connection, False
        return connection

    def _place(self) -> str:
        create_private(self.path)
        return str(self.path)


class MemoryLedger(SqliteLedger):
    """Ledger in the memory of this process. Executions can pause and be resumed, but end with the process.

    It uses at most `most_bytes`. When half of that is in use, a new execution displaces ended ones, then the states of
    the oldest sessions (an exposed one stays exposed), and then, if needed, the oldest paused ones of the user who has
    the most. The log has their number. The state of a session displaces no paused ones.

    Raises:
        ConfigError: an option is invalid.
    """

    @checked
    def __init__(
        self, *, keep_days: float = 30.0, expires_seconds: float | None = None, most_bytes: int = 256_000_000
    ) -> None:
        super().__init__("memory", keys={}, keep_days=keep_days, expires_seconds=expires_seconds)
        if most_bytes < _LEAST_BYTES:
            raise ConfigError(f"MemoryLedger(): most_bytes must be at least {_LEAST_BYTES}, but is {most_bytes}")
        self._most_pages = most_bytes // _PAGE_BYTES

    @override
    def __repr__(self) -> str:
        return "MemoryLedger()"

    @override
    def create(self, execution: StoredExecution) -> None:
        self._make_room()
        displaced = 0
        while self._is_half_full and self._displace():
            displaced += 1
        if displaced:
            logger.warning("%r was full; paused executions that were displaced: %d", self, displaced)
        super().create(execution)

    @override
    def put_session(self, session: StoredSession) -> bool:
        self._make_room()
        return super().put_session(session)

    def _make_room(self) -> None:
        """Deletes ended executions and the oldest states of sessions while the ledger is half full."""
        if self._is_half_full:
            with self._transaction(durably=False) as database:
                self._delete(database, database.execute(_OLD, (math.inf, 0.0)).fetchall())
        while self._is_half_full:
            with self._transaction(durably=False) as database:
                (updated,) = database.execute(_OLD_SESSIONS).fetchone()
                if updated is None:
                    return
                self._strip_sessions(database, math.nextafter(updated, math.inf))

    @property
    def _is_half_full(self) -> bool:
        database = self._connected()
        pages, free = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        return pages - free > self._most_pages // 2

    def _displace(self) -> bool:
        """Deletes the oldest idle execution of the user with the largest ones. Returns False if all are running."""
        with self._transaction(durably=False) as database:
            oldest = database.execute(_OLDEST_OF_LARGEST, (self.now(),)).fetchone()
            if oldest is not None:
                self._delete(database, [oldest])
            return oldest is not None

    @override
    def close(self) -> None:
        """Does nothing, because the executions live as long as the object."""

    @override
    def _connected(self) -> Connection:
        is_new = self._connection is None
        database = super()._connected()
        if is_new:
            database.execute(f"PRAGMA max_page_count = {self._most_pages}")
        return database

    @override
    def _place(self) -> str:
        return ":memory:"


LedgerSource: TypeAlias = Ledger | str | Path
"""Ledger, path of a SQLite database, or URL of a PostgreSQL database."""


def as_ledger(source: LedgerSource) -> Ledger:
    """Returns the ledger for `source`.

    Raises:
        ConfigError: the URL is of another kind, or there are no keys.
        MissingExtra: an extra is not installed.
    """
    if isinstance(source, Ledger):
        return source
    scheme, is_url, _ = str(source).partition("://")
    if is_url and scheme in ("postgresql", "postgres"):
        return PostgresLedger(str(source))
    if is_url:  # without the remainder, which can contain a password
        raise ConfigError(f"a URL {scheme}://... is not a ledger; pass a path, a postgresql:// URL or a Ledger")
    return SqliteLedger(source)

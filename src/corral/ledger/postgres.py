"""Ledger in PostgreSQL, for several hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.forks import ProcessOwner
from corral.errors import ConfigError, LedgerFailed, requires_extra
from corral.ledger.base import Ledger
from corral.ledger.rows import ExecutionStatus, Query, StoredCall, StoredDecision, StoredExecution, StoredSession

_CONNECT_SECONDS = 5.0
_COMMAND_SECONDS = 10.0
_CLOCK_SECONDS = 10.0
"""Seconds for which a measured difference between the server's clock and this host's is reused."""
_STATEMENT_BYTES = 16_000_000
_VERSION = 1
_RESTART_SECONDS = 10.0
"""Seconds to wait for a server that was reachable before. Shorter than a lease."""
_RETRY_SECONDS = 0.1
_PREPARE = """
SELECT set_config('synchronous_commit', 'on', false),
    set_config('default_transaction_isolation', 'read committed', false)
"""
_EXISTS = "SELECT to_regclass('corral_ledger') IS NOT NULL"
_HAS_SESSIONS = "SELECT to_regclass('corral_sessions') IS NOT NULL"
_SESSIONS = """
CREATE TABLE IF NOT EXISTS corral_sessions (
    key text PRIMARY KEY, is_exposed boolean NOT NULL, version bigint NOT NULL, updated double precision NOT NULL,
    body bytea);
CREATE INDEX IF NOT EXISTS corral_sessions_updated ON corral_sessions (updated) WHERE body IS NOT NULL;
"""
_LOCK = "SELECT pg_advisory_xact_lock(8147301652)"  # the number is arbitrary
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS corral_ledger (version integer NOT NULL);
INSERT INTO corral_ledger SELECT {_VERSION} WHERE NOT EXISTS (SELECT FROM corral_ledger);
CREATE TABLE IF NOT EXISTS corral_executions (
    execution_id text PRIMARY KEY, organization_id text, user_id text NOT NULL, status text NOT NULL,
    created double precision NOT NULL, updated double precision NOT NULL, claim bigint NOT NULL,
    lease double precision NOT NULL, head bytea NOT NULL, result bytea);
CREATE INDEX IF NOT EXISTS corral_executions_updated ON corral_executions (updated);
CREATE INDEX IF NOT EXISTS corral_executions_open ON corral_executions (updated, execution_id)
    WHERE status IN ('paused', 'running');
CREATE TABLE IF NOT EXISTS corral_calls (
    execution_id text NOT NULL, sequence bigint NOT NULL, status text NOT NULL, place bigint, body bytea NOT NULL,
    PRIMARY KEY (execution_id, sequence));
CREATE INDEX IF NOT EXISTS corral_calls_waiting ON corral_calls (execution_id, sequence)
    WHERE status IN ('pending', 'uncertain');
CREATE TABLE IF NOT EXISTS corral_decisions (
    execution_id text NOT NULL, sequence bigint NOT NULL, binding bytea NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (execution_id, sequence, binding));
{_SESSIONS}
"""  # noqa: S608 - our own number
# Each change is one statement, and so one round trip. All except _CLAIM can be repeated if their outcome is unknown,
# because they then find their own rows.
_CREATE = """
WITH made AS (
    INSERT INTO corral_executions VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING RETURNING 1)
SELECT EXISTS (SELECT FROM made) OR EXISTS (
    SELECT FROM corral_executions WHERE execution_id = $1 AND user_id = $3 AND created = $5 AND head = $9)
"""
_CLAIM = """
WITH free AS (
    SELECT * FROM corral_executions
    WHERE execution_id = $1 AND (status = 'paused' OR (status = 'running' AND lease < $2)
    OR (status <> 'running' AND $4)) FOR UPDATE),
taken AS (
    UPDATE corral_executions AS each SET status = 'running', claim = each.claim + 1, lease = $3, updated = $2
    FROM free WHERE each.execution_id = free.execution_id)
SELECT * FROM free
"""
_RENEW = """
UPDATE corral_executions AS each SET lease = $3 FROM unnest($1::text[], $2::bigint[]) AS mine (execution_id, claim)
WHERE each.execution_id = mine.execution_id AND each.claim = mine.claim AND each.status = 'running'
RETURNING each.execution_id
"""
# The lock keeps another host from claiming an execution until its rows are committed.
_WRITE = """
WITH held AS (
    SELECT each.execution_id
    FROM corral_executions AS each JOIN unnest($1::text[], $2::bigint[]) AS mine (execution_id, claim)
        ON each.execution_id = mine.execution_id AND each.claim = mine.claim
    WHERE each.status = 'running' FOR SHARE OF each),
written AS (
    INSERT INTO corral_calls
    SELECT row.* FROM unnest($3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bytea[])
        AS row (execution_id, sequence, status, place, body) JOIN held USING (execution_id)
    ON CONFLICT (execution_id, sequence) DO UPDATE
        SET status = EXCLUDED.status, place = EXCLUDED.place, body = EXCLUDED.body)
SELECT execution_id FROM held
"""
_END = """
WITH ended AS (
    UPDATE corral_executions SET status = $3, result = coalesce($4, result), updated = $5, lease = 0
    WHERE execution_id = $1 AND claim = $2 AND status = 'running' RETURNING 1)
SELECT EXISTS (SELECT FROM ended) OR EXISTS (
    SELECT FROM corral_executions
    WHERE execution_id = $1 AND claim = $2 AND status = $3 AND updated = $5 AND lease = 0)
"""
_DECIDE = """
WITH stored AS (
    INSERT INTO corral_decisions VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING 1),
touched AS (
    UPDATE corral_executions SET updated = $5 WHERE execution_id = $1 AND EXISTS (SELECT FROM stored))
SELECT EXISTS (SELECT FROM stored) OR EXISTS (
    SELECT FROM corral_decisions WHERE execution_id = $1 AND sequence = $2 AND binding = $3 AND body = $4)
"""
_PUT_SESSION = """
WITH stored AS (
    INSERT INTO corral_sessions AS old VALUES ($1, $2, $3, $4, $5) ON CONFLICT (key) DO UPDATE SET
        is_exposed = excluded.is_exposed, version = excluded.version, updated = excluded.updated, body = excluded.body
    WHERE old.version = excluded.version - 1 RETURNING 1)
SELECT EXISTS (SELECT FROM stored) OR EXISTS (
    SELECT FROM corral_sessions WHERE key = $1 AND version = $3 AND updated = $4 AND body = $5)
"""
_WAITING = """
SELECT executions.status, calls.* FROM corral_executions AS executions JOIN corral_calls AS calls USING (execution_id)
WHERE executions.status IN ('paused', 'running') AND calls.status IN ('pending', 'uncertain')
AND ($1::text IS NULL OR user_id = $1) AND ($2::text IS NULL OR organization_id = $2)
ORDER BY executions.updated, executions.execution_id, calls.sequence LIMIT $3
"""
_LIST = """
SELECT * FROM corral_executions WHERE (cardinality($1::text[]) = 0 OR status = ANY ($1)) AND updated >= $2
AND ($3::text IS NULL OR user_id = $3) AND ($4::text IS NULL OR organization_id = $4)
ORDER BY updated DESC LIMIT $5
"""
_LIST_OPEN = _LIST.replace("WHERE ", "WHERE status IN ('paused', 'running') AND ", 1)  # for the index of these
_PRUNE = """
WITH old AS (
    DELETE FROM corral_executions
    WHERE (status NOT IN ('paused', 'running') AND updated < $1) OR (status = 'paused' AND updated < $2)
    RETURNING execution_id),
calls AS (DELETE FROM corral_calls WHERE execution_id IN (SELECT execution_id FROM old)),
decisions AS (DELETE FROM corral_decisions WHERE execution_id IN (SELECT execution_id FROM old)),
clean AS (DELETE FROM corral_sessions WHERE NOT is_exposed AND updated < $1),
exposed AS (UPDATE corral_sessions SET body = NULL WHERE is_exposed AND body IS NOT NULL AND updated < $1)
SELECT count(*) FROM old
"""
_left_behind: list[object] = []


def _driver() -> Any:
    with requires_extra("a ledger in PostgreSQL", "postgres"):
        import asyncpg
    return asyncpg


class PostgresLedger(Ledger):
    """Ledger in tables of a PostgreSQL database, which it creates. Several hosts can share it.

    Leases use the server's clock. A lost connection is opened again. The URL is asyncpg's,
    `postgresql://user:password@host/database`; use a separate schema with `?search_path=NAME` or by the role.

    `keys` are named keys of 16, 24 or 32 bytes with which all values are sealed: the first one seals, and all of them
    open. They default to those in the environment variable CORRAL_LEDGER_KEYS. `{}` stores values in plain text.

    Ended executions are deleted after `keep_days`. A paused one expires after `expires_seconds`, and can then no longer
    be resumed. With None it does not expire.

    Raises:
        ConfigError: there are no keys, or an option is invalid.
        MissingExtra: `asyncpg` or `cryptography` is not installed.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        keys: Mapping[str, bytes] | None = None,
        keep_days: float = 30.0,
        expires_seconds: float | None = None,
    ) -> None:
        super().__init__(keys=keys, keep_days=keep_days, expires_seconds=expires_seconds)
        driver = _driver()
        self._url = url
        self._connect = driver.connect
        self._errors = driver.PostgresError, driver.InterfaceError, driver.InternalClientError, OSError
        self._lost = (
            driver.PostgresConnectionError,
            driver.AdminShutdownError,
            driver.CrashShutdownError,
            driver.CannotConnectNowError,
            driver.InterfaceError,
            driver.InternalClientError,
            OSError,
        )
        """Errors of a lost connection, or of a server that is starting."""
        self._owner = ProcessOwner()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Event loop of the thread that uses this ledger."""
        self._connection: Any = None
        self._was_open = False
        self._ahead = 0.0
        """Difference between the server's clock and this host's monotonic one."""
        self._compare_at = 0.0

    def __repr__(self) -> str:
        return "PostgresLedger()"  # without the password

    @override
    def now(self) -> float:
        if time.monotonic() >= self._compare_at:
            [(now,)] = self._rows("SELECT extract(epoch FROM clock_timestamp())::double precision")
            self._ahead = now - time.monotonic()
            self._compare_at = time.monotonic() + _CLOCK_SECONDS
        return time.monotonic() + self._ahead

    @override
    def create(self, execution: StoredExecution) -> None:
        if not self._is_done(_CREATE, *execution):
            raise LedgerFailed(f"the ledger already has an execution {execution.execution_id!r}")

    @override
    def claim(self, execution_id: str, *, now: float, lease: float, ended: bool = False) -> StoredExecution | None:
        rows = self._rows(_CLAIM, execution_id, now, lease, ended, repeats=False)
        return StoredExecution(*rows[0])._replace(claim=rows[0]["claim"] + 1) if rows else None

    @override
    def renew(self, claims: Mapping[str, int], *, lease: float) -> Collection[str]:
        rows = self._rows(_RENEW, [*claims], [*claims.values()], lease)
        return claims.keys() - {name for (name,) in rows}

    @override
    def write(self, claims: Mapping[str, int], calls: Sequence[StoredCall], *, durably: bool) -> Collection[str]:
        # Always durably: a server that loses confirmed rows would continue with a gap in the record.
        refused: Collection[str] = frozenset()
        for part in _parts(calls):
            columns = zip(*part, strict=True) if part else [()] * len(StoredCall._fields)
            rows = self._rows(_WRITE, [*claims], [*claims.values()], *map(list, columns))
            refused = claims.keys() - {name for (name,) in rows}
        return refused

    @override
    def end(self, execution_id: str, claim: int, status: ExecutionStatus, result: bytes | None, *, now: float) -> bool:
        return self._is_done(_END, execution_id, claim, status, result, now)

    @override
    def decide(self, decision: StoredDecision, *, now: float) -> bool:
        return self._is_done(_DECIDE, *decision, now)

    @override
    def get(self, execution_id: str) -> StoredExecution | None:
        rows = self._rows("SELECT * FROM corral_executions WHERE execution_id = $1", execution_id)
        return StoredExecution(*rows[0]) if rows else None

    @override
    def calls(self, execution_id: str) -> Sequence[StoredCall]:
        rows = self._rows("SELECT * FROM corral_calls WHERE execution_id = $1 ORDER BY sequence", execution_id)
        return [StoredCall(*row) for row in rows]

    @override
    def waiting(self, query: Query) -> Sequence[tuple[ExecutionStatus, StoredCall]]:
        rows = self._rows(_WAITING, query.user_id, query.organization_id, query.limit)
        return [(status, StoredCall(*row)) for status, *row in rows]

    @override
    def decisions(self, execution_id: str) -> Sequence[StoredDecision]:
        rows = self._rows("SELECT * FROM corral_decisions WHERE execution_id = $1", execution_id)
        return [StoredDecision(*row) for row in rows]

    @override
    def list(self, query: Query) -> Sequence[StoredExecution]:
        user_id, organization_id, statuses, since, limit = query
        is_open = bool(statuses) and {*statuses} <= {"paused", "running"}
        rows = self._rows(_LIST_OPEN if is_open else _LIST, [*statuses], since or 0.0, user_id, organization_id, limit)
        return [StoredExecution(*row) for row in reversed(rows)]

    @override
    def session(self, key: str) -> StoredSession | None:
        rows = self._rows("SELECT * FROM corral_sessions WHERE key = $1", key)
        return StoredSession(*rows[0]) if rows else None

    @override
    def put_session(self, session: StoredSession) -> bool:
        return self._is_done(_PUT_SESSION, *session)

    @override
    def prune(self, *, ended_before: float, paused_before: float | None) -> int:
        [(count,)] = self._rows(_PRUNE, ended_before, paused_before or 0.0)
        return count

    @override
    def close(self) -> None:
        if self._loop is not None and self._owner.is_current:
            self._loop.run_until_complete(self._close())
            self._loop.close()
            self._loop = None

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._errors):
                await connection.close(timeout=_CONNECT_SECONDS)
        await asyncio.sleep(0)  # lets a dropped connection close

    def _is_done(self, query: str, *values: object) -> bool:
        [(done,)] = self._rows(query, *values)
        return done

    def _rows(self, query: str, *values: object, repeats: bool = True) -> Sequence[Any]:
        if self._owner.take_over():  # closing the connection would end the parent's session
            _left_behind.append((self._loop, self._connection))
            self._loop = self._connection = None
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(self._fetch(query, values, repeats=repeats))

    async def _fetch(self, query: str, values: Sequence[object], *, repeats: bool) -> Sequence[Any]:
        """Executes a statement, again each time that the connection was lost meanwhile if it `repeats`."""
        until = time.monotonic() + _RESTART_SECONDS
        while True:
            connection = self._connection or await self._opened(until)
            try:
                return await connection.fetch(query, *values)
            except self._errors as error:
                self._drop()
                is_lost = isinstance(error, self._lost) and not isinstance(error, TimeoutError)
                if not (repeats and is_lost and time.monotonic() < until):
                    reason = _reason(error, _COMMAND_SECONDS)
                    raise LedgerFailed(f"the ledger in PostgreSQL failed: {reason}") from error
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _opened(self, until: float) -> Any:
        """Makes the connection. Once there was one, waits for a server that restarts."""
        while self._connection is None:
            try:
                self._connection = await self._open()
                self._was_open = True
            except ValueError:  # its text can contain the whole URL
                raise ConfigError("the URL of the ledger in PostgreSQL is not valid") from None
            except self._errors as error:
                if not (self._was_open and isinstance(error, self._lost) and time.monotonic() < until):
                    reason = _reason(error, _CONNECT_SECONDS)
                    raise LedgerFailed(f"the ledger in PostgreSQL cannot be opened: {reason}") from error
                await asyncio.sleep(_RETRY_SECONDS)
        return self._connection

    async def _open(self) -> Any:
        connection = await self._connect(self._url, timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS)
        try:
            await connection.execute(_PREPARE)
            if not await connection.fetchval(_EXISTS):
                async with connection.transaction():
                    await connection.execute(_LOCK)
                    await connection.execute(_SCHEMA)
            if not await connection.fetchval(_HAS_SESSIONS):  # made by an earlier version of corral
                async with connection.transaction():
                    await connection.execute(_LOCK)
                    await connection.execute(_SESSIONS)
            version = await connection.fetchval("SELECT max(version) FROM corral_ledger")
            if version != _VERSION:
                raise LedgerFailed(
                    f"the ledger in PostgreSQL has tables of version {version}, and this corral has {_VERSION}; "
                    "run the version of corral that made them, or a later one"
                )
        except BaseException:
            connection.terminate()
            raise
        return connection


def _parts(calls: Sequence[StoredCall]) -> Iterator[Sequence[StoredCall]]:
    """Yields the last row of each call, in the order of these rows, in at least one chunk of limited size."""
    rows: dict[tuple[str, int], StoredCall] = {}
    for each in calls:
        key = each.execution_id, each.sequence
        rows.pop(key, None)
        rows[key] = each
    part, size = list[StoredCall](), 0
    for row in rows.values():
        if part and size + len(row.body) > _STATEMENT_BYTES:
            yield part
            part, size = list[StoredCall](), 0
        part.append(row)
        size += len(row.body)
    yield part


def _reason(error: Exception, seconds: float) -> str:
    return " ".join(str(error).split()) or f"no answer in {seconds:g} s"

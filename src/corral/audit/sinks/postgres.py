"""Stores events in a PostgreSQL table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from corral.arguments import checked
from corral.audit.events import AuditEvent
from corral.audit.sinks.base import AuditSink, leave_behind
from corral.audit.sinks.rows import INDEXED, columns, missing_columns, row_of
from corral.errors import ConfigError, MissingExtra

_CONNECT_SECONDS = 5
_COMMAND_SECONDS = 10
_STATES_OF_ROWS = ("22", "23", "54", "XX")
"""SQLSTATE classes of errors that a row can cause: by its data, a constraint, a program limit, or a bug."""
_COLUMNS = columns(integer="bigint", real="double precision", json="jsonb")


async def connect(dsn: str) -> Any:
    """Opens an asyncpg connection. Raises MissingExtra, and asyncpg's errors."""
    return await driver().connect(dsn, timeout=_CONNECT_SECONDS, command_timeout=_COMMAND_SECONDS)


async def columns_of(connection: Any, table: str) -> list[str]:
    """Returns the names of a table's columns."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
    return [row[0] for row in await connection.fetch(query, table)]


def driver() -> Any:
    """Imports asyncpg. Raises MissingExtra."""
    try:
        import asyncpg
    except ImportError:
        raise MissingExtra("an audit log in PostgreSQL needs asyncpg: pip install 'corral[postgres]'") from None
    return asyncpg


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
        driver()
        self.table = table
        self._dsn = dsn
        self._connection: Any = None
        fields = AuditEvent._fields
        self._insert = f"""
            INSERT INTO {table} ({", ".join(fields)})
            VALUES ({", ".join(f"${number + 1}" for number in range(len(fields)))}) ON CONFLICT DO NOTHING
        """  # noqa: S608 - the table's name was checked

    def __repr__(self) -> str:
        return f"PostgresSink(table={self.table!r})"  # without the password

    async def write(self, events: Sequence[AuditEvent]) -> None:
        try:
            if self._connection is None:
                self._connection = await connect(self._dsn)
                await self._create_table()
            await self._connection.executemany(self._insert, [row_of(event) for event in events])
        except BaseException:
            self._drop()
            raise

    def is_outage(self, error: BaseException) -> bool:
        if isinstance(error, ConfigError):
            return True
        state: str | None = getattr(error, "sqlstate", None)
        return super().is_outage(error) if state is None else not state.startswith(_STATES_OF_ROWS)

    async def aclose(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close(timeout=_CONNECT_SECONDS)

    def after_fork(self) -> None:
        leave_behind(self._connection)
        self._connection = None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _add_columns(self) -> None:
        """Adds the columns missing in a table of an earlier version.

        Raises:
            ConfigError: the role lacks the permission.
        """
        if missing := missing_columns(await columns_of(self._connection, self.table)):
            added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column} text" for column in missing)
            statement = f"ALTER TABLE {self.table} {added}"
            try:
                await self._connection.execute(statement)
            except driver().InsufficientPrivilegeError as error:
                raise ConfigError(
                    f"the table {self.table} is from an earlier version, and this role may not add its columns "
                    f"{', '.join(missing)}; let its owner run: {statement}"
                ) from error

    async def _create_table(self) -> None:
        if await self._connection.fetchval("SELECT to_regclass($1) IS NOT NULL", self.table):
            await self._add_columns()
            return
        name = self.table.rpartition(".")[2]
        async with self._connection.transaction():
            await self._connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", self.table)
            await self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self.table} ("
                f"position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {_COLUMNS})"
            )
            for column in INDEXED:
                await self._connection.execute(
                    f"CREATE INDEX IF NOT EXISTS {name}_{column} ON {self.table} ({column}, position)"
                )

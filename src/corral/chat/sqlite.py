"""Conversations and executions in a SQLite database."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.chat.sql import SCHEMA, SqlChats, Statement
from corral.concurrency.sqlite import write_ahead
from corral.errors import ConfigError

T = TypeVar("T")

_BUSY_SECONDS = 5


@checked
class SqliteChats(SqlChats):
    """Stores the last `conversations` and `executions` of each user in a file that only its owner can read.

    Executions are deleted after `keep_days`. Queries run in a thread.
    """

    def __init__(
        self, path: str | Path, *, conversations: int = 200, executions: int = 1_000, keep_days: float = 90.0
    ) -> None:
        super().__init__(conversations, executions, keep_days)
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @override
    async def open(self) -> None:
        try:
            await self._run(lambda _: None)
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"conversations cannot be kept in {self.path}: {reason}") from error

    @override
    async def aclose(self) -> None:
        def close() -> None:
            with self._lock:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None

        await anyio.to_thread.run_sync(close)

    @override
    async def _rows(self, statement: Statement) -> list[Any]:
        query, values = statement
        return await self._run(lambda database: database.execute(query, _named(values)).fetchall())

    @override
    async def _write(self, *statements: Statement) -> None:
        def write(database: sqlite3.Connection) -> None:
            with database:
                for query, values in statements:
                    database.execute(query, _named(values))

        await self._run(write)

    async def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with self._lock:
                return query(self._connected())

        return await anyio.to_thread.run_sync(run)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
            try:
                write_ahead(connection, _BUSY_SECONDS)
                for statement in SCHEMA:
                    connection.execute(statement)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _named(values: Sequence[Any]) -> dict[str, Any]:
    """Returns values by SQLite's names for `$1` and `$2`."""
    return {str(number): value for number, value in enumerate(values, 1)}

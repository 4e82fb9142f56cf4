"""Conversations and executions in a PostgreSQL database."""

from __future__ import annotations

from typing import Any

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.chat.sql import SCHEMA, SqlChats, Statement
from corral.errors import ConfigError, MissingExtra

_CONNECT_SECONDS = 5
_COMMAND_SECONDS = 30
_MOST_CONNECTIONS = 4
_LOCK = "SELECT pg_advisory_xact_lock(7234518096)"
"""Serializes writes, since two that prune the same rows could deadlock. The number is arbitrary."""


@checked
class PostgresChats(SqlChats):
    """Stores the last `conversations` and `executions` of each user in tables of those names, which it creates.

    Several servers can share a database. Executions are deleted after `keep_days`. Needs asyncio. The URL is asyncpg's,
    `postgresql://user:password@host/database`; use a separate schema with `?search_path=NAME` or by the role.

    Raises:
        MissingExtra: `corral[postgres]` is not installed.
    """

    def __init__(self, url: str, *, conversations: int = 200, executions: int = 1_000, keep_days: float = 90.0) -> None:
        super().__init__(conversations, executions, keep_days)
        _driver()
        self._url = url
        self._pool: Any = None
        self._opening = anyio.Lock()

    def __repr__(self) -> str:
        return "PostgresChats()"  # without the password

    @override
    async def open(self) -> None:
        try:
            await self._opened()
        except ValueError as error:  # its text can contain the whole URL
            raise ConfigError("conversations cannot be kept in PostgreSQL: the URL is not valid") from error
        except (OSError, _driver().PostgresError, _driver().InterfaceError) as error:
            reason = " ".join(str(error).split()) or f"no answer in {_CONNECT_SECONDS} s"
            raise ConfigError(f"conversations cannot be kept in PostgreSQL: {reason}") from error

    @override
    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @override
    async def _rows(self, statement: Statement) -> list[Any]:
        query, values = statement
        return await (await self._opened()).fetch(query, *values)

    @override
    async def _write(self, *statements: Statement) -> None:
        async with (await self._opened()).acquire() as connection, connection.transaction():
            await connection.execute(_LOCK)
            for query, values in statements:
                await connection.execute(query, *values)

    async def _opened(self) -> Any:
        async with self._opening:
            if self._pool is None:
                pool = await _driver().create_pool(
                    self._url,
                    min_size=0,
                    max_size=_MOST_CONNECTIONS,
                    timeout=_CONNECT_SECONDS,
                    command_timeout=_COMMAND_SECONDS,
                )
                try:
                    async with pool.acquire() as connection, connection.transaction():
                        await connection.execute(_LOCK)
                        for statement in SCHEMA:
                            await connection.execute(statement)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool = pool
            return self._pool


def _driver() -> Any:
    try:
        import asyncpg
    except ImportError:
        raise MissingExtra("PostgresChats needs asyncpg: pip install 'corral[postgres]'") from None
    return asyncpg

"""Storage of conversations and executions: in memory, in SQLite, and in PostgreSQL."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.chat.runs import Owner
from corral.chat.turn import Message
from corral.concurrency.fairness import run_in_turn
from corral.concurrency.sqlite import write_ahead
from corral.errors import ConfigError, requires_extra


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Messages between one user and the agent."""

    id: str
    title: str = ""
    updated: float = field(default_factory=time.time)
    """Seconds since the Unix epoch."""
    messages: list[Message] = field(default_factory=list[Message])


class ChatStore(ABC):
    """Storage of conversations and executions. Everything belongs to an owner, and is invisible to others."""

    async def open(self) -> None:
        """Connects now instead of at the first use, so that the operator sees errors.

        Raises:
            ConfigError: the storage is not available.
        """

    @abstractmethod
    async def conversations(self, owner: Owner) -> list[Conversation]:
        """Lists conversations without their messages, newest first."""

    @abstractmethod
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        """Returns a conversation with its messages, which the caller can change."""

    @abstractmethod
    async def save(self, owner: Owner, conversation: Conversation) -> None:
        """Stores or replaces a conversation. The owner's oldest conversations may be deleted."""

    @abstractmethod
    async def delete(self, owner: Owner, conversation_id: str) -> None:
        """Deletes a conversation, if it exists."""

    @abstractmethod
    async def save_execution(self, owner: Owner, data: dict[str, Any]) -> None:
        """Stores the record of an execution; `data["id"]` is its id. The oldest executions may be deleted."""

    @abstractmethod
    async def execution(self, owner: Owner, execution_id: str) -> dict[str, Any] | None:
        """Returns the record of an execution."""

    async def aclose(self) -> None:
        """Frees the store's resources."""


class MemoryChats(ChatStore):
    """Keeps everything in memory: the last `conversations` of each user, and `executions` of all users.

    Beyond `executions`, the oldest execution of the user with the most is deleted.
    """

    def __init__(self, *, conversations: int = 200, executions: int = 500) -> None:
        self._most_conversations = conversations
        self._most_executions = executions
        self._conversations: dict[Owner, OrderedDict[str, Conversation]] = {}
        self._executions: dict[Owner, OrderedDict[str, dict[str, Any]]] = {}

    async def conversations(self, owner: Owner) -> list[Conversation]:
        own = self._own(owner)
        return [Conversation(id=each.id, title=each.title, updated=each.updated) for each in reversed(own.values())]

    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        conversation = self._own(owner).get(conversation_id)
        return None if conversation is None else replace(conversation, messages=[*conversation.messages])

    async def save(self, owner: Owner, conversation: Conversation) -> None:
        own = self._own(owner)
        own[conversation.id] = replace(conversation, messages=[*conversation.messages])
        own.move_to_end(conversation.id)
        while len(own) > self._most_conversations:
            own.popitem(last=False)

    async def delete(self, owner: Owner, conversation_id: str) -> None:
        self._own(owner).pop(conversation_id, None)

    async def save_execution(self, owner: Owner, data: dict[str, Any]) -> None:
        self._executions.setdefault(owner, OrderedDict())[data["id"]] = data
        if sum(map(len, self._executions.values())) > self._most_executions:
            whose = max(self._executions, key=lambda each: len(self._executions[each]))
            self._executions[whose].popitem(last=False)
            if not self._executions[whose]:
                del self._executions[whose]

    async def execution(self, owner: Owner, execution_id: str) -> dict[str, Any] | None:
        own = self._executions.get(owner)
        return None if own is None else own.get(execution_id)

    def _own(self, owner: Owner) -> OrderedDict[str, Conversation]:
        return self._conversations.setdefault(owner, OrderedDict())


# --- in SQL

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS conversations (
        owner TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL, updated DOUBLE PRECISION NOT NULL,
        messages TEXT NOT NULL, PRIMARY KEY (owner, id)
    )
    """,
    "CREATE INDEX IF NOT EXISTS conversations_updated ON conversations (owner, updated)",
    """
    CREATE TABLE IF NOT EXISTS executions (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, stored DOUBLE PRECISION NOT NULL, data TEXT NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS executions_stored ON executions (owner, stored)",
    "CREATE INDEX IF NOT EXISTS executions_age ON executions (stored)",
)
_SAVE = """
INSERT INTO conversations (owner, id, title, updated, messages) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, id) DO UPDATE SET title = excluded.title, updated = excluded.updated, messages = excluded.messages
"""
_PRUNE_CONVERSATIONS = """
DELETE FROM conversations WHERE owner = $1 AND id NOT IN
(SELECT id FROM conversations WHERE owner = $1 ORDER BY updated DESC LIMIT $2)
"""
_SAVE_EXECUTION = """
INSERT INTO executions (id, owner, stored, data) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET stored = excluded.stored, data = excluded.data WHERE executions.owner = excluded.owner
"""
_PRUNE_EXECUTIONS = """
DELETE FROM executions WHERE owner = $1 AND id NOT IN
(SELECT id FROM executions WHERE owner = $1 ORDER BY stored DESC LIMIT $2)
"""
_PRUNE_AGED = "DELETE FROM executions WHERE stored < $1"
_SECONDS_PER_DAY = 86_400


class _SqlChats(ChatStore):
    """Stores the last `conversations` and `executions` of each user. Executions are deleted after `keep_days`."""

    def __init__(self, conversations: int, executions: int, keep_days: float) -> None:
        self._most_conversations = conversations
        self._most_executions = executions
        self._keep_seconds = keep_days * _SECONDS_PER_DAY

    @abstractmethod
    async def _rows(self, query: str, *values: Any) -> list[Any]:
        """Returns the rows of a query, in which `$1`, `$2` and so on stand for its values."""

    @abstractmethod
    async def _write(self, *statements: tuple[str, *tuple[Any, ...]]) -> None:
        """Executes all statements, each with its values, in one transaction."""

    @override
    async def conversations(self, owner: Owner) -> list[Conversation]:
        query = "SELECT id, title, updated FROM conversations WHERE owner = $1 ORDER BY updated DESC"
        rows = await self._rows(query, str(owner))
        return [Conversation(id=row[0], title=row[1], updated=row[2]) for row in rows]

    @override
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        query = "SELECT id, title, updated, messages FROM conversations WHERE owner = $1 AND id = $2"
        for row in await self._rows(query, str(owner), conversation_id):
            messages: list[Message] = await run_in_turn(json.loads, row[3], owner=owner)
            return Conversation(id=row[0], title=row[1], updated=row[2], messages=messages)
        return None

    @override
    async def save(self, owner: Owner, conversation: Conversation) -> None:
        whose, messages = str(owner), await run_in_turn(_json, conversation.messages, owner=owner)
        await self._write(
            (_SAVE, whose, conversation.id, conversation.title, float(conversation.updated), messages),
            (_PRUNE_CONVERSATIONS, whose, self._most_conversations),
        )

    @override
    async def delete(self, owner: Owner, conversation_id: str) -> None:
        query = "DELETE FROM conversations WHERE owner = $1 AND id = $2"
        await self._write((query, str(owner), conversation_id))

    @override
    async def save_execution(self, owner: Owner, data: dict[str, Any]) -> None:
        now, whose = time.time(), str(owner)
        await self._write(
            (_SAVE_EXECUTION, data["id"], whose, now, json.dumps(data)),
            (_PRUNE_EXECUTIONS, whose, self._most_executions),
            (_PRUNE_AGED, now - self._keep_seconds),
        )

    @override
    async def execution(self, owner: Owner, execution_id: str) -> dict[str, Any] | None:
        query = "SELECT data FROM executions WHERE owner = $1 AND id = $2"
        for row in await self._rows(query, str(owner), execution_id):
            return json.loads(row[0])
        return None


def _json(messages: Iterable[Message]) -> str:
    """Encodes messages one by one, and lets the event loop run after each."""
    return f"[{', '.join(map(json.dumps, messages))}]"


def _stored(values: Iterable[Any]) -> Iterator[Any]:
    """Replaces lone surrogates and NUL, which databases do not accept. JSON escapes both."""
    for value in values:
        yield value.encode("utf-8", "replace").decode().replace("\0", "?") if isinstance(value, str) else value


T = TypeVar("T")

_BUSY_SECONDS = 5


@checked
class SqliteChats(_SqlChats):
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
    async def _rows(self, query: str, *values: Any) -> list[Any]:
        return await self._run(lambda database: database.execute(query, _named(values)).fetchall())

    @override
    async def _write(self, *statements: tuple[str, *tuple[Any, ...]]) -> None:
        def write(database: sqlite3.Connection) -> None:
            with database:
                for query, *values in statements:
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
                for statement in _SCHEMA:
                    connection.execute(statement)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _named(values: Iterable[Any]) -> dict[str, Any]:
    """Returns values by SQLite's names for `$1` and `$2`."""
    return {str(number): value for number, value in enumerate(_stored(values), 1)}


_CONNECT_SECONDS = 5
_COMMAND_SECONDS = 30
_MOST_CONNECTIONS = 4
_LOCK = "SELECT pg_advisory_xact_lock(7234518096)"
"""Lock that serializes writes, because two that prune the same rows could deadlock. The number is arbitrary."""


@checked
class PostgresChats(_SqlChats):
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
    async def _rows(self, query: str, *values: Any) -> list[Any]:
        return await (await self._opened()).fetch(query, *_stored(values))

    @override
    async def _write(self, *statements: tuple[str, *tuple[Any, ...]]) -> None:
        async with (await self._opened()).acquire() as connection, connection.transaction():
            await connection.execute(_LOCK)
            for query, *values in statements:
                await connection.execute(query, *_stored(values))

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
                        for statement in _SCHEMA:
                            await connection.execute(statement)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool = pool
            return self._pool


def _driver() -> Any:
    with requires_extra("PostgresChats", "postgres"):
        import asyncpg
    return asyncpg

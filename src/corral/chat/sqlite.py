"""Conversations and executions in a SQLite database."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from typing_extensions import override

from corral.arguments import checked
from corral.chat.records import Owner
from corral.chat.store import ChatStore, Conversation

__all__ = ["SqliteChats"]

T = TypeVar("T")

_BUSY_SECONDS = 5
_SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    owner TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL, updated REAL NOT NULL, messages TEXT NOT NULL,
    PRIMARY KEY (owner, id)
);
CREATE INDEX IF NOT EXISTS conversations_updated ON conversations (owner, updated);
CREATE TABLE IF NOT EXISTS executions (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, stored REAL NOT NULL, data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS executions_stored ON executions (owner, stored);
"""
_PRUNE_CONVERSATIONS = """
DELETE FROM conversations WHERE owner = ?1 AND id NOT IN
(SELECT id FROM conversations WHERE owner = ?1 ORDER BY updated DESC LIMIT ?2)
"""
_PRUNE_EXECUTIONS = """
DELETE FROM executions WHERE stored < ?3 OR owner = ?1 AND id NOT IN
(SELECT id FROM executions WHERE owner = ?1 ORDER BY stored DESC LIMIT ?2)
"""
_SECONDS_PER_DAY = 86_400


@checked
class SqliteChats(ChatStore):
    """Stores the last `conversations` and `executions` of each user in a file that only its owner may read.

    Executions are deleted after `keep_days`. Queries run in a thread.
    """

    def __init__(
        self, path: str | Path, *, conversations: int = 200, executions: int = 1_000, keep_days: float = 90.0
    ) -> None:
        self.path = Path(path)
        self._most_conversations = conversations
        self._most_executions = executions
        self._keep_seconds = keep_days * _SECONDS_PER_DAY
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @override
    async def conversations(self, owner: Owner) -> list[Conversation]:
        query = "SELECT id, title, updated FROM conversations WHERE owner = ? ORDER BY updated DESC"
        rows = await self._run(lambda database: database.execute(query, (str(owner),)).fetchall())
        return [Conversation(id=row[0], title=row[1], updated=row[2]) for row in rows]

    @override
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        query = "SELECT id, title, updated, messages FROM conversations WHERE owner = ? AND id = ?"
        row = await self._run(lambda database: database.execute(query, (str(owner), conversation_id)).fetchone())
        if row is None:
            return None
        return Conversation(id=row[0], title=row[1], updated=row[2], messages=json.loads(row[3]))

    @override
    async def save(self, owner: Owner, conversation: Conversation) -> None:
        row = (
            str(owner),
            conversation.id,
            conversation.title,
            conversation.updated,
            json.dumps(conversation.messages),
        )

        def write(database: sqlite3.Connection) -> None:
            with database:
                database.execute("INSERT OR REPLACE INTO conversations VALUES (?, ?, ?, ?, ?)", row)
                database.execute(_PRUNE_CONVERSATIONS, (str(owner), self._most_conversations))

        await self._run(write)

    @override
    async def delete(self, owner: Owner, conversation_id: str) -> None:
        def write(database: sqlite3.Connection) -> None:
            with database:
                database.execute("DELETE FROM conversations WHERE owner = ? AND id = ?", (str(owner), conversation_id))

        await self._run(write)

    @override
    async def save_execution(self, owner: Owner, data: dict[str, Any]) -> None:
        now = time.time()
        row = data["id"], str(owner), now, json.dumps(data)

        def write(database: sqlite3.Connection) -> None:
            with database:
                database.execute("INSERT OR REPLACE INTO executions VALUES (?, ?, ?, ?)", row)
                database.execute(_PRUNE_EXECUTIONS, (str(owner), self._most_executions, now - self._keep_seconds))

        await self._run(write)

    @override
    async def execution(self, owner: Owner, execution_id: str) -> dict[str, Any] | None:
        query = "SELECT data FROM executions WHERE owner = ? AND id = ?"
        row = await self._run(lambda database: database.execute(query, (str(owner), execution_id)).fetchone())
        return None if row is None else json.loads(row[0])

    @override
    async def aclose(self) -> None:
        def close() -> None:
            with self._lock:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None

        await anyio.to_thread.run_sync(close)

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
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

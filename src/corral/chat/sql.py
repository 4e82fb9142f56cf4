"""Conversations and executions in two tables of a SQL database."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from typing_extensions import override

from corral.chat.records import Owner
from corral.chat.store import ChatStore, Conversation
from corral.chat.turn import Message
from corral.concurrency.fairness import run_in_turn

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""Query with `$1`, `$2`, ..., and its values."""

SCHEMA = (
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


class SqlChats(ChatStore):
    """Stores the last `conversations` and `executions` of each user; executions are deleted after `keep_days`."""

    def __init__(self, conversations: int, executions: int, keep_days: float) -> None:
        self._most_conversations = conversations
        self._most_executions = executions
        self._keep_seconds = keep_days * _SECONDS_PER_DAY

    @abstractmethod
    async def _rows(self, statement: Statement) -> list[Any]:
        """Returns the rows of a query."""

    @abstractmethod
    async def _write(self, *statements: Statement) -> None:
        """Executes all statements in one transaction."""

    @override
    async def conversations(self, owner: Owner) -> list[Conversation]:
        query = "SELECT id, title, updated FROM conversations WHERE owner = $1 ORDER BY updated DESC"
        rows = await self._rows(_statement(query, str(owner)))
        return [Conversation(id=row[0], title=row[1], updated=row[2]) for row in rows]

    @override
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        query = "SELECT id, title, updated, messages FROM conversations WHERE owner = $1 AND id = $2"
        for row in await self._rows(_statement(query, str(owner), conversation_id)):
            messages: list[Message] = await run_in_turn(json.loads, row[3], owner=owner)
            return Conversation(id=row[0], title=row[1], updated=row[2], messages=messages)
        return None

    @override
    async def save(self, owner: Owner, conversation: Conversation) -> None:
        whose, messages = str(owner), await run_in_turn(_json, conversation.messages, owner=owner)
        await self._write(
            _statement(_SAVE, whose, conversation.id, conversation.title, float(conversation.updated), messages),
            _statement(_PRUNE_CONVERSATIONS, whose, self._most_conversations),
        )

    @override
    async def delete(self, owner: Owner, conversation_id: str) -> None:
        query = "DELETE FROM conversations WHERE owner = $1 AND id = $2"
        await self._write(_statement(query, str(owner), conversation_id))

    @override
    async def save_execution(self, owner: Owner, data: dict[str, Any]) -> None:
        now, whose = time.time(), str(owner)
        await self._write(
            _statement(_SAVE_EXECUTION, data["id"], whose, now, json.dumps(data)),
            _statement(_PRUNE_EXECUTIONS, whose, self._most_executions),
            _statement(_PRUNE_AGED, now - self._keep_seconds),
        )

    @override
    async def execution(self, owner: Owner, execution_id: str) -> dict[str, Any] | None:
        query = "SELECT data FROM executions WHERE owner = $1 AND id = $2"
        for row in await self._rows(_statement(query, str(owner), execution_id)):
            return json.loads(row[0])
        return None


def _json(messages: Iterable[Message]) -> str:
    """Encodes messages one by one, so that the event loop runs in between."""
    return f"[{', '.join(map(json.dumps, messages))}]"


def _statement(query: str, *values: Any) -> Statement:
    """Replaces lone surrogates and NUL, which databases do not accept; JSON escapes both."""
    return query, tuple(
        value.encode("utf-8", "replace").decode().replace("\0", "?") if isinstance(value, str) else value
        for value in values
    )

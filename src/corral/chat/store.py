"""Storage of conversations and executions."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from corral.chat.records import Owner
from corral.chat.turn import Message


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Messages of one user with the agent."""

    id: str
    title: str = ""
    updated: float = field(default_factory=time.time)
    """Seconds since the Unix epoch."""
    messages: list[Message] = field(default_factory=list[Message])


class ChatStore(ABC):
    """Storage of conversations and executions. Everything belongs to an owner, and is invisible to others."""

    async def open(self) -> None:
        """Connects now, rather than at the first use, so that the operator sees errors.

        Raises:
            ConfigError: the storage is not available.
        """

    @abstractmethod
    async def conversations(self, owner: Owner) -> list[Conversation]:
        """Lists conversations without their messages, newest first."""

    @abstractmethod
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        """Returns a conversation with its messages, which the caller may change."""

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

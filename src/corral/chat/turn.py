"""The interface between the chat server and an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from corral.errors import ConfigError
from corral.results import ExecutionResult
from corral.types import ExecutionContext

Part: TypeAlias = Mapping[str, Any]
"""Chunk of the AI SDK's UI message stream, version 1, such as `{"type": "text-delta", "id": "0", "delta": "Hello"}`."""

Message: TypeAlias = dict[str, Any]
"""Message of the AI SDK: `id`, `role` and `parts`, as plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """Message of a user, to which an agent replies."""

    conversation_id: str
    messages: Sequence[Message]
    """Conversation so far. The user's message is the last one."""
    context: ExecutionContext
    """The caller. The page does not show programs that run with another user or session."""
    result: ExecutionResult | None = None
    """Result of a program that was paused. The last message then has it for the model, in place of a user's words."""

    @property
    def text(self) -> str:
        """Text of the user's message."""
        return text_of_message(self.messages[-1])


TURN: ContextVar[ChatTurn] = ContextVar("turn")
"""Current turn. The server sets it in the task of the reply."""


def turn_context(_call: object = None) -> ExecutionContext:
    """Returns the caller of the reply in progress, for `CodeMode(corral, context=turn_context)`.

    Raises:
        ConfigError: no reply of a chat page is in progress.
    """
    turn = TURN.get(None)
    if turn is None:
        raise ConfigError("turn_context works only while an agent replies on a chat page")
    return turn.context


class ChatAgent(Protocol):
    """Agent behind a chat page.

    `reply` yields the parts of an assistant message, without `start`, `finish` and `[DONE]`, which the server adds. It
    is cancelled if the user stops it. Its exceptions are logged; the page gets a general message.
    """

    def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        """Yields the parts of the reply to a turn."""
        ...


def text_of_message(message: Mapping[str, Any]) -> str:
    """Joins the texts of a message."""
    return "\n".join(str(part["text"]) for part in message["parts"] if part.get("type") == "text")


def texts_of(messages: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns the role and text of each message that has a text."""
    return [(each["role"], text) for each in messages if (text := text_of_message(each))]

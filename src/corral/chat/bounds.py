"""Limits of a chat server."""

from __future__ import annotations

from corral.types import Frozen, Positive, PositiveSeconds


class ChatBounds(Frozen):
    """Limits of a chat server. All limits are positive; none can be disabled."""

    message_chars: Positive = 32_000
    """Characters of a user's message."""
    request_bytes: Positive = 4_000_000
    """Body of a request: pages can send the whole conversation."""
    messages: Positive = 200
    """Messages of a conversation."""
    conversation_bytes: Positive = 2_000_000
    """JSON of a conversation's messages, before the next one. All of them are stored again with each message."""
    messages_per_minute: Positive = 60
    """Messages of a user. That many can come in a burst."""
    replies: Positive = 3
    """Replies in progress of a user."""
    reply_seconds: PositiveSeconds = 3600.0
    """Wall-clock time of a reply, including its waits for approvals."""
    file_bytes: Positive = 50_000_000
    """Size of a session's file that the page offers."""

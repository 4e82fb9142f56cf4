"""Bounds of a chat server."""

from __future__ import annotations

from corral.types import Frozen, Positive, PositiveSeconds


class ChatBounds(Frozen):
    """Bounds of a chat server. Every bound is positive and in force."""

    message_chars: Positive = 32_000
    """Text of one message of a user."""
    request_bytes: Positive = 4_000_000
    """Body of one request: pages may send the whole conversation."""
    messages: Positive = 200
    """Messages of one conversation."""
    conversation_bytes: Positive = 2_000_000
    """Messages of one conversation as JSON, before its next one. Each is stored with all that came before."""
    messages_per_minute: Positive = 60
    """Messages of one user. So many may come at once."""
    replies: Positive = 3
    """Replies in progress of one user."""
    reply_seconds: PositiveSeconds = 3600.0
    """Wall clock of one reply, with the approvals that it waits for."""
    file_bytes: Positive = 50_000_000
    """A file of a session that the page offers."""

"""Adapters of agent frameworks for the chat server."""

from corral.chat.agents.detection import chat_agent_of

__all__ = ["chat_agent_of"]

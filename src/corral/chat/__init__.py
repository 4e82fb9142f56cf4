"""Chat page for agents that shows each program's calls and output: `chat_app` (an ASGI app) and `corral chat`.

Adapters for agent frameworks are modules of `corral.chat.agents`.
"""

from corral.chat.app import Authenticate, ChatBounds, chat_app
from corral.chat.entrance import OneTimeLogin
from corral.chat.stores import ChatStore, Conversation, MemoryChats, PostgresChats, SqliteChats
from corral.chat.turn import ChatAgent, ChatTurn, Message, Part, turn_context

__all__ = [
    "Authenticate",
    "ChatAgent",
    "ChatBounds",
    "ChatStore",
    "ChatTurn",
    "Conversation",
    "MemoryChats",
    "Message",
    "OneTimeLogin",
    "Part",
    "PostgresChats",
    "SqliteChats",
    "chat_app",
    "turn_context",
]

"""Adapters of agent frameworks for the chat server."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from corral.chat.turn import ChatAgent
from corral.errors import ConfigError

__all__ = ["chat_agent_of"]

_ADAPTERS: Mapping[str, str] = {
    "agents": "openai_agents:from_openai_agents",
    "google": "google_adk:from_google_adk",
    "langgraph": "langchain:from_langchain",
    "pydantic_ai": "pydantic_ai:from_pydantic_ai",
}
"""Module of `corral.chat.agents`, and its function, by the framework's package."""


def chat_agent_of(agent: Any) -> ChatAgent:
    """Returns an agent for `chat_app`: the agent itself if it has `reply`, else its framework's adapter.

    Raises:
        ConfigError: there is no adapter for the agent.
    """
    if callable(getattr(agent, "reply", None)):
        return agent
    for base in type(agent).__mro__:
        package = base.__module__.partition(".")[0]
        if (adapter := _ADAPTERS.get(package)) is not None:
            module, _, function = adapter.partition(":")
            return getattr(import_module(f"corral.chat.agents.{module}"), function)(agent)
    known = ", ".join(sorted(each.partition(":")[2] for each in _ADAPTERS.values()))
    raise ConfigError(f"{type(agent).__name__} is not a ChatAgent: it has no `reply`. Adapters: {known}")

"""Finds the adapter for an agent by the framework that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from corral.chat.turn import ChatAgent
from corral.errors import ConfigError

__all__ = ["chat_agent_of"]

_ADAPTERS: Mapping[str, str] = {
    "pydantic_ai": "from_pydantic_ai",
}
"""Function that adapts agents, by the framework's package. It is in the module of the same name."""


def chat_agent_of(agent: Any) -> ChatAgent:
    """Returns an agent for `chat_app`: the agent itself if it has `reply`, else its framework's adapter.

    Raises:
        ConfigError: there is no adapter for it.
    """
    if callable(getattr(agent, "reply", None)):
        return agent
    for base in type(agent).__mro__:
        package = base.__module__.partition(".")[0]
        if (adapter := _ADAPTERS.get(package)) is not None:
            return getattr(import_module(f"corral.chat.agents.{package}"), adapter)(agent)
    known = ", ".join(sorted(_ADAPTERS))
    raise ConfigError(f"{type(agent).__name__} is no ChatAgent: it has no `reply`. Adapters: {known}")

"""Chooses a model by the API key in the environment, for a chat without an agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from corral import Corral, ExecutionContext
from corral.chat.agents.pydantic_ai import from_pydantic_ai
from corral.chat.turn import ChatAgent
from corral.errors import ConfigError, MissingExtra
from corral.integrations.pydantic_ai import CodeMode

MODELS: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5",
    "OPENAI_API_KEY": "openai:gpt-6.1-sol",
    "GOOGLE_GENERATIVE_AI_API_KEY": "google:gemini-3.8-flash",
}
"""Models for pydantic-ai, by the environment variable of their key. The first variable that is set counts."""


def model_by_environment() -> Model | None:
    """Returns the model of the first key that is set; None if no key is set.

    The keys are ANTHROPIC_API_KEY, OPENAI_API_KEY and GOOGLE_GENERATIVE_AI_API_KEY.

    Raises:
        MissingExtra: the SDK of the provider is not installed.
    """
    for variable, name in MODELS.items():
        if key := os.environ.get(variable):
            try:
                return infer_model(name, partial(_provider, key=key))
            except ImportError as error:
                remedy = f"pip install 'pydantic-ai-slim[{name.partition(':')[0]}]'"
                raise MissingExtra(f"{variable} chooses {name}, whose SDK is not installed: {remedy}") from error
    return None


def _provider(name: str, *, key: str) -> Provider[Any]:
    made = cast("Callable[..., Provider[Any]]", infer_provider_class(name))
    return made(api_key=key)


def chat_agent_by_environment(corral: Corral) -> ChatAgent:
    """Returns an agent that writes programs for the tools of a Corral, with `model_by_environment`.

    Raises:
        ConfigError: no key is set.
    """
    model = model_by_environment()
    if model is None:
        *others, last = MODELS
        raise ConfigError(f"there is no model: set {', '.join(others)} or {last}, or use --demo, which needs no key")
    return from_pydantic_ai(Agent(model, deps_type=ExecutionContext, capabilities=[CodeMode(corral)]))

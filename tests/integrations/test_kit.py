"""What every framework's `code_mode` refuses, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corral import Corral, tool
from corral.errors import ConfigError
from corral.integrations import anthropic, google_adk, langchain, openai, openai_agents, pydantic_ai

WITH_TOOLS: list[Callable[..., Any]] = [
    anthropic.code_mode,
    google_adk.code_mode,
    langchain.code_mode,
    openai.code_mode,
    openai_agents.code_mode,
]
EVERY: list[Callable[..., Any]] = [*WITH_TOOLS, pydantic_ai.CodeMode]


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def test_what_is_no_corral_is_refused() -> None:
    for code_mode in EVERY:
        for wrong in ([Corral([add], check=False)], add, None, {"math": add}):
            with pytest.raises(ConfigError, match=r"corrals.* takes (str|Corral)"):
                code_mode(wrong)


def test_a_name_that_cannot_end_the_name_of_a_tool_is_refused() -> None:
    for code_mode in EVERY:
        for label in ("", "my sales", "x" * 41, 5, "größe"):
            with pytest.raises(ConfigError, match=r"cannot end the name of a tool|a key of corrals takes str"):
                code_mode({label: Corral([add], check=False)})


def test_tools_of_corral_are_not_taken_for_the_frameworks_own() -> None:
    for code_mode in WITH_TOOLS:
        with pytest.raises(ConfigError, match=r"tools of Corral go into Corral\(tools=\[...\]\)"):
            code_mode(Corral([add], check=False), tools=[add])

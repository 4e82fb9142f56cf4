"""What every framework's `CodeMode` refuses, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corral import Corral, tool
from corral.errors import ConfigError
from corral.integrations import anthropic, google_adk, langchain, openai, openai_agents, pydantic_ai

WITH_KWARGS: list[Callable[..., Any]] = [
    anthropic.CodeMode,
    google_adk.CodeMode,
    openai.CodeMode,
    openai_agents.CodeMode,
]
EVERY: list[Callable[..., Any]] = [*WITH_KWARGS, langchain.CodeMode, pydantic_ai.CodeMode]


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def test_what_is_no_corral_is_refused() -> None:
    for code_mode in EVERY:
        for wrong in ([Corral([add], check=False)], add, {"math": add}):
            with pytest.raises(ConfigError, match=r"corrals.* takes (str|Corral)"):
                code_mode(wrong)


def test_a_name_that_cannot_end_the_name_of_a_tool_is_refused() -> None:
    for code_mode in EVERY:
        for label in ("", "my sales", "x" * 41, 5, "größe"):
            with pytest.raises(ConfigError, match=r"cannot be part of a tool's name|a key of corrals takes str"):
                code_mode({label: Corral([add], check=False)})


def test_tools_of_corral_are_not_taken_for_the_frameworks_own() -> None:
    for code_mode in WITH_KWARGS:
        with pytest.raises(ConfigError, match=r"tools of Corral go into Corral\(tools=\[...\]\)"):
            code_mode(Corral([add], check=False)).kwargs(tools=[add])


def test_own_tools_go_into_programs_only_where_they_can() -> None:
    for code_mode in EVERY[:3]:
        with pytest.raises(ConfigError, match="needs a Corral with tools for programs"):
            code_mode()
    for code_mode in EVERY[3:]:
        with pytest.raises(ConfigError, match="excludes tools of tools="):
            code_mode(Corral([add], check=False), outside=["add"])
        with pytest.raises(ConfigError, match="programs of several Corrals"):
            code_mode({"a": Corral([add], check=False)}, tools="all")

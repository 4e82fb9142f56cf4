"""Programs as models write them by habit: what runs to its end without the check is not rejected with it."""

from __future__ import annotations

import pytest

from corral import Corral, Language, ToolRegistry
from corral.checking import Checker
from corral.sandboxes import CPythonSandbox, DenoSandbox
from tests.checking.corpora import LANGUAGES, unsuccessful, verdicts
from tests.checking.habits.programs import TOOLS, habits, mistakes

pytestmark = pytest.mark.anyio

LEAST = 0.8
"""The part of the mistakes that is found, and the part of those whose message has the word that it must have."""


@pytest.mark.parametrize("language", LANGUAGES)
async def test_every_program_of_habit_runs_to_its_end(
    warm_deno: DenoSandbox, warm_cpython: CPythonSandbox, language: Language
) -> None:
    programs = habits(language)
    async with Corral(TOOLS, check=False, sandbox={"typescript": warm_deno, "python": warm_cpython}) as corral:
        assert await unsuccessful(corral, programs, language) == {}
    assert len(programs) > 200


@pytest.mark.parametrize("language", LANGUAGES)
async def test_no_program_of_habit_is_rejected(checker: Checker, language: Language) -> None:
    found = await verdicts(checker, habits(language), language, ToolRegistry(*TOOLS))
    assert {name: each for name, each in found.items() if each.unchecked or each.rejection} == {}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_most_mistakes_of_habit_are_found_and_named(checker: Checker, language: Language) -> None:
    recorded = mistakes(language)
    programs = {name: mistake.program for name, mistake in recorded.items()}
    found = await verdicts(checker, programs, language, ToolRegistry(*TOOLS))
    assert {name: each for name, each in found.items() if each.unchecked} == {}
    said = {name: str(each.rejection) for name, each in found.items() if each.rejection}
    unnamed = {name: text for name, text in said.items() if recorded[name].word not in text}
    assert len(recorded) >= 50
    assert len(said) >= LEAST * len(recorded), f"missed {sorted(recorded.keys() - said.keys())}"
    assert len(unnamed) <= (1 - LEAST) * len(said), unnamed

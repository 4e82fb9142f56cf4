"""Programs as models write them by habit: what runs to its end without the check is not rejected with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from corral import Corral, ExecutionResult, Language, ToolRegistry
from corral.checking import Checker
from corral.errors import ProgramRejected
from corral.sandboxes import SandboxProvider
from corral.sandboxes.deno import DenoSandbox
from tests.checking.habits.programs import TOOLS, habits, mistakes

LANGUAGES: tuple[Language, ...] = ("typescript", "python")
SECONDS = 60
AT_ONCE = 8
LEAST = 0.8
"""The part of the mistakes that is found, and the part of those whose message has the word that it must have."""


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """Has a server for each language."""
    checker = Checker()
    for language in LANGUAGES:
        checker.start(language, ToolRegistry())
        assert checker.wait(language, SECONDS)
    yield checker
    checker.close()


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    # Contexts of one process take a third of the time that processes take.
    sandbox: dict[Language, SandboxProvider | str] = {
        "typescript": DenoSandbox(),
        "python": "cpython",
    }
    async with Corral(TOOLS, check=False, sandbox=sandbox) as corral:
        yield corral


@pytest.mark.anyio
@pytest.mark.parametrize("language", LANGUAGES)
async def test_every_program_of_habit_runs_to_its_end(corral: Corral, language: Language) -> None:
    results: dict[str, ExecutionResult] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(name: str, program: str) -> None:
        async with limiter:
            results[name] = await corral.execute(program, language=language)

    async with anyio.create_task_group() as tasks:
        for name, program in habits(language).items():
            tasks.start_soon(run, name, program)
    assert len(results) > 200
    assert {name: result.error for name, result in results.items() if result.status != "succeeded"} == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_program_of_habit_is_rejected(checker: Checker, language: Language) -> None:
    tools = ToolRegistry(*TOOLS)
    rejected: dict[str, str] = {}
    for name, program in habits(language).items():
        verdict = checker.check(program, language, tools, env=False, must=True)
        assert verdict.unchecked is None, f"{name} was not checked: {verdict.unchecked}"
        if verdict.rejection:
            rejected[name] = str(verdict.rejection)
    assert rejected == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_most_mistakes_of_habit_are_found_and_named(checker: Checker, language: Language) -> None:
    tools = ToolRegistry(*TOOLS)
    recorded = mistakes(language)
    said: dict[str, str] = {}
    for name, mistake in recorded.items():
        try:
            verdict = checker.check(mistake.program, language, tools, env=False, must=True)
        except ProgramRejected as error:
            said[name] = str(error)
            continue
        assert verdict.unchecked is None, f"{name} was not checked: {verdict.unchecked}"
        if verdict.rejection:
            said[name] = str(verdict.rejection)
    unnamed = {name: text for name, text in said.items() if recorded[name].word not in text}
    assert len(recorded) >= 50
    assert len(said) >= LEAST * len(recorded), f"missed {sorted(recorded.keys() - said.keys())}"
    assert len(unnamed) <= (1 - LEAST) * len(said), unnamed

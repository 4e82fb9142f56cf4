"""What the check makes of the corpora: it lets every program pass that runs well, and finds most mistakes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from corral import Corral, Limits, Tool
from corral.checking import Checker, Verdict
from corral.sandboxes import DenoSandbox
from corral.tools import ToolRegistry
from corral.types import Language
from tests.checking.corpora import EACH_OR_SOME, LANGUAGES, valid_python_programs, verdicts
from tests.checking.tools import TOOLS
from tests.checking.typescript import mistakes, valid_programs
from tests.conftest import TOOLS as FEW_TOOLS
from tests.conftest import cases

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "flights"
MISSED: Mapping[Language, Sequence[str]] = {
    "typescript": """
        wrong-type-6 wrong-type-25 wrong-type-27 wrong-type-31 no-such-member-11 no-such-member-20
        no-such-member-21 no-such-member-44 no-such-member-45 no-such-member-47 no-such-member-48
        unawaited-29 unawaited-53 wrong-type-35 wrong-type-36 wrong-type-37 wrong-type-38
    """.split(),
    "python": """
        null_argument/from_result no_such_member/sent unawaited/condition_none
        unawaited/sync_function unbound_name/declared_type unknown_tool/in_main
        unawaited/condition_before_await
    """.split(),
}
"""The mistakes that no rule finds; wrong-type-35 to 38 parse what is read already, and run."""
PLACED = 0.95
"""The part of those for which an error is where the mistake is."""
BEYOND_DECLARATIONS = {"wrong_operation", "awaited_twice", "text_as_date"}
"""Kinds of mistakes that concern neither declarations nor names nor calls that nothing awaits."""


def rejected(found: dict[str, Verdict]) -> dict[str, str]:
    return {name: str(each.rejection) for name, each in found.items() if each.rejection}


def unchecked(found: dict[str, Verdict]) -> dict[str, str]:
    return {name: each.unchecked for name, each in found.items() if each.unchecked}


@EACH_OR_SOME
@pytest.mark.parametrize("language", LANGUAGES)
async def test_no_valid_program_is_rejected_and_each_is_checked(
    checker: Checker, language: Language, step: int
) -> None:
    programs = valid_programs() if language == "typescript" else valid_python_programs()
    found = await verdicts(checker, dict([*programs.items()][::step]), language, ToolRegistry(*TOOLS))
    assert len(programs) > 200
    assert unchecked(found) == {}
    assert rejected(found) == {}


def recorded_mistakes(language: Language) -> list[dict[str, Any]]:
    """Programs with a mistake each that the check is to find."""
    if language == "typescript":
        return [{**each} for each in mistakes()]
    found: list[dict[str, Any]] = json.loads((TESTS / "checking/mistakes/python.json").read_text(encoding="utf-8"))
    return [each for each in found if each["kind"] not in BEYOND_DECLARATIONS]


def rejection_lines(verdict: Verdict) -> list[int | None]:
    """The lines of all for which a program is rejected."""
    lines = [each.line for each in verdict.diagnostics if each.severity == "error"]
    return lines or ([verdict.rejection.line] if verdict.rejection else [])


@EACH_OR_SOME
@pytest.mark.parametrize("language", LANGUAGES)
async def test_nearly_every_mistake_is_found_and_its_place_is_named(
    checker: Checker, language: Language, step: int
) -> None:
    recorded = {each["id"]: each for each in recorded_mistakes(language)[::step]}
    programs = {id: each["program"] for id, each in recorded.items()}
    found = await verdicts(checker, programs, language, ToolRegistry(*TOOLS))
    assert unchecked(found) == {}
    lines = {id: rejection_lines(verdict) for id, verdict in found.items()}
    missed = [id for id, found in lines.items() if not found]
    misplaced = [id for id, found in lines.items() if found and recorded[id]["line"] not in found]
    assert len(recorded) > 200 / step
    assert missed == [id for id in MISSED[language] if id in recorded]
    assert len(misplaced) <= (1 - PLACED) * (len(recorded) - len(missed)), f"found elsewhere: {misplaced}"


@pytest.fixture(scope="module")
def flight_tools() -> Iterator[tuple[Tool, ...]]:
    """The example's, whose modules import each other by bare names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
        before = set(sys.modules)
        yield importlib.import_module("tools").TOOLS
    for name in {"tools", "database", "report"} - before:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_programs_of_the_example_pass(
    checker: Checker, flight_tools: tuple[Tool, ...], language: Language
) -> None:
    files = sorted(EXAMPLE.glob(f"programs/{language}/*"))
    programs = {file.name: file.read_text(encoding="utf-8") for file in files}
    found = await verdicts(checker, programs, language, ToolRegistry(*flight_tools))
    assert len(found) == 3
    assert unchecked(found) == {}
    assert rejected(found) == {}


@pytest.mark.matrix("no program of `valid` is rejected, says the gate, and this of programs from elsewhere")
async def test_of_programs_that_other_tests_run_only_those_are_rejected_that_fail(
    checker: Checker, warm_deno: DenoSandbox
) -> None:
    texts: list[str] = json.loads((TESTS / "guest/programs.json").read_text(encoding="utf-8"))
    texts += [case["input"]["code"] for case in cases("js-peers.json", "normalise", "language")]
    programs, registry = {text: text for text in texts}, ToolRegistry(*FEW_TOOLS)
    found = await verdicts(checker, programs, "typescript", registry)
    async with Corral(FEW_TOOLS, sandbox=warm_deno, limits=Limits(wall_seconds=20), check=False) as corral:
        results = {text: await corral.execute(text) for text in rejected(found)}
    assert len(found) > 100
    ran = {text: [each.code for each in result.diagnostics] for text, result in results.items() if result.success}
    assert {text for text, codes in ran.items() if "mended" not in codes} == set()

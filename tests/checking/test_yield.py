"""Which rule of the check finds which recorded mistake: what docs/design/checking.md says of it is computed here."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import Mock

import pytest

from corral.checking import Checker
from corral.checking.base import Check
from corral.checking.declared_tools import ToolSet
from corral.checking.findings import Finding
from corral.checking.python.check import PythonCheck
from corral.checking.typescript.check import TypeScriptCheck
from corral.tools import ToolRegistry
from corral.types import Language
from tests.checking import test_findings, test_python_hints
from tests.checking.corpora import LANGUAGES, verdicts
from tests.checking.test_corpora import recorded_mistakes
from tests.checking.tools import TOOLS

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.matrix(
        "test_corpora, test_findings and test_python_hints say that the mistakes are found, this by what"
    ),
]

CHECKS: Mapping[Language, type[Check]] = {"typescript": TypeScriptCheck, "python": PythonCheck}
FOUND: Mapping[Language, Mapping[str, str]] = {"typescript": test_findings.FOUND, "python": test_python_hints.FOUND}
NO_RULES = {"findings", "judge", "_confirmed", "_remember_owner"}
"""Methods that give findings of rules, and find nothing themselves."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "design" / "checking.md"


class Yield(NamedTuple):
    """How many mistakes are not found without a rule, and of how many others something else is said."""

    alone: int = 0
    worded: int = 0


class Switch:
    """Notes by which rules of a check a program is rejected, and turns one of them off."""

    def __init__(self, check: type[Check], monkeypatch: pytest.MonkeyPatch) -> None:
        self.off: str | None = None
        self.fired: list[str] = []
        self._reported: list[Finding] = []
        """Rejections that are some rule's already, which others only pass on."""
        self.rules = {
            name: method
            for name in sorted(vars(check).keys() | {each for base in check.__mro__ for each in vars(base)})
            if name not in NO_RULES
            and inspect.isfunction(method := inspect.getattr_static(check, name))
            and "Finding" in str(method.__annotations__.get("return"))
        }
        for name, rule in self.rules.items():
            monkeypatch.setattr(check, name, self._switched(name, rule))

    def begin(self, off: str | None) -> None:
        self.off = off
        self.fired, self._reported = [], []

    def _switched(self, name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        may_pass = "| None" in rule.__annotations__["return"] and name != "_judge"

        def ask(check: Check, *given: Any) -> Any:
            found = rule(check, *given)
            is_many = isinstance(found, list | Iterator)
            listed = list(cast("Iterable[Any]", found)) if is_many else [found]
            mine = [each for each in listed if isinstance(each, Finding) and each.kind and not self._is_reported(each)]
            self.fired += [name] * bool(mine)
            if self.off == name and mine:
                listed = [replace(each, kind=None) if each in mine else each for each in listed]
                return listed if is_many else None if may_pass else listed[0]
            self._reported += mine
            return listed if is_many else found

        return ask

    def _is_reported(self, finding: Finding) -> bool:
        return any(each is finding for each in self._reported)


async def yields(checker: Checker, language: Language, monkeypatch: pytest.MonkeyPatch) -> dict[str, Yield]:
    """The yield of each rule over all recorded mistakes, in each of which only the rules are turned off that reject it."""
    monkeypatch.setattr(ToolSet, "known", Mock(return_value=None))  # no verdict that is remembered
    switch, tools = Switch(CHECKS[language], monkeypatch), ToolRegistry(*TOOLS)
    alone, worded = Counter[str](), Counter[str]()

    async def told(program: str, off: str | None = None) -> str:
        switch.begin(off)
        [verdict] = (await verdicts(checker, {"": program}, language, tools)).values()
        return str(verdict.rejection or "")

    for program in [*(each["program"] for each in recorded_mistakes(language)), *FOUND[language]]:
        text = await told(program)
        for rule in dict.fromkeys(switch.fired):
            without = await told(program, rule)
            alone[rule] += not without
            worded[rule] += without not in ("", text)
    return {rule: Yield(alone[rule], worded[rule]) for rule in switch.rules}


async def test_the_table_says_what_each_rule_finds(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {language: await yields(checker, language, monkeypatch) for language in LANGUAGES}
    rules = sorted({rule for each in counted.values() for rule in each})
    rows = {rule: [counted[language].get(rule) for language in LANGUAGES] for rule in rules}
    computed = [
        f"| `{rule}` | " + " | ".join(f"{each.alone} | {each.worded}" if each else " | " for each in row) + " |"
        for rule, row in rows.items()
    ]
    written = re.findall(r"^\| `_?\w+` \|.*\|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(written) == computed

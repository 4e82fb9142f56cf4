"""Every promise of docs/security.md names the tests that would fail if it were broken.

`promises.txt` has them: a line of the page's section and of the promise's own first words, then the tests.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
PROMISING = frozenset(
    {
        "Threat model",
        "Layers",
        "Tiers",
        "What executions share",
        "Python",
        "Calls",
        "Channels between tenants",
    }
)
"""Sections in which every item of a list and every row of a table is a promise."""
_ITEM = re.compile(r"(?:- |\d+\. )(?P<text>.+)")
_END = re.compile(r"[.:;](?:\**)(?:\s|$)")
_SEPARATOR = re.compile(r"[|\s:-]+")


def promised() -> list[str]:
    """What the page promises: the section, and the item's text up to its first colon or full stop, or the row's name."""
    found: list[str] = []
    section, rows = "", 0
    for line in _unwrapped(PAGE):
        if line.startswith("## "):
            section = line[3:]
        rows = rows + 1 if line.startswith("|") else 0
        if section not in PROMISING:
            continue
        if item := _ITEM.match(line):
            found.append(f"{section}: {_plain(_END.split(item['text'])[0])}")
        elif rows > 2 and not _SEPARATOR.fullmatch(line):
            found.append(f"{section}: {_plain(line.split('|')[1])}")
    return found


def _unwrapped(page: str) -> list[str]:
    """Its lines, an item of a list in one."""
    return re.sub(r"\n {2,}(?=\S)", " ", page).split("\n")


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("*", "").replace("`", "").strip()


def tests_of() -> dict[str, list[str]]:
    """The tests of each promise."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).with_name("promises.txt")).read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line.strip())
        elif line:
            found[line] = []
    return found


@cache
def functions(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("promise", promised())
def test_it_is_tested(promise: str) -> None:
    tests = tests_of().get(promise)
    assert tests, "promises.txt names no test of it"
    for test in tests:
        file, _, name = test.partition("::")
        assert name.startswith("test_")
        assert name in functions(TESTS / file), f"there is no {test}"


def test_no_promise_is_left_that_the_page_does_not_make() -> None:
    assert tests_of().keys() - set(promised()) == set()

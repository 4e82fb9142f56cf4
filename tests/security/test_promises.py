"""Every promise of docs/security.md names the tests that would fail if it were broken, and one of them is in the gate.

`promises.txt` has them: a line of the page's section and of the promise's own first words, then the tests, or cases of them.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import annotated_types
import pytest
from _pytest.mark import ParameterSet

from corral import Corral
from corral.containment import Tier
from corral.errors import StartFailed
from corral.jail.seccomp import ALLOWED
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.types import Language

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
PROMISING = frozenset(
    {
        "Actors",
        "Promises",
        "Layers",
        "Tiers",
        "What executions share",
        "Python",
        "Calls",
        "Between programs of different tenants",
        "What differs between namespaces and landlock",
    }
)
"""Sections in which every item of a list and every row of a table is a promise."""
_ITEM = re.compile(r"(?:- |\d+\. )(?P<text>.+)")
_END = re.compile(r"[.:;](?:\**)(?:\s|$)")


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
        elif rows > 2:
            name, says = (_plain(each) for each in line.split("|")[1:3])
            if not says.startswith("open"):  # which promises nothing
                found.append(f"{section}: {name}")
    return list(dict.fromkeys(found))


def _unwrapped(page: str) -> list[str]:
    """Its lines, an item of a list in one."""
    return re.sub(r"\n {2,}(?=\S)", " ", page).split("\n")


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("*", "").replace("`", "").strip()


def named_tests() -> dict[str, list[str]]:
    """The tests of each promise."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).with_name("promises.txt")).read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line.strip())
        elif line:
            found[line] = []
    return found


def in_gate(test: str) -> bool:
    """Whether the gate has a case of a test; of one that ends with a name in brackets, a case with that parameter.

    Raises:
        AttributeError: there is no such test.
    """
    file, _, name = test.partition("::")
    name, _, parameter = name.removesuffix("]").partition("[")
    module = importlib.import_module(f"tests.{file.removesuffix('.py').replace('/', '.')}")
    marks = [*_marks(module), *_marks(getattr(module, name))]
    cases = [
        [each for each in mark.args[1] if not (isinstance(each, ParameterSet) and _is_of_matrix(each.marks))]
        for mark in marks
        if mark.name == "parametrize"
    ]
    names = {str(name) for some in cases for each in some for name in _names(each)}
    return all(cases) and not _is_of_matrix(marks) and parameter in {"", *names}


def _marks(owner: object) -> list[pytest.Mark]:
    found: Any = getattr(owner, "pytestmark", [])
    marks = cast("list[pytest.Mark | pytest.MarkDecorator]", found if isinstance(found, list) else [found])
    return [each.mark if isinstance(each, pytest.MarkDecorator) else each for each in marks]


def _is_of_matrix(marks: Iterable[pytest.Mark | pytest.MarkDecorator]) -> bool:
    return any(each.name == "matrix" for each in marks)


def _names(case: Any) -> Iterable[object]:
    if isinstance(case, ParameterSet):
        return [case.id, *case.values]
    return cast("tuple[object, ...]", case) if isinstance(case, tuple) else [case]


def test_each_has_a_test_in_the_gate() -> None:
    named = named_tests()
    wrong = [f"no test is named of it: {promise}" for promise in promised() if promise not in named]
    wrong += [f"there is no such promise: {promise}" for promise in named if promise not in promised()]
    for promise, tests in named.items():
        of_gate = {test: in_gate(test) for test in tests}
        if not any(of_gate.values()):
            wrong.append(f"the tests that are named of it are all of the matrix: {promise}")
        # Where a case is named, no other says the same.
        wrong += [f"this is of the matrix: {test}" for test in tests if "[" in test and not of_gate[test]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("case", "expected"),
    [("", True), ("[native-landlock]", True), ("[native-namespaces-matrix]", False), ("[native-namespaces]", False)],
)
def test_a_case_of_the_matrix_is_not_taken_for_one_of_the_gate(case: str, expected: bool) -> None:
    assert in_gate(f"security/test_attacks.py::test_every_attack_is_contained_and_nothing_is_left{case}") == expected


@pytest.mark.anyio
@pytest.mark.parametrize(("sandbox", "language"), [(DenoSandbox, "typescript"), (CPythonSandbox, "python")])
async def test_nothing_runs_in_a_lower_tier_unless_that_was_said(
    sandbox: Callable[..., SandboxProvider], language: Language
) -> None:
    lower: list[tuple[Tier, Tier]] = [("none", "landlock"), ("landlock", "namespaces")]
    for tier, required in lower:
        with pytest.raises(StartFailed, match=tier):
            await Corral(sandbox={language: sandbox(tier=tier)}, containment=required, check=False).execute(
                "1", language=language
            )
    with pytest.raises(StartFailed, match="none"):
        await Corral(sandbox={language: sandbox(tier="none")}, check=False).execute("1", language=language)
    async with Corral(sandbox={language: sandbox(tier="none")}, containment="none", check=False) as corral:
        result = await corral.execute("1", language=language)
    assert (result.value, result.containment) == (1, "none")


def test_as_many_system_calls_are_allowed_as_the_page_says() -> None:
    said = re.search(r"all but (\d+) calls", PAGE)
    assert said is not None
    assert int(said[1]) == len(ALLOWED)


@pytest.mark.anyio
async def test_in_namespaces_what_a_program_reads_keeps_its_times() -> None:
    file = Path(annotated_types.__file__)  # of an environment that is the user's own
    copy = Path(shutil.copy2(file, file.with_suffix(".copy")))
    copy.replace(file)  # installers link a file into several environments, whose processes read it too
    os.utime(file, ns=(0, file.stat().st_mtime_ns))  # so long ago that reading it would show
    sandbox = CPythonSandbox(tier="namespaces", packages=["annotated-types"])
    async with Corral(sandbox={"python": sandbox}, check=False) as corral:
        result = await corral.execute(
            "import annotated_types\nlen(open(annotated_types.__file__, 'rb').read())", language="python"
        )
    assert result.value == file.stat().st_size
    assert file.stat().st_atime_ns == 0
    file.read_bytes()
    keeps_times = bool(os.statvfs(file).f_flag & os.ST_NOATIME)
    assert (file.stat().st_atime_ns == 0) == keeps_times, "reading it outside shows, where times are kept at all"

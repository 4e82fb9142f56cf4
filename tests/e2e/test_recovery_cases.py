"""Whatever shape a model writes a program in, it runs and its value is the one the model meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from corral import Corral, Limits
from tests.conftest import TOOLS, cases
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    """One for all: each execution has a process of its own. None of these programs is to be taken for a mistake."""
    async with Corral(TOOLS, limits=Limits(wall_seconds=20), check="required") as corral:
        yield corral


def expected_value(expect: Any) -> object:
    """The value itself, or what holds it beside a remark."""
    return cast("dict[str, object]", expect)["value"] if isinstance(expect, dict) else expect


CASES = {case["id"]: case for case in cases("js-peers.json", "normalise", "language")}
VALUES = {
    name: (case["input"]["code"], expected_value(case["expect"]))
    for name, case in CASES.items()
    if not isinstance(case["expect"], str)
}

# What the other cases, whose `expect` is prose, mean here.
OUTCOMES: dict[str, tuple[str, Any]] = {
    "nz-return-undefined": ("value", 1),
    "nz-empty": ("value", None),
    "nz-close-brace-injection": ("error", "program_rejected"),
    "nz-throw": ("error", "program_failed"),
    "nz-throw-string": ("error", "program_failed"),
    "nz-deep-recursion": ("error", "program_failed"),
    "nz-fn-result": ("error", "program_failed"),
    "nz-eval-works": ("error", "program_failed"),
    "nz-async-fn-ctor": ("error", "program_failed"),
    "nz-map-result": ("value", {"a": 1}),
    "nz-structuredClone-exists": ("value", "function"),
    "nz-TextEncoder-exists": ("value", "function"),
    "nz-Buffer-exists": ("value", "function"),
    "nz-require-exists": ("value", "undefined"),
}


async def test_a_program_has_the_value_that_the_model_meant(corral: Corral) -> None:
    wrong = Wrong()
    for name, (code, expected) in VALUES.items():
        with wrong.case(name):
            result = await corral.execute(code)
            assert (result.status, result.value) == ("succeeded", expected), result.error
    assert wrong == []


async def test_a_program_ends_as_documented(corral: Corral) -> None:
    wrong = Wrong()
    for name, (kind, expected) in OUTCOMES.items():
        with wrong.case(name):
            result = await corral.execute(CASES[name]["input"]["code"])
            if kind == "value":
                assert (result.status, result.value) == ("succeeded", expected), result.error
            else:
                assert result.error is not None
                assert result.error.code == expected
    assert wrong == []


async def test_not_a_number_stays_not_a_number(corral: Corral) -> None:
    result = await corral.execute("return NaN")
    assert isinstance(result.value, float)
    assert result.value != result.value


def test_every_case_is_run() -> None:
    assert set(CASES) == {*VALUES, *OUTCOMES, "nz-nan-result"}

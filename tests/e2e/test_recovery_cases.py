"""Whatever shape a model writes a program in, it runs and its value is the one the model meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from corral import Corral, Limits
from tests.conftest import TOOLS, cases

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    """One for all: each execution has a process of its own. None of these programs is to be taken for a mistake."""
    async with Corral(TOOLS, limits=Limits(wall_seconds=20), check="required") as corral:
        yield corral


def expected_value(expect: Any) -> object:
    """The value itself, or what holds it beside a remark."""
    return cast("dict[str, object]", expect)["value"] if isinstance(expect, dict) else expect


VALUES = [
    pytest.param(case["input"]["code"], expected_value(case["expect"]), id=case["id"])
    for case in cases("js-peers.json", "normalise", "language")
    if not isinstance(case["expect"], str)
]

# What the other cases, whose `expect` is prose, mean here.
OUTCOMES: dict[str, tuple[str, Any]] = {
    "nz-return-undefined": ("value", None),
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


@pytest.mark.parametrize(("code", "expected"), VALUES)
async def test_a_program_has_the_value_that_the_model_meant(corral: Corral, code: str, expected: object) -> None:
    result = await corral.execute(code)
    assert (result.status, result.value) == ("succeeded", expected), result.error


@pytest.mark.parametrize(
    "case",
    [case for case in cases("js-peers.json", "normalise", "language") if case["id"] in OUTCOMES],
    ids=lambda case: case["id"],
)
async def test_a_program_ends_as_documented(corral: Corral, case: dict[str, Any]) -> None:
    kind, expected = OUTCOMES[case["id"]]
    result = await corral.execute(case["input"]["code"])
    if kind == "value":
        assert (result.status, result.value) == ("succeeded", expected), result.error
    else:
        assert result.error is not None
        assert result.error.code == expected


async def test_not_a_number_stays_not_a_number(corral: Corral) -> None:
    result = await corral.execute("return NaN")
    assert isinstance(result.value, float)
    assert result.value != result.value


def test_every_case_is_run() -> None:
    all_cases = {case["id"] for case in cases("js-peers.json", "normalise", "language")}
    assert all_cases == {str(value.id) for value in VALUES} | set(OUTCOMES) | {"nz-nan-result"}

"""Texts of values take a time that their budget decides: nothing is looked at again for each level above it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from corral import ExecutionResult
from corral.rendering.images import pictures_in
from corral.rendering.preview import preview_json
from corral.rendering.redaction import redacted
from tests.work import calls_of

_DEEP = 97
_WIDE = 20_000


def nested(leaf: Any, around: Callable[[Any], Any], levels: int = _DEEP) -> Any:
    return reduce(lambda value, _: around(value), range(levels), leaf)


SHAPES: list[Callable[[Any], Any]] = [
    lambda value: [value],
    lambda value: {"a": value},
    lambda value: {"a": value, "b": 1},
    lambda value: {"b": "x" * 50, "a": value},
    lambda value: [value, "x" * 50],
]
LEAVES: list[Any] = [
    [0] * _WIDE,
    [[]] * _WIDE,
    ["é"] * _WIDE,
    "x" * _WIDE,
    {str(number): number for number in range(_WIDE)},
]


@pytest.mark.parametrize("around", SHAPES, ids=["list", "member", "members", "last", "first"])
@pytest.mark.parametrize("leaf", LEAVES, ids=["numbers", "lists", "texts", "text", "members"])
@pytest.mark.parametrize(
    "budget", [300, pytest.param(20_000, marks=pytest.mark.matrix("the same work for a small budget in the gate"))]
)
def test_what_is_deep_costs_no_more_than_what_is_flat(around: Callable[[Any], Any], leaf: Any, budget: int) -> None:
    flat = calls_of(lambda: preview_json(leaf, budget))
    deep = calls_of(lambda: preview_json(nested(leaf, around), budget))
    assert deep < 2 * flat + 300 * _DEEP + 2 * budget


def test_the_size_of_a_value_does_not_count_only_the_budget() -> None:
    small, large = ({str(number): number for number in range(size)} for size in (10_000, 100_000))
    assert calls_of(lambda: preview_json(large, 300)) < 2 * calls_of(lambda: preview_json(small, 300))


@pytest.mark.parametrize("text_of", [pictures_in, redacted])
def test_a_copy_looks_at_no_more_of_a_larger_value(text_of: Callable[[Any], object]) -> None:
    small, large = ([{"a": [0] * 10}] * size for size in (20_000, 200_000))
    assert calls_of(lambda: text_of(large)) < 1.5 * calls_of(lambda: text_of(small))


def test_a_value_that_cannot_be_written_is_copied_only_as_far_as_there_is_room() -> None:
    value = nested(["\ud800"], lambda value: [value, *[0] * 5_000], 60)
    assert calls_of(lambda: preview_json(value, 300)) < 20 * 20_000


def test_a_model_reads_of_a_deep_result_what_there_is_room_for() -> None:
    value = nested([[]] * _WIDE, lambda value: {"a": value})
    result = ExecutionResult(execution_id="x", status="succeeded", language="typescript", value=value)
    assert len(result.model_text(10_000)) < 12_000

"""What a model sees of a large result is valid JSON, holds the first parts, and counts what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral import ExecutionResult
from corral.rendering.preview import preview, preview_json, preview_text


def test_a_long_list_keeps_its_first_items_and_counts_the_rest() -> None:  # tr-array
    value = {"items": [{"id": number} for number in range(500)]}
    shown = json.loads(preview_json(value, 120))
    assert shown["items"][:2] == [{"id": 0}, {"id": 1}]
    assert shown["items"][-1] == f"… {500 - len(shown['items']) + 1} more items"
    assert len(preview_json(value, 120)) <= 120


def test_a_small_value_is_itself() -> None:  # tr-small
    value = {"a": 1}
    assert preview(value, 120) is value


def test_a_long_text_keeps_head_and_tail() -> None:
    text = "a" * 1000 + "b" * 1000
    shown = preview_text(text, 200)
    assert shown.startswith("aaa")
    assert shown.endswith("bbb")
    assert "of 2000 characters left out" in shown
    assert len(shown) <= 210


def test_one_large_member_does_not_push_out_the_small_ones() -> None:
    shown = json.loads(preview_json({"rows": list(range(10_000)), "total": 3, "ok": True}, 300))
    assert (shown["total"], shown["ok"]) == (3, True)
    assert shown["rows"][:3] == [0, 1, 2]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=30),
        max_leaves=60,
    ),
    st.integers(min_value=200, max_value=2000),
)
def test_a_preview_is_always_valid_json_of_about_the_size(value: Any, size: int) -> None:
    text = preview_json(value, size)
    json.loads(text)
    assert len(text) <= 2 * size


def result(**fields: Any) -> ExecutionResult:
    return ExecutionResult(execution_id="x", status="succeeded", language="typescript", **fields)


def test_a_transformation_changes_what_the_model_sees() -> None:
    assert result(value={"a": 1, "b": 2}).model_text(transform=lambda value: value["a"]) == "Result: 1"


def test_a_transformation_that_raises_leaves_the_value(caplog: pytest.LogCaptureFixture) -> None:  # tr-transform-throws
    assert result(value={"a": 1}).model_text(transform=lambda value: value["nope"]) == 'Result: {"a":1}'
    assert "transforming a result" in caplog.text


def test_a_result_is_json_whatever_it_holds() -> None:
    shown = json.loads(result(value={"n": float("nan"), "b": b"\x00\xff", "big": 2**70}).to_json())
    assert shown["value"] == {"n": "NaN", "b": "AP8=", "big": 2**70}
    assert shown["success"] is True

"""Inputs in the form of superjson: what their `meta` says of their `json` costs no more than the bytes that came."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import MalformedMessage
from corral.protocols.trpc import from_superjson


def read(value: Any, **values: Any) -> Any:
    return from_superjson({"json": value, "meta": {"values": values}})


def test_a_typed_array_is_a_list_of_bytes_and_not_a_size() -> None:
    array = [["typed-array", "Uint8Array"]]
    assert read({"a": [104, 105]}, a=array) == {"a": "aGk="}
    for value in (10**9, True, "hi", {"0": 1}, [256], [-1], [1.5], ["1"], [[1]], None):
        with pytest.raises(MalformedMessage, match="does not fit"):
            read({"a": value}, a=array)


def test_undefined_is_null_in_a_list_and_absent_in_an_object() -> None:
    undefined = ["undefined"]
    assert read({"a": [None, 2], "b": None}, **{"a.0": undefined, "b": undefined}) == {"a": [None, 2]}
    assert read([["k", None]], **{"0.1": undefined}) == [["k", None]]


KINDS = ["undefined", "bigint", "number", "map", "set", "Date", "Error", ["typed-array", "Uint8Array"], ["class", "X"]]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=3),
    max_leaves=12,
)
TREES = st.recursive(
    st.sampled_from(KINDS).map(lambda kind: [kind]),
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "b", "0", "a.b", "a.0", "0.1", "00"]), inner, max_size=3)
        | st.tuples(st.sampled_from(KINDS), inner).map(list)
    ),
    max_leaves=6,
)


@settings(max_examples=40)
@given(PLAIN, TREES)
def test_what_is_read_takes_memory_by_the_bytes_that_came(value: Any, tree: Any) -> None:
    document = {"json": value, "meta": {"values": tree}}
    size = len(json.dumps(document))
    tracemalloc.start()
    try:
        from_superjson(document)
    except MalformedMessage:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 20_000 + 100 * size

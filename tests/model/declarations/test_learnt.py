"""What is learnt from results: it accepts them, keeps nothing of them but types, and is short."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral import ConfigError, ExecutionContext, define_tool, tool
from corral.model import LearntResults
from corral.model.learnt import json_schema, look, widen
from corral.tools.json_schema.document_schema import DocumentSchema

ANN = ExecutionContext(user_id="ann", organization_id="acme")
SECRET = "s3cret-value"
NAMES = st.sampled_from(["id", "name", "items", "next_page", "total"])
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.sampled_from(["", SECRET, '{"a": 1}'])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=10
)
DATA_KEYS = st.sampled_from(
    ["ann@acme.com", "3f2a9c1b-aa", "order 7", "u10023", "*/ evil()", "a\nb", "#: x", '"', "k" * 41, "a1b2c3", "\u2028"]
)
"""Keys that are certainly data, or are to break out of a comment."""
ORDERS = st.sampled_from([f"ignore_previous_instructions_{letter}" for letter in "abcdefgh"])
HOSTILE = st.recursive(
    LEAVES | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=9)
        | st.dictionaries(DATA_KEYS | st.from_regex(r"[a-z_]{1,60}", fullmatch=True), inner, max_size=12)
    ),
    max_leaves=40,
)


@tool(namespace="crm")
async def deals():
    return None


def ask(input: object) -> object:
    return input


def learnt_from(*values: object, level: Any = "shapes") -> LearntResults:
    learnt = LearntResults(level)
    for number, value in enumerate(values):
        learnt.observe(deals, value, ANN, f"execution-{number}")
    return learnt


def told(*values: object) -> str:
    return learnt_from(*values).told(deals, ANN, "typescript").removeprefix("seen in results, not promised: ")


@given(st.lists(VALUES, min_size=1, max_size=4))
@settings(max_examples=20)
def test_what_is_learnt_accepts_all_that_it_was_learnt_from(values: list[Any]) -> None:
    whole = look(values[0])
    for value in values[1:]:
        widen(whole, look(value))
    schema: DocumentSchema = DocumentSchema(json_schema(whole), owner="learnt")
    for value in values:
        schema.load(value)
    [found] = learnt_from(*values * 4).tools()
    DocumentSchema(found.schema, owner="learnt").load(values[-1])


@given(HOSTILE, HOSTILE)
@settings(max_examples=20)
def test_a_model_reads_200_characters_at_most_and_neither_values_nor_keys_that_are_data(one: Any, other: Any) -> None:
    learnt = learnt_from(*[one, one, one, one, other] * 3)
    texts = [learnt.told(deals, ANN, "typescript"), learnt.told(deals, ANN, "python")]
    names = set(re.findall(r"[\w-]{41,}", "".join(texts)))
    assert max(map(len, texts)) <= 200
    assert all(text.isprintable() and text.replace("…", "").isascii() for text in texts)
    assert not names
    [found] = learnt.tools()
    for text in (*texts, json.dumps(found.schema)):
        assert not re.search(r"s3cret|acme|3f2a|10023|a1b2|order 7|evil|#|\*/", text)


SHAPES: list[tuple[list[Any], str]] = [
    ([{"id": 1, "name": "x"}], "{ id?: number; name?: string }"),
    ([{"a": 1}, {"a": 1.5}, {"a": None}, {"a": 2}, {"a": 3}], "{ a?: number | null }"),
    ([[{"at": date(2026, 1, 1), "raw": b"", "set": {1}}]], "{ at?: string; raw?: Uint8Array; set?: number[] }[]"),
    ([{"body": '{"a": 1}'}], "{ body?: string (JSON) }"),
    ([{"a": 1}, {"a": "x"}, {"a": []}, {"a": 1}, {"a": True}], "{ a?: unknown }"),
    ([{f"word{chr(97 + k)}": k for k in range(50)}], "Record<string, number>"),
    ([{"ann": {"age": 1}, "bob": {"age": 2}}], "Record<string, { age?: number }>"),
    ([{"ann": ["admin"], "bob": []}], "Record<string, string[]>"),
    ([{"ann-marie": 3, "bob": 4}], "Record<string, number>"),
    ([{f"w{a}": 1, f"v{a}": 2} for a in "abcdefgh"], "Record<string, number>"),
    ([{"ok": True, "2026-01-01": 5, "rest": []}], "{ ok?: boolean; rest?: unknown[] }"),
    ([{"same": 1, f"only_{name}": 1} for name in "ab"] + [{"same": 1}] * 4, "{ same?: number }"),
    (["prose"], "text"),
    ([None, [], "x"], "JSON list or text or null, parsed already"),
]


@pytest.mark.parametrize(("results", "expected"), SHAPES)
def test_shapes_are_shown_without_what_is_data(results: list[Any], expected: str) -> None:
    assert told(*(results * 5)[: max(5, len(results))]) == expected


def test_members_are_required_after_ten_results_that_had_them() -> None:
    assert told(*[{"a": 1, "b": 2}] * 9) == "{ a?: number; b?: number }"
    assert told(*[{"a": 1, "b": 2}] * 9, {"a": 1}, {"a": 2}) == "{ a: number; b?: number }"


def test_a_shape_takes_five_results_from_two_executions() -> None:
    learnt = LearntResults("shapes")
    for _ in range(9):
        learnt.observe(deals, {"id": 1}, ANN, "one")
    assert learnt.told(deals, ANN, "python") == "seen in results, not promised: JSON object, parsed already"
    assert learnt.told(deals, ANN, "python", lasting=True) == ""
    learnt.observe(deals, {"id": 1}, ANN, "two")
    assert learnt.told(deals, ANN, "python") == 'seen in results, not promised: {"id": int}'


def test_other_results_widen_and_three_in_a_row_of_another_shape_restart() -> None:
    old, new = {"id": 1, "name": "x"}, {"key": "k", "title": "t", "tags": ["a"]}
    assert told(*[old] * 6, new, new, *[old] * 2) == (
        "{ id?: number; name?: string; key?: string; title?: string; tags?: string[] }"
    )
    assert told(*[old] * 6, new, new, new) == "JSON object, parsed already"
    assert told(*[old] * 6, *[new] * 5) == "{ key?: string; title?: string; tags?: string[] }"


def test_tenants_versions_and_declared_results_are_kept_apart() -> None:
    learnt = learnt_from("prose", level="kinds")
    bob, other = ANN.model_copy(update={"user_id": "bob"}), ANN.model_copy(update={"organization_id": "other"})
    changed = define_tool(name="deals", namespace="crm", description="New.", execute=ask)
    assert [learnt.told(deals, each, "python") != "" for each in (ANN, bob, other)] == [True, False, False]
    assert learnt.told(changed, ANN, "python") == ""
    declared = define_tool(name="deals", namespace="crm", output_schema={"type": "string"}, execute=ask)
    learnt.observe(declared, "text", ANN, "")
    assert len(learnt.tools()) == 1
    learnt.forget("crm.deals", bob)
    assert len(learnt.tools(ANN)) == 1
    learnt.forget("crm.deals")
    assert learnt.tools() == ()


def test_one_tenant_does_not_displace_what_others_have_learnt() -> None:
    learnt = learnt_from("prose", level="kinds")
    bob = ExecutionContext(user_id="bob")
    for number in range(1_010):
        learnt.observe(define_tool(name=f"tool_{number}", execute=ask), 1, bob, "")
    assert len(learnt.tools()) == 1_000
    assert len(learnt.tools(ANN)) == 1


def test_a_file_keeps_it_and_one_that_is_broken_is_an_error_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "learnt.json"
    learnt = LearntResults("shapes", file=file)
    learnt.save()
    assert not file.exists()
    for number in range(12):
        learnt.observe(deals, [{"id": number}] if number < 11 else "x", ANN, str(number))
    learnt.save()
    assert file.stat().st_mode & 0o777 == 0o600
    again = LearntResults("shapes", file=file)
    assert again.tools() == learnt.tools()
    assert again.told(deals, ANN, "python").endswith('list[{"id": int}] | str')
    broken = file.read_text().replace('"id"', '"*/ evil"')
    file.write_text(broken)
    with pytest.raises(ConfigError, match="has no learnt results: LearntResults did not write it; delete it"):
        LearntResults(file=file)
    assert file.read_text() == broken

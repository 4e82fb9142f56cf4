"""What a schema accepts, its type accepts; what a schema refuses, its type refuses. A real compiler is the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.conftest import cases
from tests.declarations.compiler import Verdict, judge, wrong

OWN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))
GIVEN = [
    {
        "id": case["id"],
        "schema": case["input"]["json_schema"],
        "valid": case["expect"]["values_that_must_type_check"],
        "invalid": case["expect"]["values_that_must_not_type_check"],
    }
    for case in cases("js-peers.json", "typegen")
]
TABLE = {case["id"]: case for case in (*GIVEN, *OWN)}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    found = judge(
        [case["schema"] for case in TABLE.values()], [[*case["valid"], *case["invalid"]] for case in TABLE.values()]
    )
    return dict(zip(TABLE, found, strict=True))


@pytest.mark.parametrize("name", TABLE)
def test_a_type_accepts_valid_values_and_no_others(name: str, verdicts: dict[str, Verdict]) -> None:
    case = TABLE[name]
    assert wrong(verdicts[name], [*case["valid"], *case["invalid"]], len(case["valid"])) == {}


@pytest.mark.parametrize("case", [case for case in OWN if case.get("standard", True)], ids=lambda case: case["id"])
def test_the_table_agrees_with_the_validator(case: dict[str, Any]) -> None:
    validator = jsonschema_rs.validator_for(case["schema"], retriever=lambda _: {})
    assert [value for value in case["valid"] if not validator.is_valid(value)] == []
    assert [value for value in case["invalid"] if validator.is_valid(value)] == []

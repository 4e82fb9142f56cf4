"""What a schema accepts, its type accepts; what a schema refuses, its type refuses. A real compiler is the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.conftest import cases
from tests.model.declarations.compiler import judge, wrong

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


def test_a_type_accepts_valid_values_and_no_others() -> None:
    values = [[*case["valid"], *case["invalid"]] for case in TABLE.values()]
    verdicts = judge([case["schema"] for case in TABLE.values()], values)
    misjudged = {
        name: found
        for (name, case), given, verdict in zip(TABLE.items(), values, verdicts, strict=True)
        if (found := wrong(verdict, given, len(case["valid"])))
    }
    assert misjudged == {}


def test_the_table_agrees_with_the_validator() -> None:
    misjudged: dict[str, list[Any]] = {}
    for case in OWN:
        if case.get("standard", True):
            is_valid = jsonschema_rs.validator_for(case["schema"], retriever=lambda _: {}).is_valid
            refused = [value for value in case["valid"] if not is_valid(value)]
            misjudged[case["id"]] = refused + [value for value in case["invalid"] if is_valid(value)]
    assert len(misjudged) > 150
    assert {name: values for name, values in misjudged.items() if values} == {}

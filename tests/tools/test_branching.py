"""A schema of somebody who is not trusted cannot make validation take for ever."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from corral.errors import ToolDefinitionError
from corral.tools.branching import branching_of, depth_of
from corral.tools.documents import DocumentSchema
from corral.tools.problems import SchemaMismatch


def chain(levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    definitions: dict[str, Any] = {
        f"l{level}": {"anyOf": [{"$ref": f"#/$defs/l{level + 1}"}, {"$ref": f"#/$defs/l{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/l0", "$defs": {**definitions, f"l{levels}": {"type": "string"}}}


TREE: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["c"]},
    ]
}


def nested(levels: int, last: object) -> object:
    for _ in range(levels):
        last = {"a": last}
    return last


HOSTILE = [
    (chain(40), {"a": 5}),
    (TREE, nested(100, {})),
    ({"allOf": [{"$anchor": "x"}, {"$ref": "#x"}, {"$ref": "#x"}], **TREE}, nested(60, {})),
    ({"items": {"oneOf": [{"$ref": "#"}, {"$ref": "#"}, {"items": {"$ref": "#"}}]}}, [[[[[[[[[[[[[[5]]]]]]]]]]]]]]),
    ({"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x", "anyOf": [chain(2), {"$ref": "#"}]}}}, nested(9, 5)),
]


@pytest.mark.parametrize(("schema", "value"), HOSTILE)
def test_a_hostile_schema_takes_no_time(schema: dict[str, Any], value: object) -> None:
    started = time.process_time()
    with suppress(SchemaMismatch, ToolDefinitionError):
        DocumentSchema(schema, owner="x", foreign=True).dump(value)
    assert time.process_time() - started < 2, "without a bound it would take days"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": 1}),
        (
            {"oneOf": [{"properties": {"k": {"const": n}, "v": {"type": "string"}}} for n in range(30)]},
            {"k": 3, "v": 4},
        ),
        (
            {
                "$defs": {
                    "node": {
                        "type": "object",
                        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    }
                },
                "$ref": "#/$defs/node",
            },
            {"next": {"next": {"next": {"next": {"next": 5}}}}},
        ),
        (TREE, nested(8, {})),
        ({"type": ["array", "object"], "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}, [[[[[[5]]]]]]),
    ],
)
def test_others_are_held_to_as_ever(schema: dict[str, Any], value: object) -> None:
    with pytest.raises(SchemaMismatch):
        DocumentSchema(schema, owner="x", foreign=True).dump(value)


def test_what_a_host_has_written_is_always_validated() -> None:
    with pytest.raises(SchemaMismatch):
        DocumentSchema(chain(4), owner="x").dump({"a": 5})


def test_what_branches_is_counted() -> None:
    optional: dict[str, Any] = {"anyOf": [{"type": "object", "properties": {}}, {"type": "null"}]}
    assert branching_of({"type": "object", "properties": {"a": optional}}) == (3, 1)
    assert branching_of(chain(3)) == (30, 0)
    assert branching_of(TREE) == (4, 2)
    assert branching_of({"type": "object", "properties": {"$ref": {"type": "string"}, "anyOf": {}}}) == (1, 1)
    assert depth_of({"a": [{"b": 1}], "c": 2}) == 3

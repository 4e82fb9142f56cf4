"""Values that programs write out, held to what a call would accept."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

from corral import Tool, define_tool, tool
from corral.checking.inputs import Inputs
from corral.checking.written import python_arguments, read_python, read_typescript
from corral.programs.syntax import python, typescript

CALL = python.finder("(call) @call")
OBJECT = typescript.finder("(object) @object")


class Line(BaseModel):
    product_id: Annotated[str, Field(pattern=r"^p\d+$")]
    quantity: Annotated[int, Field(ge=1)]


@tool
def order(lines: list[Line], note: Annotated[str, Field(max_length=5)] = "", then: Line | None = None) -> int:
    """Takes texts for numbers, as functions do."""
    return len(lines)


CALLED: list[object] = []


@tool
def judged(n: Annotated[int, AfterValidator(CALLED.append)]) -> int:
    """Validates by code of its own."""
    return n


async def anything(input: Any) -> None: ...


tags = define_tool(
    name="tags",
    description="Takes what its schema says.",
    execute=anything,
    input_schema={
        "properties": {
            "ids": {"type": "array", "maxItems": 2, "uniqueItems": True},
            "tag": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2},
            "n": {"type": "number"},
        },
        "additionalProperties": False,
    },
)
kinds = define_tool(
    name="kinds",
    description="Has bounds that depend on another member.",
    execute=anything,
    input_schema={
        "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}},
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"n": {"maximum": 5}}},
        "else": {"properties": {"n": {"maximum": 50}}},
    },
)


def told(called: Tool[..., Any], written: str) -> list[str]:
    """The flaws of an input in TypeScript, or of the keywords of a call in Python."""
    assert called.input_schema is not None
    if written.startswith("{"):
        given = read_typescript(OBJECT(typescript.parse(f"f({written})".encode()).root_node)["object"][0])
        inputs = Inputs(read_typescript)
    else:
        call = CALL(python.parse(f"f({written})".encode()).root_node)["call"][0]
        given = python_arguments(call, lambda name: None)
        inputs = Inputs(lambda value: read_python(value, lambda name: None))
    return [each.message for each in inputs.flaws(called.input_schema, given, called.input)]


@pytest.mark.parametrize(
    ("called", "typescript", "python", "messages"),
    [
        (
            tags,
            "{ ids: [1, 2, 3], tag: 'A', x: 1 }",
            "ids=[1, 2, 3], tag='A', x=1",
            [
                "The input has no member 'x'",
                "ids: expected at most 2 items, got 3",
                'tag: expected a match of ^[a-z]+$, got string "A"',
                'tag: expected at least 2 characters, got string "A"',
            ],
        ),
        (tags, "{ ids: [a, b, c], tag: 'A b' }", "ids=[a, b, c], tag='A b'", ['tag: expected a match of ^[a-z]+$, got string "A b"']),
        (tags, "{ n: '3' }", "n='3'", ['n is a number, not "3"']),
        (order, "{ lines: [{ product_id: p, quantity: 0 }] }", "lines=[{'product_id': p, 'quantity': 0}]", ["lines[0].quantity: expected at least 1, got number 0"]),
        (order, "{ lines, then: { product_id: p, quantity: 0 } }", "lines=lines, then={'product_id': p, 'quantity': 0}", ["then.quantity: expected at least 1, got number 0"]),
        (order, "{ lines: [{ product_id: 'p1', quantity: '3' }] }", "lines=[{'product_id': 'p1', 'quantity': '3'}]", []),
        (order, "{ lines: [{ product_id: p, quantity: `${n}` }] }", "lines=[{'product_id': p, 'quantity': f'{n}'}]", []),
        (order, "{ lines: [{ product_id: p, quantity: 'two' }] }", "lines=[{'product_id': p, 'quantity': 'two'}]", ['lines[].quantity is an integer, not "two"']),
        (order, "{ lines: [...more, { product_id: p, quantity: 0 }] }", "lines=[*more, {'product_id': p, 'quantity': 0}]", []),
        (order, "{ ...more, note: 'far too long' }", "**more, note='far too long'", ['note: expected at most 5 characters, got string "far too long"']),
        (kinds, "{ kind: 'a', n: 30 }", "kind='a', n=30", ["n: expected at most 5, got number 30"]),
        (kinds, "{ kind, n: 30 }", "kind=kind, n=30", []),
        (judged, "{ n: 5 }", "n=5", []),
    ],
)  # fmt: skip
def test_what_is_written_out_is_validated_as_a_call_would(
    called: Tool[..., Any], typescript: str, python: str, messages: list[str]
) -> None:
    assert (set(told(called, typescript)), set(told(called, python))) == (set(messages), set(messages))
    assert CALLED == []

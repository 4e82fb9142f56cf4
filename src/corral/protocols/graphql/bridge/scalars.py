"""Scalars that GraphQL itself does not have."""

from __future__ import annotations

from typing import Any

from graphql import GraphQLError, GraphQLScalarType, IntValueNode, StringValueNode, ValueNode

_SAFE_INTEGER = 2**53 - 1
_MOST_DIGITS = 4_300


def _integer(value: Any) -> int:
    match value:
        case bool():
            pass
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if len(value) <= _MOST_DIGITS and value.removeprefix("-").isdecimal():
            return int(value)
        case _:
            pass
    raise GraphQLError(f"BigInt cannot represent {str(value)[:50]!r}: it is not an integer")


def _integer_literal(node: ValueNode) -> int:
    if isinstance(node, IntValueNode | StringValueNode):
        return _integer(node.value)
    raise GraphQLError("BigInt takes an integer, or a string of its digits", node)


def _output(value: Any) -> int | str:
    number = _integer(value)
    return number if -_SAFE_INTEGER <= number <= _SAFE_INTEGER else str(number)


BIG_INT = GraphQLScalarType(
    "BigInt",
    description="Integer of any size. In results it is a number up to 2^53 - 1, and a string beyond.",
    coerce_output_value=_output,
    coerce_input_value=_integer,
    coerce_input_literal=_integer_literal,
)
JSON = GraphQLScalarType("JSON", description="Any JSON value.")

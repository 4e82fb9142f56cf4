"""Converts JSON values to shapes that accept only that value, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import cast

from corral.model.shapes.algebra import union
from corral.model.shapes.names import string_literal
from corral.model.shapes.shape import (
    NEVER,
    NULL,
    NUMBER,
    UNKNOWN,
    Array,
    Constant,
    Definition,
    Object,
    Property,
    Shape,
    TypeReference,
)
from corral.model.shapes.traits import members_of

_MAX_LEVELS = 60


def constants(values: Iterable[object], *, integers: bool = False) -> Shape:
    """Returns the shape of constant values. With `integers`, numbers with a fraction are ignored."""
    fitting = (each for each in values if not (integers and isinstance(each, float) and not each.is_integer()))
    return union(_constant(each, _MAX_LEVELS) for each in fitting)


def strings_of(shape: Shape) -> list[str] | None:
    """Returns the strings that a shape consists of; None if it accepts anything else."""
    match shape:
        case TypeReference(definition=Definition(shape=target)) if target:
            shape = target
        case _:
            pass
    strings: list[str] = []
    for member in members_of(shape):
        if not (isinstance(member, Constant) and member.kind == "string"):
            return [] if member == NEVER else None
        strings.append(json.loads(member.text))
    return strings


def _constant(value: object, levels: int) -> Shape:
    match value:
        case _ if levels == 0:
            return UNKNOWN
        case None:
            return NULL
        case bool():
            return Constant("boolean", "true" if value else "false")
        case str():
            return Constant("string", string_literal(value))
        case int() | float():
            return Constant("number", _number(value)) if math.isfinite(value) else NUMBER
        case dict():
            members = cast("dict[str, object]", value).items()
            properties = (Property(name, _constant(each, levels - 1), required=True) for name, each in members)
            return Object(tuple(properties), additional=NEVER)
        case list():
            items = cast("list[object]", value)
            return Array(tuple(_constant(each, levels - 1) for each in items), NEVER, len(items), len(items))
        case _:
            return UNKNOWN


def _number(value: float) -> str:
    is_integer = isinstance(value, int) or (value.is_integer() and abs(value) < 1e21)
    return str(int(value)) if is_integer else repr(value)

"""What tools return, as plain data.

Plain data is containers of the standard library, numbers, strings, bytes, None, and leaves that a bridge writes as
text: dates, times, Decimal, UUID, Enum, Path, URLs, addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from pydantic import TypeAdapter

from corral.tools.problems import Problem, SchemaMismatch

__all__ = ["listed", "plain", "plain_container"]

_dump = TypeAdapter[object](Any).serializer.to_python


def plain(value: object) -> object:
    """Models and dataclasses become dicts, iterators lists. Raises SchemaMismatch for what is not data."""
    return listed(_dump(value, by_alias=True, fallback=plain_container))


def plain_container(value: object) -> object:
    """For values that no serializer of pydantic knows: custom containers as plain ones, or else SchemaMismatch."""
    match value:
        case memoryview():
            return bytes(cast("memoryview[int]", value))
        case Mapping():
            return dict(cast("Mapping[object, object]", value))
        case Sequence() | AbstractSet():
            return list(cast("Sequence[object]", value))
        case _:
            raise SchemaMismatch([Problem((), f"contains a value of type {type(value).__name__}, which is not data")])


def listed(data: object) -> object:
    """Reads out an iterator, which pydantic leaves lazy."""
    return list(cast("Iterator[object]", data)) if isinstance(data, Iterator) else data

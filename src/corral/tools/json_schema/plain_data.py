"""Converts results of tools to plain data.

Plain data consists of containers of the standard library, numbers, strings, bytes, None, and leaves that bridges write
as strings: dates, times, Decimal, UUID, Enum, Path, URLs, addresses. Values of numpy, pandas, PIL and matplotlib are
converted as they are in programs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import from_json, to_jsonable_python

from corral.concurrency.garbage import gc_disabled
from corral.guest.python.values import is_science, unwrapped
from corral.tools.json_schema.problems import Path, Problem, SchemaMismatch

_MOST_JSON_CHARS = 4_000_000
"""Maximum length of texts that are parsed. Unless its limits are raised, a program receives no more bytes than that."""

_MOST_SEARCHED = 10_000
"""Maximum number of parts of a result that are searched for one that is not data."""

_dump = TypeAdapter[object](Any).serializer.to_python


def to_plain_data(value: object) -> object:
    """Converts models and dataclasses to dicts, iterators to lists. Raises SchemaMismatch if a part is not data."""
    with gc_disabled():
        try:
            return read_iterator(_dump(value, by_alias=True, fallback=to_plain_container))
        except _NotPlain as error:
            raise error.located(value) from None


class _NotPlain(SchemaMismatch):
    """A result contains a value that is not data."""

    def __init__(self, value: object, path: Path = ()) -> None:
        self.value = value
        kind = type(value)
        name = kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
        super().__init__([Problem(path, f"a value of type {name} is not data; return its contents instead")])

    def located(self, result: object) -> _NotPlain:
        """Returns the error with the path of the value in a result, if that can be found."""
        left = _MOST_SEARCHED
        level: list[tuple[Path, object]] = [((), result)]
        while level and left > 0:
            deeper: list[tuple[Path, object]] = []
            for path, each in level:
                if each is self.value:
                    return _NotPlain(self.value, path)
                members = list(islice(_members(each), left))
                left -= len(members)
                deeper += [((*path, step), member) for step, member in members]
            level = deeper
        return self


def _members(value: object) -> Iterator[tuple[str | int, object]]:
    """Yields the parts of a container, a dataclass or a model, with their names or indexes."""
    match value:
        case Mapping():
            for key, each in cast("Mapping[object, object]", value).items():
                yield str(key), each
        case str() | bytes() | bytearray():
            return
        case Sequence():
            yield from enumerate(cast("Sequence[object]", value))
        case _:
            for name, each in getattr(value, "__dict__", {}).items():
                yield str(name), each


def to_plain_container(value: object) -> object:
    """Converts custom containers, which pydantic cannot serialize, to plain ones. Raises SchemaMismatch."""
    match value:
        case memoryview():
            return bytes(cast("memoryview[int]", value))
        case Mapping():
            return dict(cast("Mapping[object, object]", value))
        case Sequence() | AbstractSet():
            return list(cast("Sequence[object]", value))
        case _ if is_science(value):
            try:
                content = unwrapped(value)
            except ValueError as error:
                raise SchemaMismatch([Problem((), f"has {error}")]) from None
            if content is value:
                raise _NotPlain(value)
            return content
        case _:
            raise _NotPlain(value)


def read_iterator(data: object) -> object:
    """Reads all items of an iterator, which pydantic would leave lazy."""
    if not hasattr(type(data), "__next__"):  # faster than an `isinstance` of the abstract class
        return data
    return list(cast("Iterator[object]", data)) if isinstance(data, Iterator) else data


def to_program_data(data: object) -> object:
    """Converts plain data for programs: arrays to lists, keys and leaves such as dates to strings. Bytes stay bytes.

    Raises pydantic's errors for leaves that JSON lacks.
    """
    match data:
        case None | bool() | int() | float() | bytes() | bytearray() if not isinstance(data, Enum):
            return data
        case dict():
            return {_key(key): to_program_data(each) for key, each in cast("dict[object, object]", data).items()}
        case list() | tuple() | set() | frozenset():
            return [to_program_data(each) for each in cast("Collection[object]", data)]
        case _:
            return to_jsonable_python(data)


def _key(key: object) -> str:
    [text] = cast("dict[str, object]", to_jsonable_python({key: None}))
    return text


def json_value(text: str) -> object:
    """Parses a text that is JSON. Returns any other text unchanged.

    Numbers are only parsed if writing them gives the same text: "007", "1.50" and numbers beyond floats stay strings.
    """
    if len(text) > _MOST_JSON_CHARS:
        return text
    try:
        value: Any = from_json(text, allow_inf_nan=False)
        return text if isinstance(value, int | float) and json.dumps(value) != text.strip() else value
    except (ValueError, TypeError):  # TypeError: for lone surrogates
        return text

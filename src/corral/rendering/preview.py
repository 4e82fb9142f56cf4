"""Shortens values for models: valid JSON with the first parts, and counts of the omitted ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from reprlib import Repr
from typing import Any, TypeVar, cast

from pydantic_core import to_json

T = TypeVar("T")

_MARKER_CHARS = 40
"""Characters of a marker such as "… 123 more items", with its quotes and comma."""
_DEEPEST = 100
_MOST_COPIED = 20_000
_MOST_BITS = 4_096
_PLAIN = frozenset((str, int, float, bool, type(None)))
_LEAST_MEMBER = 5
"""Minimum characters of an object's member: a name in quotes, a colon, a value and a comma."""


def preview(value: Any, max_chars: int) -> Any:
    """Returns `value` itself if its JSON has at most `max_chars` characters, else a copy of roughly that size.

    Lists keep their first items and end with a text that counts the rest; objects keep their first members; long texts
    keep head and tail. Never raises. The value is encoded once, in C; the time for everything else depends only on
    `max_chars`.
    """
    try:
        size = len(_written(value))
    except Exception:  # its parts could not be encoded either
        value = _tame(value, 0, _Room())
        size = _size(value)
    return value if size <= max_chars else _Shortening().shortened(value, max_chars)


def preview_json(value: Any, max_chars: int) -> str:
    """Returns the preview as JSON text."""
    return json_text(preview(value, max_chars))


def preview_text(text: str, max_chars: int, *, tail: int | None = None) -> str:
    """Returns `text` itself, or its start and end around a count of the omitted characters. By default a third is
    end."""
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - _MARKER_CHARS)
    tail = room // 3 if tail is None else min(tail, room)
    head = room - tail
    return f"{text[:head]}… {len(text) - head - tail} of {len(text)} characters left out …{text[len(text) - tail :]}"


class _Short(Repr):
    """Formats values in a few characters, whatever their size."""

    maxlevel, maxdict, maxlist, maxtuple, maxset, maxstring, maxother = 2, 4, 4, 4, 4, 60, 60
    maxfrozenset = 4

    def repr_bytes(self, value: bytes, level: int) -> str:  # noqa: ARG002
        return f"<{len(value)} bytes>"


_short = _Short()


def short_repr(value: object) -> str:
    """Returns a short `repr` of a dataclass: only fields that differ from their defaults, a few characters each."""
    shown: list[str] = []
    for field in fields(cast("Any", value)):
        current: Any = getattr(value, field.name)
        is_plain = isinstance(current, str | int | float | tuple | frozenset)
        if field.repr and current is not field.default and not (is_plain and current == field.default):
            many = cast("tuple[object, ...]", current) if isinstance(current, tuple) else ()
            text = f"<{len(many)}>" if many and is_dataclass(many[0]) else _short.repr(current)
            shown.append(f"{field.name}={text}")
    return f"{type(value).__name__}({', '.join(shown)})"


class _Shortening:
    """Creates one preview. Remembers the sizes of values at any depth."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, int, bool]] = {}
        """By the value's identity: the value, a lower bound of its length, and whether that is exact."""

    def shortened(self, value: Any, max_chars: int) -> Any:
        match value:
            case str():
                return preview_text(value, max_chars - 2)
            case list() | tuple():
                return self._list(cast("list[Any]", value), max_chars)
            case dict():
                return self._members(cast("dict[Any, Any]", value), max_chars)
            case bytes() | bytearray():
                return f"… {len(value)} bytes"
            case _:
                return preview_text(json_text(value), max_chars - 2)

    def _fitting(self, value: Any, max_chars: int) -> Any:
        return value if self._size(value, max_chars) <= max_chars else self.shortened(value, max_chars)

    def _list(self, items: list[Any], max_chars: int) -> list[Any]:
        room = max_chars - _MARKER_CHARS - 2
        result: list[Any] = []
        for item in items:
            size = self._size(item, room) + 1
            if size > room:
                break
            result.append(item)
            room -= size
        if not result and room > _MARKER_CHARS and items:
            result.append(self._fitting(items[0], room))
        missing = len(items) - len(result)
        return [*result, f"… {missing} more item{'s' if missing != 1 else ''}"] if missing else result

    def _members(self, record: dict[Any, Any], max_chars: int) -> dict[Any, Any]:
        """Keeps small members whole, and divides the remaining room among large ones. Counts omitted members."""
        room = max_chars - _MARKER_CHARS - 2
        share = room // max(1, len(record))
        most = max(room // _LEAST_MEMBER, 0) + 1
        sizes = {key: self._member(key, member, share) for key, member in islice(record.items(), most)}
        small = [size for size in sizes.values() if size <= share]
        each = max((room - sum(small)) // max(1, len(record) - len(small)), _MARKER_CHARS)
        result: dict[Any, Any] = {}
        for key, size in sizes.items():
            member = record[key]
            shown = member if size <= share else self._fitting(member, each - len(text_of(key)) - 4)
            room -= self._member(key, shown, max_chars)
            if room < 0 and result:
                break
            result[key] = shown
        missing = len(record) - len(result)
        return result | {"…": f"{missing} more member{'s' if missing != 1 else ''}"} if missing else result

    def _member(self, key: object, member: Any, most: int) -> int:
        named = len(text_of(key)) + 4
        return named + self._size(member, most - named)

    def _size(self, value: Any, most: int) -> int:
        """Returns the length of the value's JSON if it is at most `most`, else any greater number."""
        if type(value) is str and len(value) > most:
            return len(value)
        if type(value) in _PLAIN:
            return _size(value)
        _, least, exact = self._known.get(id(value), (value, 0, False))
        if not exact and least <= most:
            least = self._measured(value, most)
            self._known[id(value)] = value, least, least <= most
        return least

    def _measured(self, value: Any, most: int) -> int:
        total = 2
        match value:
            case dict():
                for key, member in cast("dict[Any, Any]", value).items():
                    total += _size({key: 0}) - 2  # with a colon, and a comma in place of the value
                    total += self._size(member, most + 1 - total)
                    if total > most + 1:
                        break
            case list() | tuple():
                for item in cast("list[Any]", value):
                    total += 1 + self._size(item, most - total)
                    if total > most + 1:
                        break
            case _:
                return _size(value)
        return total if total == 2 else total - 1


def _size(value: Any) -> int:
    return len(json_text(value))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Encodes any value as JSON: bytes as base64, NaN and the infinities as strings, lone surrogates replaced. Never
    raises."""
    try:
        return _written(value, indent)
    except Exception:  # a lone surrogate, a cycle, excessive depth, or a host object that raises
        return _written(_tame(value, 0, _Room()), indent)


def _written(value: Any, indent: int | None = None) -> str:
    return to_json(value, indent=indent, bytes_mode="base64", inf_nan_mode="strings", fallback=text_of).decode()


def text_of(value: object) -> str:
    """Returns `str(value)`, or the value's type if that raises."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:
        return f"[{type(value).__name__}]"


@dataclass
class _Room:
    """Number of values that the copy can still take."""

    left: int = _MOST_COPIED


def _tame(value: Any, depth: int, room: _Room) -> Any:
    """Returns a copy that can be encoded as JSON. An ellipsis replaces values that are too deep or too many."""
    room.left -= 1
    if depth > _DEEPEST or room.left < 0:
        return "…"
    match value:
        case None | bool() | float() | bytes() | bytearray():
            return value
        case int():
            return value if value.bit_length() <= _MOST_BITS else f"[integer of {value.bit_length()} bits]"
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case _:
            pass
    try:
        match value:
            case dict():
                return {
                    text_of(key): _tame(member, depth + 1, room)
                    for key, member in _while_room(cast("dict[Any, Any]", value).items(), room)
                }
            case list() | tuple() | set() | frozenset():
                items = cast("list[Any]", value)
                copied = [_tame(item, depth + 1, room) for item in _while_room(items, room)]
                return copied + ["…"] * min(len(items) - len(copied), _MOST_COPIED)
            case _:
                return _tame_object(cast("object", value), depth, room)
    except Exception:
        kind = type(cast("object", value)).__name__
        return f"[{kind}]"


def _while_room(items: Iterable[T], room: _Room) -> Iterator[T]:
    for item in items:
        if room.left < 0:
            break
        yield item


def _tame_object(value: object, depth: int, room: _Room) -> Any:
    if is_dataclass(value):
        return {field.name: _tame(getattr(value, field.name), depth + 1, room) for field in fields(value)}
    return text_of(value)

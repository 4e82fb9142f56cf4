"""Values shortened for a model's eyes: valid JSON, the first parts kept, what is missing counted."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, cast

from pydantic_core import to_json

__all__ = ["json_text", "preview", "preview_json", "preview_text"]

_MARKER_CHARS = 40
"""Room for one "… 123 more items" with its quotes and comma."""


def preview(value: Any, max_chars: int) -> Any:
    """`value` itself if its JSON has at most `max_chars` characters, else a copy that fits, roughly.

    Lists keep their first items and end with a text that counts the rest; objects keep their first members; long texts
    keep head and tail.
    """
    if _size(value) <= max_chars:
        return value
    match value:
        case str():
            return preview_text(value, max_chars - 2)
        case list() | tuple():
            return _list(cast("list[Any]", value), max_chars)
        case dict():
            return _members(cast("dict[Any, Any]", value), max_chars)
        case bytes() | bytearray():
            return f"… {len(value)} bytes"
        case _:
            return preview_text(json_text(value), max_chars - 2)


def preview_json(value: Any, max_chars: int) -> str:
    """The preview as JSON text."""
    return json_text(preview(value, max_chars))


def preview_text(text: str, max_chars: int) -> str:
    """`text` itself, or its head and tail around a count of what is missing."""
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - _MARKER_CHARS)
    head, tail = room - room // 3, room // 3
    return f"{text[:head]}… {len(text) - head - tail} of {len(text)} characters left out …{text[len(text) - tail :]}"


def _list(items: list[Any], max_chars: int) -> list[Any]:
    room = max_chars - _MARKER_CHARS - 2
    kept: list[Any] = []
    for item in items:
        size = _size(item) + 1
        if size > room:
            break
        kept.append(item)
        room -= size
    if not kept and room > _MARKER_CHARS and items:
        kept.append(preview(items[0], room))
    missing = len(items) - len(kept)
    return [*kept, f"… {missing} more item{'s' if missing != 1 else ''}"] if missing else kept


def _members(record: dict[Any, Any], max_chars: int) -> dict[Any, Any]:
    """Small members whole, large ones sharing what room is left; over that, a count of the members left out."""
    sizes = {key: len(str(key)) + 4 + _size(member) for key, member in record.items()}
    room = max_chars - _MARKER_CHARS - 2
    share = room // max(1, len(record))
    spare = room - sum(size for size in sizes.values() if size <= share)
    large = sum(size > share for size in sizes.values())
    each = max(spare // max(1, large), _MARKER_CHARS)
    kept: dict[Any, Any] = {}
    for key, member in record.items():
        shown = member if sizes[key] <= share else preview(member, each - len(str(key)) - 4)
        room -= len(str(key)) + 4 + _size(shown)
        if room < 0 and kept:
            break
        kept[key] = shown
    missing = len(record) - len(kept)
    return kept | {"…": f"{missing} more member{'s' if missing != 1 else ''}"} if missing else kept


def _size(value: Any) -> int:
    return len(json_text(value))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Any value as JSON: bytes as base64, NaN and the infinities as strings, lone surrogates replaced."""
    try:
        return to_json(value, indent=indent, bytes_mode="base64", inf_nan_mode="strings", fallback=str).decode()
    except ValueError:  # a lone surrogate, which only a host's own value can hold
        return json_text(_well_formed(value), indent=indent)


def _well_formed(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            members = cast("dict[Any, Any]", value)
            return {_well_formed(key): _well_formed(member) for key, member in members.items()}
        case list() | tuple():
            return [_well_formed(item) for item in cast("list[Any]", value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _well_formed(getattr(value, field.name)) for field in fields(value)}
        case None | bool() | int() | float() | bytes() | bytearray():
            return value
        case _:
            return _well_formed(str(value))

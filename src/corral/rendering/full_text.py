"""Complete text of a value for a person who approves a call, without characters that hide or imitate others."""

from __future__ import annotations

import base64
import json
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel, RootModel, TypeAdapter
from pydantic_core import to_jsonable_python

from corral.errors import ApprovalDenied

_LINE_CHARS = 80
_LONG_CHARS = 200
"""Minimum characters of members that are listed apart from short ones, which they would push out of sight."""
_DEEPEST = 50
_MOST_SPACES = 8
"""Maximum consecutive spaces. More could push text so far that it looks like another line."""
_MOST_MARKS = 2
"""Maximum combining marks on a letter. More could be drawn over adjacent lines."""
_BLANK = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0000, 0xE0FFF),
)
"""Characters that count as printable but are invisible: Unicode's `Default_Ignorable_Code_Point`, and the blank Braille
pattern."""
_BLANK_STARTS = [first for first, _ in _BLANK]


def full_text(value: object, most_chars: int, *, long_first: bool = False) -> str:
    """Formats the whole value as JSON, one member per line unless it fits on one.

    Models and dataclasses are shown with all fields, even those that pydantic excludes from dumps, under their names in
    Python. Pydantic's secrets stay masked. Long members follow short ones; `long_first` reverses this, for output whose
    end is certain to be seen.

    Raises:
        ApprovalDenied: the text has more than `most_chars`, or the value has parts that cannot be shown.
    """
    text = _Writer(most_chars, long_first).text(value, 0)
    if len(text) > most_chars:
        raise _too_long(most_chars)
    return text


def escape_hidden(text: str) -> str:
    """Makes `text` one line: escapes characters that control a terminal, end or reorder lines, or are invisible."""
    if text.isascii() and text.isprintable() and " " * (_MOST_SPACES + 1) not in text:
        return text
    parts: list[str] = []
    base, spaces, marks = "", 0, 0
    for each in text:
        spaces = spaces + 1 if each == " " else 0
        if not each.isascii() and unicodedata.category(each) in ("Mn", "Me"):
            marks += 1
        else:
            base, marks = each, 0
        hides = not each.isprintable() or _is_blank(each) or spaces > _MOST_SPACES
        if hides or marks > _MOST_MARKS or (marks and not base.isalnum()):
            each = f"\\u{{{ord(each):x}}}"
        parts.append(each)
    return "".join(parts)


def _is_blank(character: str) -> bool:
    place = bisect_right(_BLANK_STARTS, ord(character)) - 1
    return place >= 0 and ord(character) <= _BLANK[place][1]


def _too_long(most_chars: int) -> ApprovalDenied:
    return ApprovalDenied(
        f"its input takes more than {most_chars:,} characters to show, and a person has to see all of it; "
        "pass less in one call"
    )


class _Writer:
    """Formats one value, and stops as soon as the text is too long."""

    def __init__(self, most_chars: int, long_first: bool) -> None:
        self._most = most_chars
        self._left = most_chars
        self._long_first = long_first

    def text(self, value: object, depth: int) -> str:
        if depth > _DEEPEST:
            raise ApprovalDenied(f"its input is nested more than {_DEEPEST} deep, which cannot be shown to a person")
        if (members := _members_of(value)) is not None:
            self._take(2)
            parts = [f"{self.text(key, depth + 1)}: {self.text(member, depth + 1)}" for key, member in members]
            if not _fits(parts):
                parts.sort(key=lambda part: (len(part) > _LONG_CHARS) is not self._long_first)
            return _bracketed("{}", parts)
        if (items := _items_of(value)) is not None:
            self._take(2)
            return _bracketed("[]", [self.text(item, depth + 1) for item in items])
        return self._leaf(value, depth)

    def _take(self, chars: int) -> None:
        self._require(chars)
        self._left -= chars

    def _require(self, chars: float) -> None:
        if chars > self._left:
            raise _too_long(self._most)

    def _leaf(self, value: Any, depth: int) -> str:
        match value:
            case Enum():
                return self.text(cast("object", value.value), depth + 1)
            case None | bool():
                text = json.dumps(value)
            case int():
                self._require(value.bit_length() / 4)  # checked first, because formatting is slow
                text = int.__repr__(value)
            case float():
                text = float.__repr__(value)
            case str():
                self._require(len(value))
                text = escape_hidden(json.dumps(str.__str__(value), ensure_ascii=False))
            case bytes() | bytearray():
                self._require(len(value))
                text = f'"{base64.b64encode(value).decode()}"'
            case _:
                return self.text(_as_data(value), depth + 1)
        self._take(len(text))
        return text


def _fits(parts: Sequence[str]) -> bool:
    """True if the parts fit on one line and contain no right-to-left text, which would reorder the line."""
    return sum(map(len, parts)) + 2 * len(parts) <= _LINE_CHARS and all(
        part.isascii() and "\n" not in part for part in parts
    )


def _bracketed(brackets: str, parts: Sequence[str]) -> str:
    first, last = brackets
    if _fits(parts):
        return f"{first}{', '.join(parts)}{last}"
    inner = ",\n".join(parts).replace("\n", "\n  ")  # line ends inside texts are escaped
    return f"{first}\n  {inner}\n{last}"


def _members_of(value: Any) -> Iterable[tuple[object, object]] | None:
    """Returns the names and values of an object's members; None if the value is not an object."""
    match value:
        case RootModel():
            return None
        case BaseModel():
            own, extra = value.__dict__, value.__pydantic_extra__ or {}
            if own.keys() & extra.keys():
                raise ApprovalDenied("its input has two members with the same name, which a person cannot tell apart")
            return [*own.items(), *extra.items()]
        case Mapping():
            return cast("Mapping[object, object]", value).items()
        case tuple() if hasattr(cast("object", value), "_fields"):
            return zip(cast("Any", value)._fields, cast("Iterable[object]", value), strict=True)
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if hasattr(value, field.name)]
            further = [name for name in getattr(value, "__dict__", {}) if name not in names and name[0] != "_"]
            return [(name, getattr(value, name)) for name in (*names, *further)]
        case _:
            return None


def _items_of(value: Any) -> Iterable[object] | None:
    match value:
        case str() | bytes() | bytearray():
            return None
        case Sequence() | AbstractSet():
            return cast("Iterable[object]", value)
        case _:
            return None


def _as_data(value: Any) -> object:
    """Returns the JSON form of a value of another type.

    Raises:
        ApprovalDenied: the value has no JSON form.
    """
    if isinstance(value, RootModel):
        return cast("RootModel[Any]", value).root
    data: object = value
    kind = cast("type[Any]", type(value))
    if not isinstance(value, Iterator):  # reading it would exhaust it for the tool
        try:
            data = to_jsonable_python(value)
        except Exception:
            try:
                data = _adapter(kind).dump_python(value, mode="json", warnings="none")
            except Exception:
                data = value
    if data is value:
        raise ApprovalDenied(f"its input has a value of type {kind.__name__}, which cannot be shown to a person")
    return data


@lru_cache(maxsize=100)
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)

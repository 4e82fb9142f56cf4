"""Complete text of a value for a person who approves a call, with nothing in it that hides or imitates."""

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
"""Of a member that is set apart from the short ones, so that it does not push them out of sight."""
_DEEPEST = 50
_MOST_SPACES = 8
"""In a row. More of them could pad a line so that what follows looks like a line of its own."""
_MOST_MARKS = 2
"""On one letter. More of them could be drawn over the lines around it."""
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
"""Characters that count as printable and leave nothing to be seen: Unicode's `Default_Ignorable_Code_Point`, and the
empty pattern of Braille."""
_BLANK_STARTS = [first for first, _ in _BLANK]


def full_text(value: object, most_chars: int, *, long_first: bool = False) -> str:
    """The whole value as JSON, one member a line where it does not fit on one.

    Models and dataclasses are shown with all fields, under the names that the tool reads them by, also those that
    pydantic would leave out of a dump. Secrets of pydantic stay masked. Long members stand behind the short ones; with
    `long_first` before them, for where the end is what is surely seen.

    Raises:
        ApprovalDenied: it takes more than `most_chars`, or holds what cannot be shown.
    """
    text = _Writer(most_chars, long_first).text(value, 0)
    if len(text) > most_chars:
        raise _too_long(most_chars)
    return text


def escape_hidden(text: str) -> str:
    """One line of `text`: escapes for all that drives a terminal, ends a line, reorders it, or is not seen."""
    if text.isascii() and text.isprintable() and " " * (_MOST_SPACES + 1) not in text:
        return text
    written: list[str] = []
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
        written.append(each)
    return "".join(written)


def _is_blank(character: str) -> bool:
    place = bisect_right(_BLANK_STARTS, ord(character)) - 1
    return place >= 0 and ord(character) <= _BLANK[place][1]


def _too_long(most_chars: int) -> ApprovalDenied:
    return ApprovalDenied(
        f"its input takes more than {most_chars:,} characters to show, and nobody can approve what they have not seen; "
        "pass less in one call"
    )


class _Writer:
    """Writes one value, and stops as soon as it takes too much room."""

    def __init__(self, most_chars: int, long_first: bool) -> None:
        self._most = most_chars
        self._left = most_chars
        self._long_first = long_first

    def text(self, value: object, depth: int) -> str:
        if depth > _DEEPEST:
            raise ApprovalDenied(f"its input is nested more than {_DEEPEST} deep, which nobody can be shown")
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
                self._require(value.bit_length() / 4)  # before it is written, which takes time
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
    """True if they can stand on one line, where those that are written from right to left would change places."""
    return sum(map(len, parts)) + 2 * len(parts) <= _LINE_CHARS and all(
        part.isascii() and "\n" not in part for part in parts
    )


def _bracketed(brackets: str, parts: Sequence[str]) -> str:
    first, last = brackets
    if _fits(parts):
        return f"{first}{', '.join(parts)}{last}"
    inner = ",\n".join(parts).replace("\n", "\n  ")  # no text has a line end of its own
    return f"{first}\n  {inner}\n{last}"


def _members_of(value: Any) -> Iterable[tuple[object, object]] | None:
    """Names and values of what is an object, or None."""
    match value:
        case RootModel():
            return None
        case BaseModel():
            own, extra = value.__dict__, value.__pydantic_extra__ or {}
            if own.keys() & extra.keys():
                raise ApprovalDenied("its input has two members of one name, which nobody can tell apart")
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
    """The JSON value of a value of some other type.

    Raises:
        ApprovalDenied: nobody knows that.
    """
    if isinstance(value, RootModel):
        return cast("RootModel[Any]", value).root
    data: object = value
    kind = cast("type[Any]", type(value))
    if not isinstance(value, Iterator):  # reading it would leave nothing for the tool
        try:
            data = to_jsonable_python(value)
        except Exception:
            try:
                data = _adapter(kind).dump_python(value, mode="json", warnings="none")
            except Exception:
                data = value
    if data is value:
        raise ApprovalDenied(f"its input has a value of type {kind.__name__}, which nobody can be shown")
    return data


@lru_cache(maxsize=100)
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)

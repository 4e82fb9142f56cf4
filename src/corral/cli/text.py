"""Formats text for terminals: width, truncation, control characters."""

from __future__ import annotations

import re
import unicodedata

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def counted(number: int, what: str) -> str:
    """Formats a number of things; `what` is the singular."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Escapes control characters other than tabs and newlines."""
    return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


def width(text: str) -> int:
    """Returns the terminal columns of one line without tabs."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def fitted(text: str, columns: int) -> str:
    """Returns `text`, cut to fit with an ellipsis."""
    used = 0
    room_ends = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used < columns:
            room_ends = index + 1
        elif used > columns:
            return f"{text[:room_ends]}…"
    return text


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1

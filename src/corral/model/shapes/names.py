"""Spells names and constants safely, whatever they contain."""

from __future__ import annotations

import json
from collections.abc import Collection


def pascal_case(name: str, taken: Collection[str] = ()) -> str:
    """Makes a type name: `foo-bar` becomes `FooBar`; if `Date` is taken, it becomes `DateType`."""
    words = "".join(character if ("a" + character).isidentifier() and character != "_" else " " for character in name)
    joined = "".join(word[:1].upper() + word[1:] for word in words.split())
    if not joined.isidentifier():
        joined = f"Type{joined}"
    return f"{joined}Type" if joined in taken else joined


def string_literal(text: str) -> str:
    """Returns a string literal. Invisible characters are escaped."""
    return "".join(_visible(character) for character in json.dumps(text, ensure_ascii=False))


def json_literal(value: object) -> str | None:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))

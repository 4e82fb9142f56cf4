"""What a schema tells its reader: what its type cannot say."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import pairwise

from corral.declarations.documents import listing, mapping
from corral.declarations.names import json_text
from corral.declarations.shapes import Doc

__all__ = ["describe", "printable", "text_lines"]

_MAX_TAG_CHARACTERS = 200

_TEXT_TAGS = ("format", "pattern", "contentEncoding", "contentMediaType")
_NUMBER_TAGS = (
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
_LENGTH_TAGS = ("minItems", "maxItems")
"""The type of a tuple says these already."""
_FLAG_TAGS = ("uniqueItems", "deprecated")


def describe(schema: object, name: str) -> Doc:
    """What the schema of something of that name tells its reader. A title counts if it says more than the name."""
    keywords = _value_keywords(mapping(schema)) | mapping(schema)
    text = keywords.get("description")
    if not isinstance(text, str) or not text.strip():
        title = keywords.get("title")
        text = title if isinstance(title, str) and _letters(title) != _letters(name) else ""
    return Doc("\n".join((text, *_choices(keywords))), tuple(_tags(keywords)), _default(keywords))


def text_lines(text: str) -> list[str]:
    """The lines of a text, all of it visible, without blank ones around it or next to each other."""
    lines = [printable(line).rstrip() for line in inspect.cleandoc(text).splitlines()]
    return [line for before, line in pairwise(["", *lines]) if line or before]


def printable(text: str) -> str:
    """The text on one line, with a space for whatever cannot be seen."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def _value_keywords(keywords: dict[str, object]) -> dict[str, object]:
    """The keywords of the other branch where a schema is a choice between null and something."""
    for keyword in ("anyOf", "oneOf"):
        branches = [mapping(branch) for branch in listing(keywords.get(keyword))]
        others = [branch for branch in branches if branch.get("type") != "null"]
        if len(branches) == 2 and len(others) == 1:
            return others[0]
    return {}


def _choices(keywords: dict[str, object]) -> list[str]:
    """A line for each constant of a choice that has a description of its own."""
    lines: list[str] = []
    for branch in (*listing(keywords.get("oneOf")), *listing(keywords.get("anyOf"))):
        match mapping(branch):
            case {"const": value, "description": str() as text}:
                lines.append(f"- {json_text(value)}: {' '.join(text.split())}")
            case _:
                pass
    return lines


def _tags(keywords: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name in _TEXT_TAGS:
        value = keywords.get(name)
        yield from _tag(name, value if isinstance(value, str) else None)
    is_tuple = "prefixItems" in keywords or isinstance(keywords.get("items"), list)
    for name in _NUMBER_TAGS:
        value = None if is_tuple and name in _LENGTH_TAGS else keywords.get(name)
        yield from _tag(name, json_text(value) if isinstance(value, int | float) else None)
    for name in _FLAG_TAGS:
        if keywords.get(name) is True:
            yield name, ""


def _default(keywords: dict[str, object]) -> str | None:
    text = json_text(keywords["default"]) if "default" in keywords else None
    return text if text and len(text) <= _MAX_TAG_CHARACTERS else None


def _tag(name: str, text: str | None) -> Iterator[tuple[str, str]]:
    if text and not text.isspace() and len(text) <= _MAX_TAG_CHARACTERS:
        yield name, text


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()

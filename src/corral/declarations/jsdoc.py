"""The comments of a declaration: what a schema says that its type cannot."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import pairwise

from corral.declarations.documents import listing, mapping
from corral.declarations.names import json_text
from corral.declarations.shapes import Doc

__all__ = ["comment", "describe"]

_ONE_LINE_CHARACTERS = 110
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
_TAG_SIGN = re.compile(r"(?<!\S)@(?=\S)")


def describe(schema: object, name: str) -> Doc:
    """What the schema of something of that name tells its reader. A title counts if it says more than the name."""
    keywords = _value_keywords(mapping(schema)) | mapping(schema)
    text = keywords.get("description")
    if not isinstance(text, str) or not text.strip():
        title = keywords.get("title")
        text = title if isinstance(title, str) and _letters(title) != _letters(name) else ""
    return Doc("\n".join((text, *_choices(keywords))), tuple(_tags(keywords)))


def comment(doc: Doc) -> str:
    """The JSDoc comment and a line break, or nothing. No text can end it, or turn into a tag."""
    lines = _lines(doc.text)
    tags = " ".join(f"@{name} {_harmless(value)}".strip() for name, value in doc.tags)
    if tags:
        lines.append(tags)
    if not lines:
        return ""
    one_line = " ".join(lines)
    if len(lines) <= 1 + bool(tags) and len(one_line) <= _ONE_LINE_CHARACTERS:
        return f"/** {one_line} */\n"
    return "".join(("/**\n", *(f" * {line}".rstrip() + "\n" for line in lines), " */\n"))


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
    if keywords.get("default") is not None:
        yield from _tag("default", json_text(keywords["default"]))
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


def _tag(name: str, text: str | None) -> Iterator[tuple[str, str]]:
    if text and not text.isspace() and len(text) <= _MAX_TAG_CHARACTERS:
        yield name, text


def _lines(text: str) -> list[str]:
    """The lines of a text as they may stand in a comment, without blank ones around it or next to each other."""
    lines = [_harmless(line).rstrip() for line in inspect.cleandoc(text).splitlines()]
    return [line for before, line in pairwise(["", *lines]) if line or before]


def _harmless(text: str) -> str:
    """One line that cannot end the comment. A `@` that would begin a tag gets the backslash that TSDoc has for it."""
    visible = "".join(character if character.isprintable() else " " for character in text)
    return _TAG_SIGN.sub(r"\\@", visible).replace("*/", r"*\/")


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()

"""Descriptions in a schema for its reader: everything that the type cannot express."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from corral.model.shapes.names import json_literal
from corral.model.shapes.shape import Doc
from corral.tools.json_schema.keywords import listing, mapping

_MAX_TAG_CHARACTERS = 200
_MAX_EXAMPLES = 3
_MAX_EXAMPLE_CHARACTERS = 120
"""Maximum characters of all examples together. Longer ones are left out."""
_MAX_SUMMARY_CHARACTERS = 120
_MIN_WRAPPED_CHARACTERS = 60
"""Minimum length of a line that might have been wrapped."""

_TEXT_TAGS = ("format", "pattern", "contentEncoding", "contentMediaType")
_NUMBER_TAGS = (
    "minimum exclusiveMinimum maximum exclusiveMaximum multipleOf minLength maxLength minItems maxItems minProperties "
    "maxProperties".split()
)
_LENGTH_TAGS = ("minItems", "maxItems")
"""Tags that the type of a tuple already expresses."""
_FLAG_TAGS = ("uniqueItems", "deprecated")
_TAGGED = frozenset((*_TEXT_TAGS, *_NUMBER_TAGS, *_FLAG_TAGS, "example", "examples"))


def describe(schema: object, name: str) -> Doc:
    """Reads a schema's description. A title counts if it says more than the name."""
    keywords = _value_keywords(mapping(schema)) | mapping(schema)
    text = keywords.get("description")
    if not isinstance(text, str) or not text.strip():
        title = keywords.get("title")
        text = title if isinstance(title, str) and _letters(title) != _letters(name) else ""
    return Doc("\n".join((text, *_choices(keywords))), tuple(_tags(keywords)), _default(keywords))


def text_lines(text: str) -> list[str]:
    """Returns the visible, non-blank lines of a text. Wrapped lines are joined."""
    lines: list[str] = []
    is_after_blank = True
    for line in inspect.cleandoc(text).splitlines():
        visible = printable(line).rstrip()
        if visible and lines and len(lines[-1]) >= _MIN_WRAPPED_CHARACTERS and _goes_on(visible, is_after_blank):
            lines[-1] += f" {visible}"
        elif visible:
            lines.append(visible)
        is_after_blank = not visible
    return lines


def _goes_on(line: str, is_after_blank: bool) -> bool:
    """True if the line can continue a sentence or paragraph, and is not a list item."""
    return line[0].islower() or (not is_after_blank and line[0].isupper())


def description_lines(doc: Doc, *, default: str | None = None) -> list[str]:
    """Returns the lines for a reader: the text, followed by the details that the type cannot express, in parentheses.

    `default` is the default value, in the language's notation.
    """
    lines = text_lines(doc.text)
    tags: list[str] = []
    if default is not None and not ("default" in doc.text.lower() and default.strip("\"'") in doc.text):
        tags.append(f"default {printable(default)}")
    tags += [f"{name} {printable(text)}".rstrip() for name, text in doc.tags]
    joined = ", ".join(tags)
    if len(lines) == 1 and joined:
        return [f"{lines[0]} ({joined})"]
    return [*lines, *([joined] if joined else [])]


def summary(text: str) -> str:
    """Returns the first line of a text, cut between words."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= _MAX_SUMMARY_CHARACTERS:
        return line
    return f"{line[:_MAX_SUMMARY_CHARACTERS].rpartition(' ')[0] or line[:_MAX_SUMMARY_CHARACTERS]} …"


def tool_lines(doc: Doc) -> list[str]:
    """Returns the lines of a tool's description. Each tag begins a line."""
    return [*text_lines(doc.text), *(line for tag, text in doc.tags for line in text_lines(f"{tag}: {text}"))]


def examples(schema: object) -> str:
    """Returns the first short examples of a schema, as JSON; may be empty."""
    keywords = mapping(schema)
    listed = [*listing(keywords.get("examples")), *([keywords["example"]] if "example" in keywords else [])]
    texts: dict[str, None] = {}
    room = _MAX_EXAMPLE_CHARACTERS
    for each in listed[:_MAX_EXAMPLES]:
        text = json_literal(each)
        if text and text not in texts and len(text) <= room:
            texts[text] = None
            room -= len(text)
    return ", ".join(texts)


def printable(text: str) -> str:
    """Returns the text on one line, with spaces for invisible characters."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def _value_keywords(keywords: dict[str, object]) -> dict[str, object]:
    """Returns the keywords of the other branch if a schema is a choice between null and something."""
    for keyword in ("anyOf", "oneOf"):
        branches = [mapping(branch) for branch in listing(keywords.get(keyword))]
        others = [branch for branch in branches if branch.get("type") != "null"]
        if len(branches) == 2 and len(others) == 1:
            return others[0]
    return {}


def _choices(keywords: dict[str, object]) -> list[str]:
    """Returns a line for each described constant of a choice."""
    lines: list[str] = []
    for branch in (*listing(keywords.get("oneOf")), *listing(keywords.get("anyOf"))):
        match mapping(branch):
            case {"const": value, "description": str() as text}:
                lines.append(f"- {json_literal(value)}: {' '.join(text.split())}")
            case _:
                pass
    return lines


def _tags(keywords: dict[str, object]) -> Iterator[tuple[str, str]]:
    if _TAGGED.isdisjoint(keywords):  # as most schemas are
        return
    for name in _TEXT_TAGS:
        value = keywords.get(name)
        yield from _tag(name, value if isinstance(value, str) else None)
    is_tuple = "prefixItems" in keywords or isinstance(keywords.get("items"), list)
    for name in _NUMBER_TAGS:
        value = None if is_tuple and name in _LENGTH_TAGS else keywords.get(name)
        yield from _tag(name, json_literal(value) if isinstance(value, int | float) else None)
    for name in _FLAG_TAGS:
        if keywords.get(name) is True:
            yield name, ""
    yield from _tag("e.g.", examples(keywords))


def _default(keywords: dict[str, object]) -> str | None:
    text = json_literal(keywords["default"]) if "default" in keywords else None
    return text if text and len(text) <= _MAX_TAG_CHARACTERS else None


def _tag(name: str, text: str | None) -> Iterator[tuple[str, str]]:
    if text and not text.isspace() and len(text) <= _MAX_TAG_CHARACTERS:
        yield name, text


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()

"""The expression that was undefined or null. V8 names only the member that was read, and the place."""

from __future__ import annotations

import re

from corral.types import Position

_OF_NOTHING = re.compile(
    r"Cannot (?P<verb>read|set) properties of (?P<what>undefined|null) \(\w+ '(?P<name>.{1,100})'\)"
)
_MAX_EXPRESSION = 80
_MAX_LOOK = 400
"""Characters before the place that are looked at."""
_MEMBER = re.compile(r"\s*(?:\?\s*)?\.\s*\Z")
_NAME = re.compile(r"[\w$#]+\Z")
_CLOSING = {")": "(", "]": "["}


def explained(message: str, source: str, position: Position | None) -> str:
    """The message, with the expression of the model's that was undefined or null; as it is if that cannot be told."""
    found = _OF_NOTHING.fullmatch(message)
    if found is None or position is None:
        return message
    lines = source.split("\n", position.line)
    if len(lines) < position.line:
        return message
    line = lines[position.line - 1].encode("utf-16-le", "surrogatepass")
    column = (position.column - 1) * 2
    before = "\n".join([*lines[: position.line - 1], line[:column].decode("utf-16-le", "replace")])[-_MAX_LOOK:]
    owner = _owner(before, line[column:].decode("utf-16-le", "replace"), found["verb"], found["name"])
    return message if owner is None or owner == found["what"] else f"{message}: `{owner}` is {found['what']}"


def _owner(before: str, after: str, verb: str, name: str) -> str | None:
    """The expression before the member that was read or set."""
    if verb == "set":
        if not after.startswith("="):
            return None
        end = _begin(before, one=True)
        before = "" if end is None else _MEMBER.sub("", before[:end])
    elif after.startswith(name) and (dot := _MEMBER.search(before)):
        before = before[: dot.start()]
    elif not after.startswith(("[", ".", "?.")):
        return None
    begin = _begin(before)
    text = "" if begin is None else " ".join(before[begin:].split()).replace(" .", ".")
    return text if 0 < len(text) <= _MAX_EXPRESSION else None


def _begin(text: str, *, one: bool = False) -> int | None:
    """Start of the expression of names, members, calls and brackets that ends the text; of `one`, its last part."""
    at = len(text.rstrip())
    while at > 0:
        if text[at - 1] in _CLOSING:
            opened = _opening(text, at - 1)
            if opened is None:
                return None
            at = opened
            if (
                one
                or at == 0
                or not (
                    text[at - 1] in _CLOSING or text[at - 1] in "$!." or text[at - 1].isalnum() or text[at - 1] == "_"
                )
            ):
                return at
            at -= text[at - 1] == "."
            at -= text[at - 1 : at] == "?"
        elif text[at - 1] == "!":
            at -= 1
        elif found := _NAME.search(text, max(0, at - _MAX_EXPRESSION), at):
            at = found.start()
            dot = _MEMBER.search(text[max(0, at - _MAX_EXPRESSION) : at])
            if one or dot is None:
                return at
            at -= len(dot[0])
        else:
            return None
    return at


def _opening(text: str, at: int) -> int | None:
    """The bracket that the one at `at` closes, past texts in quotes."""
    wanted: list[str] = []
    while at >= 0:
        character = text[at]
        if character in _CLOSING:
            wanted.append(_CLOSING[character])
        elif character in "([":
            if not wanted or wanted.pop() != character:
                return None
            if not wanted:
                return at
        elif character in "\"'`":
            at = text.rfind(character, 0, at)
            if at < 0:
                return None
        at -= 1
    return None

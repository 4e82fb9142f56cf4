"""Programs that were encoded once too often: in a JSON object, with the escapes of a string, with HTML's."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic_core import from_json

_MOST_CHARS = 200_000
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_KEYS = ("code", "program", "source", "script", "typescript", "javascript", "python")
_AROUND = ("arguments", "input", "parameters")
"""Members of a whole tool call that hold its arguments."""
_SIGNS = re.compile(r"\b(?:tools|codemode|await|return)\b|\bconsole\.log\b|\bprint\s*\(")
"""Words that a text has if it is a program."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt\"'`\\]))")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_ENTITY = re.compile(r"&(?:[lg]t|amp|quot|apos|#0*39|#x0*27);")


def program_in_json(source: str) -> str | None:
    """The program in a JSON text, or in a JSON object as a tool is called with; None if the source is neither."""
    text = source.strip() if len(source) <= _MOST_CHARS else ""
    if text.startswith("`") and (fenced := _FENCED.fullmatch(source)) is not None:
        text = fenced[1].strip()
    if not (text.startswith(("{", '"')) and text.endswith(("}", '"'))):
        return None
    try:
        found: object = from_json(text)
    except ValueError:
        return None
    for _ in range(2):
        if isinstance(found, dict):
            members = cast("dict[str, Any]", found)
            found = next((members[key] for key in (*_KEYS, *_AROUND) if key in members), None)
    return found if isinstance(found, str) and _SIGNS.search(found) else None


def decodings(source: str) -> Iterator[str]:
    """Yields programs that a source which is none may stand for."""
    if len(source) > _MOST_CHARS:
        return
    if "\\n" in source and "\n" not in source.strip():
        yield _ESCAPE.sub(_unescaped, source)
    if _ENTITY.search(source):
        yield html.unescape(source)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _ESCAPES.get(escape[2], escape[2])

"""Texts, names and constants as they may stand in Python source: nothing of a schema ends them, or directs a tool."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Sequence
from typing import cast
from unicodedata import normalize

from corral.model.shapes import descriptions as describing
from corral.model.shapes.descriptions import printable
from corral.model.shapes.shape import Constant, Doc

_ENDS_DOCSTRING = re.compile(r'\\|"(?="")')
_DIRECTIVE = re.compile(r"#(?=\s*[\w-]+\s*:)")
"""Such as `# type: ignore` or `# pyright: basic`, which type checkers find anywhere in a comment."""


def is_name(text: str) -> bool:
    """True if the text can be written as a name, and is not changed by that: names in classes can be."""
    plain = text.isidentifier() and normalize("NFKC", text) == text and not text.startswith("__")
    return plain and not keyword.iskeyword(text)


def quoted(text: str) -> str:
    """A string literal; what cannot be seen is escaped."""
    marked = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in marked)


def constant_text(constant: Constant) -> str:
    return literal(json.loads(constant.text))


def literal(value: object) -> str:
    """A JSON value as Python writes it."""
    match value:
        case str():
            return quoted(value)
        case list():
            return f"[{', '.join(map(literal, cast('list[object]', value)))}]"
        case dict():
            members = cast("dict[str, object]", value).items()
            return f"{{{', '.join(f'{quoted(name)}: {literal(each)}' for name, each in members)}}}"
        case _:
            return repr(value)


def told(doc: Doc, *, default: bool = True) -> list[str]:
    """The description for the reader, line by line."""
    shown = literal(json.loads(doc.default)) if default and doc.default not in (None, "null") else None
    return describing.told(doc, default=shown)


def docstring(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring that says this; none if it says nothing."""
    safe = [_ENDS_DOCSTRING.sub(r"\\\g<0>", line) for line in lines]
    if not safe:
        return []
    if safe[-1].endswith('"'):
        safe[-1] = f'{safe[-1][:-1]}\\"'
    safe[0] = f'"""{safe[0]}'
    safe[-1] += '"""'
    return safe


def commented(lines: Sequence[str]) -> list[str]:
    """The lines as comments, none of which type checkers take for a directive to them."""
    return [f"#: {_DIRECTIVE.sub('#:', printable(line))}".rstrip() for line in lines]


def with_comment(line: str, lines: Sequence[str]) -> list[str]:
    """The line and its comments: one comment ends it, more stand above."""
    if len(lines) == 1:
        return [f"{line} {commented(lines)[0]}"]
    return [*commented(lines), line]


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]

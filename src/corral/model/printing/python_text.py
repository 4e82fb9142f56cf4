"""Escapes texts, names and constants for Python source, so that schemas cannot end them or add tool directives."""

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
"""Matches directives such as `# type: ignore` or `# pyright: basic`, which type checkers find in any comment."""


def is_name(text: str) -> bool:
    """True if the text is an identifier that is not changed by normalization or by class scope."""
    plain = text.isidentifier() and normalize("NFKC", text) == text and not text.startswith("__")
    return plain and not keyword.iskeyword(text)


def quoted(text: str) -> str:
    """Returns a string literal; invisible characters are escaped."""
    marked = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in marked)


def constant_text(constant: Constant) -> str:
    return literal(json.loads(constant.text))


def literal(value: object) -> str:
    """Writes a JSON value as Python does."""
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


def description_lines(doc: Doc, *, default: bool = True) -> list[str]:
    """Returns the lines of the description."""
    shown = literal(json.loads(doc.default)) if default and doc.default not in (None, "null") else None
    return describing.description_lines(doc, default=shown)


def docstring(lines: Sequence[str]) -> list[str]:
    """Returns the lines as a docstring; empty if there are none."""
    safe = [_ENDS_DOCSTRING.sub(r"\\\g<0>", line) for line in lines]
    if not safe:
        return []
    if safe[-1].endswith('"'):
        safe[-1] = f'{safe[-1][:-1]}\\"'
    safe[0] = f'"""{safe[0]}'
    safe[-1] += '"""'
    return safe


def commented(lines: Sequence[str]) -> list[str]:
    """Returns the lines as comments that type checkers cannot take for directives."""
    return [f"#: {_DIRECTIVE.sub('#:', printable(line))}".rstrip() for line in lines]


def with_comment(line: str, lines: Sequence[str]) -> list[str]:
    """Adds comments to the line: a single one at its end, several above it."""
    if len(lines) == 1:
        return [f"{line} {commented(lines)[0]}"]
    return [*commented(lines), line]


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]

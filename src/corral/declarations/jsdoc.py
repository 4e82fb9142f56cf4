"""What a schema tells its reader, as comments of TypeScript."""

from __future__ import annotations

import re

from corral.declarations.describing import printable, text_lines
from corral.declarations.shapes import Doc

__all__ = ["comment"]

_ONE_LINE_CHARACTERS = 110
_TAG_SIGN = re.compile(r"(?<!\S)@(?=\S)")


def comment(doc: Doc) -> str:
    """The JSDoc comment and a line break, or nothing. No text can end it, or turn into a tag."""
    lines = list(map(_harmless, text_lines(doc.text)))
    default = () if doc.default in (None, "null") else (("default", doc.default),)
    tags = " ".join(f"@{name} {_harmless(printable(value))}".strip() for name, value in (*default, *doc.tags))
    if tags:
        lines.append(tags)
    if not lines:
        return ""
    one_line = " ".join(lines)
    if len(lines) <= 1 + bool(tags) and len(one_line) <= _ONE_LINE_CHARACTERS:
        return f"/** {one_line} */\n"
    return "".join(("/**\n", *(f" * {line}".rstrip() + "\n" for line in lines), " */\n"))


def _harmless(line: str) -> str:
    """A line that cannot end the comment. A `@` that would begin a tag gets the backslash that TSDoc has for it."""
    return _TAG_SIGN.sub(r"\\@", line).replace("*/", r"*\/")

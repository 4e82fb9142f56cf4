"""Recognises what was not meant to be TypeScript, or is more than that: a program in Python, JSX."""

from __future__ import annotations

import re

from corral.errors import ProgramRejected
from corral.programs.edits import position_at
from corral.programs.syntax import python as python_grammar
from corral.programs.syntax.typescript import first_jsx

_PYTHON = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+\w+"
    r"|(?:if|elif|else|for|while|try|except|with|async[ \t]+(?:for|with)|class)\b[^\n{]*:[ \t]*(?:#[^\n]*)?$)"
    r"|\bprint\(|\b(?:None|True|False|not|elif|lambda)\b|\bf[\"']",
    re.MULTILINE,
)
_MAX_BYTES = 30_000
"""A source that is longer is not parsed again."""


def refuse_other_languages(text: bytes) -> None:
    """Raises ProgramRejected for a text that is no TypeScript but Python, or TypeScript with JSX."""
    if len(text) > _MAX_BYTES:
        return
    sign = _PYTHON.search(text.decode())
    if sign is not None and not python_grammar.parse(text).root_node.has_error:
        place = position_at(text, len(sign.string[: sign.start()].encode()))
        message = "This is Python. Programs here are in TypeScript: `const x = await tools.name({ … }); return x;`."
        raise ProgramRejected(message, line=place.line, column=place.column)
    if b"</" in text or b"/>" in text:
        element = first_jsx(text)
        if element is not None:
            place = position_at(text, element.start_byte)
            message = f"The JSX at line {place.line}, column {place.column} cannot run here. Return data, not elements."
            raise ProgramRejected(message, line=place.line, column=place.column)

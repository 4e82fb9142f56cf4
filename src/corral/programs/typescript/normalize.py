"""Normalizes every source before it is parsed."""

from __future__ import annotations

import re

from corral.errors import ProgramRejected
from corral.programs.edits import position_at
from corral.types import Diagnostic

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def well_formed(source: str) -> tuple[str, list[Diagnostic]]:
    """Returns the source as valid Unicode, and a warning if half of a surrogate pair was replaced.

    Raises ProgramRejected for a NUL character.
    """
    diagnostics: list[Diagnostic] = []
    if _LONE_SURROGATE.search(source):
        replaced = source.count("\ufffd")
        source = source.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if source.count("\ufffd") > replaced:
            message = "The source contains half of a surrogate pair, which was replaced by U+FFFD."
            diagnostics.append(Diagnostic(severity="warning", code="lone_surrogate", message=message))
    if "\0" in source:
        place = position_at(source.encode(), len(source[: source.index("\0")].encode()))
        raise ProgramRejected(
            f"The source has a NUL character at line {place.line}, column {place.column}. Write `\\0` in a string.",
            line=place.line,
            column=place.column,
        )
    return source, diagnostics

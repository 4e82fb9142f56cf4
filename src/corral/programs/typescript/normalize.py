"""Normalizes every source before it is parsed."""

from __future__ import annotations

import re

from corral.programs.edits import Places
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
        message = "The source has a NUL character at {place}. Write `\\0` in a string."
        raise Places(source.encode()).rejected(message, len(source[: source.index("\0")].encode()))
    return source, diagnostics

"""Findings of a check, and their wording for the author of the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from corral.rendering.preview import preview_text
from corral.rendering.suggestions import NearNames

Kind = Literal["argument", "member", "stream", "type", "unawaited", "unbound", "tool"]
"""`member` alone says that a result is not what the program takes it for, which holds only if its declaration does."""

NOTHING_SHARED = "Programs share nothing: define it here, or return it and write it into the next program."
"""The advice on a name that is bound to nothing and near to nothing: an earlier program may have had it."""

_MAX_MESSAGE_CHARS = 1000
_MAX_DECLARED_CHARS = 800
_MOST_KNOWN = 500
"""Names among which one that was meant is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault of a program, at an offset of its text in bytes.

    With a `kind` it rejects the program; without one it is a warning.
    """

    code: str
    """The server's code, as `TS2322` or `ty:invalid-argument-type`."""
    message: str
    offset: int
    kind: Kind | None = None
    hint: str | None = None
    """The replacement, as a sentence."""
    declared: str | None = None
    """The declaration that it does not fit."""
    always: bool = False
    """True if it is shown for programs that succeed, too."""

    def rejected(
        self, kind: Kind, *, message: str | None = None, hint: str | None = None, declared: str | None = None
    ) -> Finding:
        """Returns the finding with a kind, so that it rejects the program."""
        return replace(self, kind=kind, message=message or self.message, hint=hint, declared=declared)

    def text(self) -> str:
        """Message, hint and declaration, without the position."""
        message = preview_text(self.message.strip(), _MAX_MESSAGE_CHARS)
        message += "" if message.endswith((".", "?", "!")) else "."
        hint = f" {self.hint}" if self.hint else ""
        declared = f"\n  declared: {preview_text(self.declared, _MAX_DECLARED_CHARS)}" if self.declared else ""
        return f"{message}{hint}{declared}"


def near(name: str, known: Iterable[str]) -> str | None:
    """Returns a question such as "Did you mean 'x'?" if a known name is near."""
    candidates = [each for each in islice(dict.fromkeys(known), _MOST_KNOWN) if each != name]
    lowered = {each.lower().replace("_", ""): each for each in reversed(candidates)}
    matches = NearNames(lowered).of(name.lower().replace("_", ""))
    return f"Did you mean {lowered[matches[0]]!r}?" if matches else None

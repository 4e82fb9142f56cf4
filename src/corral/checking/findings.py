"""Findings of a check, and their wording for the author of the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from corral.rendering.preview import preview_text
from corral.rendering.suggestions import NearNames

Kind = Literal["argument", "member", "stream", "type", "unawaited", "unbound", "tool", "absent"]
"""Kind of a finding. Only `member` findings are about results, and so depend on correct declarations of them."""

NOT_BOUND = "No program of this session has bound it: define it here."
NOTHING_SHARED = "Programs share no state: define it here, or return it and paste it into the next program."
"""Hint for an unbound name without similar names: an earlier program may have defined it."""

_MAX_MESSAGE_CHARS = 1000
_MAX_DECLARED_CHARS = 800
_MOST_KNOWN = 500
"""Maximum number of names that are searched for a similar one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Problem in a program, at a byte offset of its text.

    A finding with a `kind` rejects the program; without one, it is a warning.
    """

    code: str
    """Code from the server, such as `TS2322` or `ty:invalid-argument-type`."""
    message: str
    offset: int
    kind: Kind | None = None
    hint: str | None = None
    """Suggested fix, as a sentence."""
    declared: str | None = None
    """Declaration that the program does not match."""
    always: bool = False
    """True if it is shown even if the program succeeds."""

    def rejected(
        self, kind: Kind, *, message: str | None = None, hint: str | None = None, declared: str | None = None
    ) -> Finding:
        return replace(self, kind=kind, message=message or self.message, hint=hint, declared=declared)

    def text(self) -> str:
        """Returns message, hint and declaration, without the position."""
        message = preview_text(self.message.strip(), _MAX_MESSAGE_CHARS)
        message += "" if message.endswith((".", "?", "!")) else "."
        hint = f" {self.hint}" if self.hint else ""
        declared = f"\n  declared: {preview_text(self.declared, _MAX_DECLARED_CHARS)}" if self.declared else ""
        return f"{message}{hint}{declared}"


def near(name: str, known: Iterable[str]) -> str | None:
    """Returns a question such as "Did you mean 'x'?" if a known name is similar."""
    candidates = [each for each in islice(dict.fromkeys(known), _MOST_KNOWN) if each != name]
    lowered = {each.lower().replace("_", ""): each for each in reversed(candidates)}
    matches = NearNames(lowered).of(name.lower().replace("_", ""))
    return f"Did you mean {lowered[matches[0]]!r}?" if matches else None

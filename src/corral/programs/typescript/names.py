"""Identifiers that preparation adds to a program."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Names:
    """Identifiers that a program does not use. `local` is the prefix of numbered ones."""

    load: str
    entry: str
    label: str
    default: str
    local: str

    @classmethod
    def avoiding(cls, text: bytes) -> Names:
        """Makes names that do not occur in a text."""
        words = ("$load", "$entry", "$program", "$main", "$own")
        clash = b"\\u" in text or any(word.encode() in text for word in words)
        suffix = f"_{sha256(text).hexdigest()[:16]}_" if clash else ""
        return cls(*(word + suffix for word in words))

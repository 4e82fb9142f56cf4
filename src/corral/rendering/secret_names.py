"""Recognizes names of secrets."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = re.compile(
    "credentials?|jwt|pass(code|phrase|wd|word|words)|pwd|secrets?|authorization"
    "|(access|api|private|secret)key|(access|api|auth)token|clientsecret"
)
_SECRET_KEYS = re.compile("access|account|api|auth|encryption|license|master|private|secret|signing|ssh")
_SECRET_TOKENS = re.compile("access|api|auth|bearer|refresh|secret|session")
_CURSORS = re.compile("continuation|cursor|end|next|page|pagination|resume|start|sync")
_AFTERTHOUGHTS = re.compile("again|confirm|confirmation|repeat|value")


_ANY = re.compile(b"authorization|credential|jwt|key|pass|pwd|secret|token", re.IGNORECASE)
"""Every name that counts as secret contains one of these."""


def may_name_secrets(text: bytes) -> bool:
    """True if the text may contain the name of a secret."""
    return _ANY.search(text) is not None


def names_a_secret(name: str) -> bool:
    """True if a parameter or member of this name holds a secret, however its words are joined."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and _AFTERTHOUGHTS.fullmatch(words[-1]):
        words.pop()
    before, last = ("", "", *words)[-2:]
    match last:
        case "key" | "keys":
            return bool(_SECRET_KEYS.fullmatch(before))
        case "token":
            return not _CURSORS.fullmatch(before)
        case "tokens":
            return bool(_SECRET_TOKENS.fullmatch(before))
        case _:
            return bool(_SECRETS.fullmatch(last))

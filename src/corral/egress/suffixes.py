"""Names below which anybody may have a name of their own, by the Public Suffix List."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from publicsuffixlist import PublicSuffixList

__all__ = ["open_suffix"]


def open_suffix(name: str) -> str | None:
    """The public suffix that a name is, or the first that is below it; None if there is none.

    `name` is ASCII, in lower case. A top-level name that the list does not know counts as a suffix.
    """
    if _suffixes().is_public(name):
        return name
    return next((each for each in _listed() if each.endswith(f".{name}")), None)


@cache
def _suffixes() -> PublicSuffixList:
    """Takes tens of milliseconds to make, so it is made for who needs it."""
    return PublicSuffixList()


@cache
def _listed() -> Sequence[str]:
    """The suffixes themselves, without rules that make exceptions of others."""
    text = (files("publicsuffixlist") / "public_suffix_list.dat").read_text(encoding="utf-8")
    rules = (line.split()[0] for line in text.splitlines() if line and not line.startswith(("//", "!")))
    return [rule.removeprefix("*.") for rule in rules]

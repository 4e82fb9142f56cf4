"""The programs and the tools that they were written for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corral import Language
from tests.checking.habits.club import CLUB_TOOLS
from tests.checking.habits.office import OFFICE_TOOLS
from tests.checking.habits.shop import AIRLINE_TOOLS, SHOP_TOOLS

__all__ = ["TOOLS", "Mistake", "habits", "mistakes"]

TOOLS = (*SHOP_TOOLS, *AIRLINE_TOOLS, *OFFICE_TOOLS, *CLUB_TOOLS)

_HERE = Path(__file__).parent
_MARKERS: dict[Language, str] = {"typescript": r"^//// (.+)\n", "python": r"^#### (.+)\n"}


class Mistake(NamedTuple):
    """A program that is sure to fail, or to say nothing true."""

    program: str
    word: str
    """Must be in what is said of it."""


def habits(language: Language) -> dict[str, str]:
    """Programs by id. A file holds several, each behind a line with its name."""
    found: dict[str, str] = {}
    for file in sorted((_HERE / language).iterdir()):
        for name, program in _parts(file, language):
            assert f"{file.stem}/{name}" not in found, f"two programs are called {file.stem}/{name}"
            found[f"{file.stem}/{name}"] = program
    return found


def mistakes(language: Language) -> dict[str, Mistake]:
    """Mistakes by id. A line `id | word` stands before each."""
    found: dict[str, Mistake] = {}
    for heading, program in _parts(next((_HERE / "mistakes").glob(f"{language}.*")), language):
        name, _, word = heading.partition(" | ")
        found[name] = Mistake(program, word)
    return found


def _parts(file: Path, language: Language) -> Iterator[tuple[str, str]]:
    _, *parts = re.split(_MARKERS[language], file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return zip(parts[::2], parts[1::2], strict=True)

"""The corpus in TypeScript: programs as models write them, and the same with one mistake each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, TypeAlias, cast

from typing_extensions import TypedDict

__all__ = ["Mistake", "mistakes", "valid_programs"]

_HERE = Path(__file__).parent
_MARKER = re.compile(r"^//// ([\w-]+)\n", re.MULTILINE)

Kind: TypeAlias = Literal[
    "wrong_type",
    "unknown_argument",
    "missing_argument",
    "wrong_literal",
    "null_argument",
    "no_such_member",
    "unawaited",
    "unbound_name",
    "unknown_tool",
    "argument_count",
]


class Mistake(TypedDict):
    """A program with one mistake."""

    id: str
    kind: Kind
    program: str
    line: int
    """Where the mistake is, counted from 1."""
    mistake: str
    """What is wrong, in a few words."""


def valid_programs() -> dict[str, str]:
    """Programs that run well, by id. A line `//// id` stands before each."""
    programs: dict[str, str] = {}
    for file in sorted((_HERE / "valid" / "typescript").iterdir()):
        _, *parts = _MARKER.split(file.read_text(encoding="utf-8"))
        for name, program in zip(parts[::2], parts[1::2], strict=True):
            assert name not in programs, name
            programs[name] = program
    return programs


def mistakes() -> list[Mistake]:
    """Programs with a mistake each."""
    text = (_HERE / "mistakes" / "typescript.json").read_text(encoding="utf-8")
    return cast("list[Mistake]", json.loads(text))

"""What the command lines of the benchmarks have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.summary import Report
from bench.tables import show

__all__ = ["names", "positive", "write"]


def names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads names, separated by commas, of which each must be known."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name for name in text.split(",") if name))
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown) or 'name'}; there are: {', '.join(known)}")
        return names

    return read


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def write(report: Report, file: Path | None, *, detail: bool) -> None:
    """Prints it, and writes it as JSON where that is wanted."""
    print(show(report, detail=detail))
    if file is not None:
        file.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

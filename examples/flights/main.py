"""Runs three programs, as a model would write them, over a year of flights, and shows what each took and returned.

Usage: `python examples/flights/main.py [--language python] [PROGRAM ...]`, all of them in TypeScript unless said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import anyio
from corral import Corral, ExecutionResult
from corral.types import Language

from database import ensure_database
from report import answer, time_line, traffic
from tools import TOOLS

PROGRAMS = Path(__file__).parent / "programs"
QUESTIONS = {
    "bad_weather": "Which airlines lose most time to bad weather, and how much?",
    "plane_age": "In summer, are older planes late more often, and which models are late most?",
    "when_to_leave": "From which airport and at what hour to leave for the busiest destinations and San Juan?",
}
LANGUAGES: tuple[Language, ...] = ("typescript", "python")


async def run(language: Language, names: Iterable[str]) -> bool:
    """Runs the programs one after the other, with the default limits; whether all succeeded."""
    ensure_database()
    succeeded = True
    async with Corral(tools=TOOLS) as corral:
        for name in names:
            [file] = PROGRAMS.glob(f"{language}/{name}.*")
            source = file.read_text(encoding="utf-8")
            result = await corral.execute(source, language=language)
            show(name, file, source, result)
            succeeded &= result.success
    return succeeded


def show(name: str, file: Path, source: str, result: ExecutionResult) -> None:
    print(f"━━━ {QUESTIONS[name]}\n")
    print(f"{file.relative_to(PROGRAMS.parent)}: {result.status} in {result.duration_ms / 1000:.1f} s\n")
    if result.error is not None:
        print(result.model_text())
        return
    print(f"{answer(result.value)}\n")
    if result.logs:
        print(f"console: {result.console}")
    print(f"{time_line(result.tool_calls)}\n")
    print(f"{traffic(source, result)}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Answers questions about a year of flights.")
    parser.add_argument("--language", choices=LANGUAGES, default=LANGUAGES[0])
    parser.add_argument("programs", metavar="PROGRAM", nargs="*", help=", ".join(QUESTIONS))
    arguments = parser.parse_args()
    names: list[str] = arguments.programs or list(QUESTIONS)
    if unknown := [name for name in names if name not in QUESTIONS]:
        parser.error(f"no such program: {', '.join(unknown)}; there are: {', '.join(QUESTIONS)}")
    return 0 if anyio.run(run, arguments.language, names) else 1


if __name__ == "__main__":
    sys.exit(main())

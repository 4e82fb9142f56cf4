"""Runs three programs, as a model would write them, over a year of flights, and shows what each took and returned.

Usage: `python examples/flights/main.py [PROGRAM ...]`, all of them unless named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import anyio
from corral import Corral, ExecutionResult

from database import ensure_database
from report import answer, time_line, traffic
from tools import TOOLS

PROGRAMS = Path(__file__).parent / "programs"
QUESTIONS = {
    "bad_weather.md": "Which airlines lose most time to bad weather, and how much?",
    "plane_age.ts": "In summer, are older planes late more often, and which models are late most?",
    "when_to_leave.ts": "From which airport and at what hour to leave for the busiest destinations and San Juan?",
}


async def run(names: Iterable[str]) -> bool:
    """Runs the programs one after the other, with the default limits; whether all succeeded."""
    ensure_database()
    succeeded = True
    async with Corral(tools=TOOLS) as corral:
        for name in names:
            source = (PROGRAMS / name).read_text(encoding="utf-8")
            result = await corral.execute(source)
            show(name, source, result)
            succeeded &= result.success
    return succeeded


def show(name: str, source: str, result: ExecutionResult) -> None:
    print(f"━━━ {QUESTIONS[name]}\n")
    print(f"programs/{name}: {result.status} in {result.duration_ms / 1000:.1f} s\n")
    if result.error is not None:
        print(result.model_text())
        return
    print(f"{answer(result.value)}\n")
    if result.logs:
        print(f"console: {result.output}")
    print(f"{time_line(result.tool_calls)}\n")
    print(f"{traffic(source, result)}\n")


def main() -> int:
    names = sys.argv[1:] or list(QUESTIONS)
    if unknown := [name for name in names if name not in QUESTIONS]:
        print(f"no such program: {', '.join(unknown)}; there are: {', '.join(QUESTIONS)}", file=sys.stderr)
        return 2
    return 0 if anyio.run(run, names) else 1


if __name__ == "__main__":
    sys.exit(main())

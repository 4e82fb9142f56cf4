"""Random durable programs that are cut off at random calls and resumed, many of them in a row."""

from __future__ import annotations

from collections import Counter

from corral.ledger import MemoryLedger
from corral.sandboxes import CPythonSandbox, DenoSandbox
from corral.types import Language
from tests.running.random_programs import PROGRAMS, Randomly

__all__ = ["soak_programs"]

_BATCH = 10
"""Programs of one ledger, which holds all of them in memory."""


async def soak_programs(programs: int, seed: int) -> list[str]:
    """Runs that many programs of each language, in batches that take turns, and prints the sums after each batch.

    Returns the batches in which a program did not succeed, made a change twice, or had another value when replayed.
    """
    wrong: list[str] = []
    totals: dict[Language, Counter[str]] = {language: Counter() for language in PROGRAMS}
    async with DenoSandbox(isolation="fork") as deno, CPythonSandbox() as python:
        sandbox = {"typescript": deno, "python": python}
        for done in range(0, programs, _BATCH):
            count = min(_BATCH, programs - done)
            for language, total in totals.items():
                runs = Randomly(sandbox, MemoryLedger(), seed=seed + done)
                error = ""
                try:
                    await runs.run(count, language)
                except Exception as failure:
                    error = f"{failure!r} "
                if error or runs.counts["succeeded"] != count or runs.counts["twice"] or runs.counts["differ"]:
                    wrong.append(f"{language}, --seed {seed + done}: {error}{dict(runs.counts)}")
                    print(wrong[-1])  # noqa: T201
                total.update(runs.counts)
                print(language, done + count, dict(total), flush=True)  # noqa: T201
    return wrong

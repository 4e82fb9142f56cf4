"""The rounds of a run: the floors and every row in each of them, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.conduct import Measured, conduct
from bench.engines import Driver
from bench.host import describe_host
from bench.summary import Report, summarize, summarize_floors
from bench.workloads import COLD, make_plan

__all__ = ["measure"]


def measure(drivers: Sequence[Driver], floor: Driver, *, only: frozenset[str], rounds: int, uvloop: bool) -> Report:
    """All rounds of all rows. A row that fails as a whole is left out of the rounds that follow."""
    host = describe_host(uvloop=uvloop)
    floors: list[Measured] = []
    measured: dict[str, list[Measured]] = {driver.name: [] for driver in drivers}
    for number in range(1, rounds + 1):
        _progress(f"round {number} of {rounds}: floors")
        floors.append(conduct(floor, make_plan(floor.language, only), uvloop=uvloop))
        if floors[-1].failure is not None:
            sys.exit(f"the floors could not be measured: {floors[-1].failure}")
        for driver in drivers:
            if any(each.is_empty for each in measured[driver.name]):
                continue
            _progress(f"round {number} of {rounds}: {driver.name}")
            measured[driver.name].append(conduct(driver, make_plan(driver.language, only), uvloop=uvloop))
    _progress("")
    found = summarize_floors(floors)
    report: Report = {
        "host": host,
        "rounds": rounds,
        "floors": found,
        "rows": [summarize(driver, measured[driver.name], found) for driver in drivers],
    }
    if COLD not in only:  # every driver has it, wanted or not
        for row in report["rows"]:
            row["measures"].pop(COLD, None)
    return report


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

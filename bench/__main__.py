"""`python -m bench`: what Corral's engines cost, next to their floors and, with --peers, to other projects."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.conduct import Measured, conduct
from bench.engines import CORRAL_ENGINES, PEERS, Driver, corral_driver, floor_driver
from bench.host import describe_host
from bench.summary import Report, summarize, summarize_floors
from bench.tables import show
from bench.workloads import COLD, KEYS, MEMORY, WORKLOADS, make_plan

_EPILOG = "\n".join(
    [
        "what can be measured:",
        f"  {COLD:11} the first result of a fresh provider",
        *(f"  {workload.key:11} {workload.title}" for workload in WORKLOADS),
        f"  {MEMORY:11} what an idle and a live sandbox take",
        "",
        "engines:",
        *(f"  {name:11} {engine.title}" for name, engine in CORRAL_ENGINES.items()),
        "",
        "peers (bench/peers/setup installs them):",
        *(f"  {name:20} {peer.title}" for name, peer in PEERS.items()),
    ]
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Medians over rounds; in each round, every engine is started anew, one after the other.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report to FILE, too")
    parser.add_argument("--only", metavar="W1,W3", type=_names(KEYS), default=KEYS, help="measure these only")
    parser.add_argument(
        "--engines",
        metavar="deno,pool",
        type=_names((*CORRAL_ENGINES, *PEERS)),
        help="these engines or peers only (default: all engines of Corral)",
    )
    parser.add_argument("--peers", action="store_true", help="measure the peers, too")
    parser.add_argument("--rounds", metavar="N", type=_positive, default=5, help="how many rounds (default: 5)")
    parser.add_argument("--uvloop", action="store_true", help="run Python hosts on uvloop instead of asyncio")
    parser.add_argument("--detail", action="store_true", help="show minimum, 90th percentile and samples, too")
    return parser


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads names, separated by commas, of which each must be known."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name for name in text.split(",") if name))
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown) or 'name'}; there are: {', '.join(known)}")
        return names

    return read


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _drivers(engines: Sequence[str] | None, *, peers: bool) -> list[Driver]:
    chosen = list(engines if engines is not None else CORRAL_ENGINES)
    if peers:
        chosen += [name for name in PEERS if name not in chosen]
    return [PEERS[name] if name in PEERS else corral_driver(name) for name in chosen]


def measure(drivers: Sequence[Driver], *, only: frozenset[str], rounds: int, uvloop: bool) -> Report:
    """All rounds of all rows. A row that fails as a whole is left out of the rounds that follow."""
    host = describe_host(uvloop=uvloop)
    floor = floor_driver()
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


def main() -> None:
    options = _parser().parse_args()
    drivers = _drivers(options.engines, peers=options.peers)
    report = measure(drivers, only=frozenset(options.only), rounds=options.rounds, uvloop=options.uvloop)
    _progress("")
    print(show(report, detail=options.detail))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

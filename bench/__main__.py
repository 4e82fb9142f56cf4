"""`python -m bench`: what Corral's engines cost, next to their floors and, with --peers, to other projects."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.engines import CORRAL_ENGINES, PEERS, Driver, corral_driver, floor_driver
from bench.options import names, positive, write
from bench.rounds import measure
from bench.workloads import COLD, KEYS, MEMORY, WORKLOADS

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
    parser.add_argument("--only", metavar="W1,W3", type=names(KEYS), default=KEYS, help="measure these only")
    parser.add_argument(
        "--engines",
        metavar="deno,pool",
        type=names((*CORRAL_ENGINES, *PEERS)),
        help="these engines or peers only (default: all engines of Corral)",
    )
    parser.add_argument("--peers", action="store_true", help="measure the peers, too")
    parser.add_argument("--rounds", metavar="N", type=positive, default=5, help="how many rounds (default: 5)")
    parser.add_argument("--uvloop", action="store_true", help="run Python hosts on uvloop instead of asyncio")
    parser.add_argument("--detail", action="store_true", help="show minimum, 90th percentile and samples, too")
    return parser


def _drivers(engines: Sequence[str] | None, *, peers: bool) -> list[Driver]:
    chosen = list(engines if engines is not None else CORRAL_ENGINES)
    if peers:
        chosen += [name for name in PEERS if name not in chosen]
    return [PEERS[name] if name in PEERS else corral_driver(name) for name in chosen]


def main() -> None:
    options = _parser().parse_args()
    drivers = _drivers(options.engines, peers=options.peers)
    report = measure(
        drivers, floor_driver(), only=frozenset(options.only), rounds=options.rounds, uvloop=options.uvloop
    )
    write(report, options.json, detail=options.detail)


if __name__ == "__main__":
    main()

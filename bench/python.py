"""`python -m bench.python`: what Python programs cost, in Corral's engines and in others, next to CPython itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.engines import PEERS_HOME, PYTHON_ENGINES, PYTHON_PEERS, Driver, corral_driver, floor_driver
from bench.options import names, positive, write
from bench.rounds import measure
from bench.workloads import COLD, KEYS, WORKLOADS

_MEASURED = (COLD, "W1", "W2", "W3", "W5", "call")
_EPILOG = "\n".join(
    [
        "what can be measured:",
        f"  {COLD:18} the first result of a fresh provider",
        *(f"  {workload.key:18} {workload.title}" for workload in WORKLOADS if "python" in workload.programs),
        "",
        "engines and peers:",
        *(f"  {name:18} {row.title}" for name, row in {**PYTHON_ENGINES, **PYTHON_PEERS}.items()),
    ]
)


def _parser() -> argparse.ArgumentParser:
    made = PEERS_HOME / "python" / "bin" / "python"
    parser = argparse.ArgumentParser(
        prog="python -m bench.python",
        description="Medians over rounds; in each round, every engine is started anew, one after the other.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report to FILE, too")
    parser.add_argument("--only", metavar="W1,W3", type=names(KEYS), default=_MEASURED, help="measure these only")
    parser.add_argument(
        "--engines",
        metavar="cpython,monty",
        type=names((*PYTHON_ENGINES, *PYTHON_PEERS)),
        default=(*PYTHON_ENGINES, *PYTHON_PEERS),
        help="these engines and peers only (default: all)",
    )
    parser.add_argument(
        "--peers-python",
        metavar="PATH",
        default=str(made) if made.exists() else sys.executable,
        help="the Python that has the peers (default: that of bench/peers/setup, else this one)",
    )
    parser.add_argument("--rounds", metavar="N", type=positive, default=5, help="how many rounds (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--detail", action="store_true", help="show minimum, 90th percentile and samples, too")
    return parser


def _drivers(chosen: Sequence[str], peers_python: str) -> list[Driver]:
    return [_peer(name, peers_python) if name in PYTHON_PEERS else corral_driver(name) for name in chosen]


def _peer(name: str, python: str) -> Driver:
    peer = PYTHON_PEERS[name]
    return replace(peer, command=(python, *peer.command[1:]), needs=None)


def main() -> None:
    options = _parser().parse_args()
    report = measure(
        _drivers(options.engines, options.peers_python),
        floor_driver("python"),
        only=frozenset(options.only),
        rounds=1 if options.quick else options.rounds,
        uvloop=False,
    )
    write(report, options.json, detail=options.detail)


if __name__ == "__main__":
    main()

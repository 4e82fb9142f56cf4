"""`python -m tests.soak --executions N --seed S --concurrency K`: exits 1 if the host is not flat, or an end not legal."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import anyio

from tests.soak.gauges import memory_growth, table
from tests.soak.programs import soak_programs
from tests.soak.run import Report, soak
from tests.soak.sessions import SessionReport, soak_sessions


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Runs many executions and checks the host.")
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--isolation", choices=["process", "fork"], default="process")
    parser.add_argument("--sessions", type=int, default=0, help="open so many sessions instead")
    parser.add_argument(
        "--programs", type=int, default=0, help="cut off and resume so many durable programs of each language instead"
    )
    parser.add_argument("--round", type=int, default=None, help="executions between two measurements")
    options = parser.parse_args()
    logging.getLogger("corral").setLevel(logging.ERROR)  # it warns of every guest that we kill
    if options.programs:
        wrong = anyio.run(soak_programs, options.programs, options.seed)
        print("\n".join(wrong) or "Every program ended as if it had not been cut off.")  # noqa: T201
        return 1 if wrong else 0
    with tempfile.TemporaryDirectory(prefix="corral-soak-") as directory:
        tempfile.tempdir = directory
        report = anyio.run(_soak, options, Path(directory))
        tempfile.tempdir = None
    if isinstance(report, SessionReport):
        _print_sessions(report)
    else:
        _print(report)
    return 1 if report.wrong else 0


async def _soak(options: argparse.Namespace, temporary: Path) -> Report | SessionReport:
    executions: int = options.executions
    if options.sessions:
        return await soak_sessions(
            sessions=options.sessions, seed=options.seed, concurrency=options.concurrency, temporary=temporary
        )
    return await soak(
        executions=executions,
        seed=options.seed,
        concurrency=options.concurrency,
        round_size=options.round or max(25, min(500, executions // 6)),
        temporary=temporary,
        isolation=options.isolation,
    )


def _print(report: Report) -> None:
    lines = [f"{count:6}  {end}" for end, count in sorted(report.ends.items())]
    lines += [
        f"{len(report.kills):6}  guests and {len(report.launcher_kills)} launchers killed from outside",
        f"{report.lost:6}  executions ended by that",
        "",
        table(report.measured),
        "",
        f"memory of the host: {memory_growth(report.measured):+.1f} MB; {report.seconds:.0f} s",
    ]
    lines += ["", "Deviations:", *report.wrong] if report.wrong else ["", "The host is flat, and every end was legal."]
    print("\n".join(lines))  # noqa: T201


def _print_sessions(report: SessionReport) -> None:
    lines = [f"{count:6}  {end}" for end, count in sorted(report.ends.items())]
    lines += [f"{report.kills:6}  processes killed from outside", "", table(report.measured)]
    lines += ["", "Deviations:", *report.wrong] if report.wrong else ["", "Nothing is left of any session."]
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

"""What a first result waits for, in a new process each time. `python -m bench.opening`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from bench.options import names, positive

_PROGRAMS = {"typescript": "return 1", "python": "1"}
_COLUMNS = {
    "result": "process to result, ms",
    "import": "of it import, ms",
    "opening": "Corral() to result, ms",
    "host": "host's processor, ms",
    "all": "all processors, ms",
}
_ROOT = Path(__file__).resolve().parents[1]

_DRIVER = """
import asyncio, json, sys, time

async def main(language, code, started, check):
    importing = time.monotonic()
    import corral
    make = corral.Corral
    making = time.monotonic()
    sandbox = {"typescript": "deno", "python": "cpython"}[language]
    async with make(sandbox=sandbox, check=check == "1") as opened:
        result = await opened.execute(code, language=language)
        done, host = time.monotonic(), time.process_time()
        assert result.value == 1, result
    times = {"result": done - float(started), "import": making - importing, "opening": done - making, "host": host}
    print(json.dumps({name: seconds * 1e3 for name, seconds in times.items()}))

asyncio.run(main(*sys.argv[1:]))
"""
"""Runs in a process of its own, and writes one sample."""

Sample: TypeAlias = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.opening",
        description="Medians, and in brackets the least. Each sample is a new process that opens a Corral and runs one"
        " trivial program; languages and trees take turns.",
    )
    parser.add_argument(
        "--languages",
        metavar="typescript,python",
        type=names(tuple(_PROGRAMS)),
        default=tuple(_PROGRAMS),
        help="default: both",
    )
    parser.add_argument("--rounds", metavar="N", type=positive, default=10, help="samples of each; default: 10")
    parser.add_argument("--beside", metavar="SRC", type=Path, help="the folder src of another tree, to compare with")
    parser.add_argument("--no-check", action="store_true", help="without a language server")
    options = parser.parse_args()
    trees: list[Path] = [_ROOT / "src", *([] if options.beside is None else [options.beside])]
    samples: dict[tuple[str, Path], list[Sample]] = {(each, tree): [] for each in options.languages for tree in trees}
    for tree in trees:
        for language in options.languages:
            _sample(
                language, tree, check=not options.no_check
            )  # bytecode and the files of engines are in the cache now
    for _ in range(options.rounds):
        for (language, tree), found in samples.items():
            found.append(_sample(language, tree, check=not options.no_check))
    print("", *_COLUMNS.values(), sep=" | ")
    for (language, tree), found in samples.items():
        row = [f"{_median(found, key):.0f} ({min(each[key] for each in found):.0f})" for key in _COLUMNS]
        print(f"{language}, {tree}", *row, sep=" | ")


def _median(samples: Sequence[Sample], key: str) -> float:
    return statistics.median(each[key] for each in samples)


def _sample(language: str, tree: Path, *, check: bool) -> Sample:
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER, language, _PROGRAMS[language], str(started), str(int(check))],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        sample: Sample = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {**sample, "all": (usage.ru_utime + usage.ru_stime) * 1e3}


if __name__ == "__main__":
    main()

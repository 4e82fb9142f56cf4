"""`python -m bench.bridge`: what the guards, and the bridges over HTTP, cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

from bench.bridge.grpc import measure_grpc
from bench.bridge.http import measure_latency, measure_load
from bench.bridge.pipe import measure_pipe
from bench.bridge.schemas import measure_schemas
from bench.host import describe_host

_PROTOCOLS: tuple[str, ...] = ("http", "graphql", "trpc", "connect")
_PARTS = ("pipe", *_PROTOCOLS, "grpc", "load", "schemas")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bridge", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds; medians are over them (default: 5)")
    parser.add_argument("--only", choices=_PARTS, action="append", help="measure this part only; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    parts = arguments.only or _PARTS
    report: dict[str, object] = {"host": describe_host(uvloop=False)}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if "pipe" in parts:
            report["pipe, us a call"] = asyncio.run(measure_pipe(arguments.rounds, directory))
        for protocol in _PROTOCOLS:
            if protocol in parts:
                report[f"{protocol}, us"] = measure_latency(arguments.rounds, directory, protocol)
        if "grpc" in parts:
            report["grpc, us"] = measure_grpc(arguments.rounds)
        if "load" in parts:
            report["load"] = measure_load(max(1, arguments.rounds // 2), directory)
        if "schemas" in parts:
            report["schemas, ms of processor time"] = measure_schemas(arguments.rounds)
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for part, values in report.items():
        if part != "host" and isinstance(values, dict):
            print(part)
            for key, value in values.items():  # pyright: ignore[reportUnknownVariableType]
                print(f"  {key:18} {value:10.2f}")


if __name__ == "__main__":
    main()

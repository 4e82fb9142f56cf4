"""The benchmarks run and say what they found in the form that docs/benchmarks.md describes. No test is about times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, module: str = "bench") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.matrix("benchmarks are run by hand; their arguments are in the gate")
def test_one_round_of_one_workload_gives_a_report(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = bench("--only", "W1", "--rounds", "1", "--engines", "deno", "--json", str(file))
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    assert set(report) == {"host", "rounds", "floors", "rows"}
    assert report["rounds"] == 1
    assert {"cpu", "cores", "memory_mb", "system", "python", "event_loop", "load"} == set(report["host"])
    assert set(report["floors"]) == {"process", "start", "echo"}
    [row] = report["rows"]
    assert (row["name"], row["kind"], row["status"], row["reason"]) == ("deno", "corral", "measured", None)
    assert set(row["versions"]) == {"corral", "deno"}
    assert row["errors"] == {}
    assert row["memory"] == {}
    assert set(row["measures"]) == {"W1"}
    measure = row["measures"]["W1"]
    assert set(measure) == {"unit", "median", "min", "p90", "samples", "times_floor"}
    assert (measure["unit"], measure["samples"]) == ("ms", 10)
    assert "deno" in done.stdout


@pytest.mark.matrix("a round of `bench` gives a report too; `bench.python`, with four engines")
def test_one_round_of_python_has_floors_of_its_own_and_says_what_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    engines = "cpython,monty-sandbox,monty,smolagents"
    arguments = ("--quick", "--only", "W1,W2", "--engines", engines, "--peers-python", sys.executable)
    done = bench(*arguments, "--json", str(file), module="bench.python")
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["rounds"] == 1
    assert set(report["floors"]) == {"process", "start", "echo", "fib"}
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == engines.split(",")
    for name in ("cpython", "monty-sandbox", "monty"):
        assert (rows[name]["status"], rows[name]["errors"]) == ("measured", {})
        assert set(rows[name]["measures"]) == {"W1", "W2"}
        assert "times_floor" in rows[name]["measures"]["W1"]
    assert set(rows["monty-sandbox"]["versions"]) == {"corral", "pydantic-monty"}
    assert rows["smolagents"]["status"] == "not available"
    assert "bench/peers/setup" in rows["smolagents"]["reason"]


@pytest.mark.parametrize(
    "module",
    [
        "bench",
        pytest.param("bench.python", marks=pytest.mark.matrix("the other program reads its options by the same code")),
    ],
)
@pytest.mark.parametrize("arguments", [("--only", "W9"), ("--engines", "abacus"), ("--rounds", "0")])
def test_what_cannot_be_measured_is_refused_with_what_can(arguments: tuple[str, str], module: str) -> None:
    done = bench(*arguments, module=module)
    assert done.returncode == 2
    assert "there are: " in done.stderr or "at least 1" in done.stderr

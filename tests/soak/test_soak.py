"""Executions of every kind leave the host as it was. `scripts/soak` runs ten thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--executions 100 --round 20 --isolation fork", id="fork"),
        pytest.param("--executions 100 --round 20 --isolation process", id="process"),
    ],
)
@pytest.mark.matrix("tests of ends, limits and forks in the gate say it of single executions; endurance")
def test_the_host_is_flat_and_every_execution_ends_as_it_may(options: str) -> None:
    _soak(*options.split(), "--concurrency", "4")


@pytest.mark.matrix("sessions whose guest is killed are in the gate one by one; endurance")
@pytest.mark.parametrize("sessions", [10, 20])
def test_nothing_is_left_of_sessions_whose_guests_are_killed(sessions: int) -> None:
    _soak("--sessions", str(sessions), "--concurrency", "3")


def _soak(*options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--seed", "7", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

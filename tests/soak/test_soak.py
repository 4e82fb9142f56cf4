"""Hundreds of executions of every kind leave the host as it was. `scripts/soak` runs ten thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("isolation", ["process", "fork"])
def test_the_host_is_flat_and_every_execution_ends_as_it_may(isolation: str) -> None:
    _soak("--executions", "100", "--round", "20", "--seed", "7", "--concurrency", "4", "--isolation", isolation)


def test_nothing_is_left_of_sessions_whose_guests_are_killed() -> None:
    _soak("--sessions", "20", "--seed", "7", "--concurrency", "3")


def _soak(*options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

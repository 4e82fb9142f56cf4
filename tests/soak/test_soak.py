"""Some hundred executions of every kind leave the host as it was. `scripts/soak` runs ten thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_host_is_flat_and_every_execution_ends_as_it_may() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--executions", "300", "--seed", "7", "--concurrency", "4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

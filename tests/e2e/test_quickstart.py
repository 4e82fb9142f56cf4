from __future__ import annotations

import sys
from pathlib import Path

from tests.forks import run_forked

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_prints_the_value_that_its_program_returned() -> None:
    ran = run_forked([sys.executable, "-W", "error", str(QUICKSTART)])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "{'city': 'Tromsø', 'coldest': -6.5, 'compared': 3}\n"

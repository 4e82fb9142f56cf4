from __future__ import annotations

import subprocess
import sys
from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_prints_the_value_that_its_program_returned() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", "-W", "error", QUICKSTART],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "{'city': 'Tromsø', 'coldest': -6.5, 'compared': 3}\n"

"""Every denial is made by one guard: without it, the checks of that denial fail; with it, all hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security.denials import DENIALS

ROOT = Path(__file__).parents[2]


def checks_that_fail(source: Path) -> dict[str, str]:
    """What `tests.security.denials` says against the corral in `source`."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.security.denials"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_all_denials_hold_with_all_guards() -> None:
    assert checks_that_fail(ROOT / "src") == {}


@pytest.mark.parametrize("guard", DENIALS)
def test_a_denial_does_not_hold_without_its_guard(guard: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src" / "corral", tmp_path / "corral")  # with what is compiled already
    file = tmp_path / "corral" / "bridges" / "guards.py"
    text, removed = re.subn(
        rf"^    (handler =|return) {guard}\(handler\b.*$",
        lambda match: "    return handler" if match[1] == "return" else "    # removed",
        file.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert removed == 1, f"guards.pipeline does not put {guard} in its place by one line"
    file.write_text(text, encoding="utf-8")
    failing = checks_that_fail(tmp_path)
    assert {check.__name__ for check in DENIALS[guard]} <= {*failing}

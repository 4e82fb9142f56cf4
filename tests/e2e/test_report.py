"""The example of a session: two programs in two languages make a picture."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.matrix(
    "tests/sessions/test_together.py has programs in two languages share files; this one draws a picture"
)
def test_the_script_makes_a_picture_and_tells_nobody_the_key(tmp_path: Path) -> None:
    picture = tmp_path / "totals.png"
    command = [sys.executable, "examples/report/main.py", str(picture)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"collect\.ts: succeeded in .*: 500 orders\n  files: /workspace/orders\.zip\n", done.stdout)
    assert re.search(r"draw\.md: succeeded in .*\n  files: /workspace/totals\.png\n", done.stdout)
    assert "the-key-of-the-host" not in done.stdout + done.stderr
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", content[16:24]) == (400, 240)

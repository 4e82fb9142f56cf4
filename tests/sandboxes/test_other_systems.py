"""macOS and Windows, as far as Linux can stand in: `portable.py` takes away what they do not have."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "platform",
    ["win32", pytest.param("darwin", marks=pytest.mark.matrix("`win32` lacks all that this one lacks, and more"))],
)
def test_programs_run_without_anything_of_linux(platform: str) -> None:
    command = [sys.executable, "-m", "tests.sandboxes.portable", platform]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["value"] == ["succeeded", 3, None, ["hello"], "none"]
    assert found["error"] == ["failed", None, ["program_failed", 2], [], "none"]
    assert found["files"][1] == "undefined"
    assert found["timeout"][2] == found["waiting"][2] == ["program_timeout", None]
    assert found["python"] == ["succeeded", 3, None, [], "interpreter"]
    assert found["long"] == 7
    assert found["checked"] == [3, False]

    assert found["unaccepted"][0] == "LimitNotEnforceable"
    assert "accept_unenforced={'cpu_seconds', 'memory_mb'}" in found["unaccepted"][1]
    assert found["tier"][0] == "StartFailed"
    assert "required_tier='none'" in found["tier"][1]

    doctor = found["doctor"]
    assert (doctor["tier"], doctor["python"], doctor["attempts"]) == ("none", "interpreter", [])
    assert [each["tier"] for each in doctor["verdicts"] if each["works"]] == ["none"]
    assert "accept_unenforced" in doctor["layers"][-1]["remedy"]
    assert found["left"] == []

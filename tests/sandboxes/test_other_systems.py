"""macOS and Windows, as far as Linux can simulate them: `portable.py` removes features that they lack."""

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
    outcomes = json.loads(done.stdout)

    assert outcomes["value"] == ["succeeded", 3, None, ["hello"], "none"]
    assert outcomes["error"] == ["failed", None, ["program_failed", 2], [], "none"]
    assert outcomes["files"][1] == "undefined"
    assert outcomes["timeout"][2] == outcomes["waiting"][2] == ["program_timeout", None]
    assert outcomes["python"] == ["succeeded", 3, None, [], "interpreter"]
    assert outcomes["long"] == 7
    assert outcomes["checked"] == [3, False]

    assert outcomes["unaccepted"][0] == "LimitNotEnforceable"
    assert "accept_unenforced={'cpu_seconds', 'memory_mb'}" in outcomes["unaccepted"][1]
    assert outcomes["tier"][0] == "StartFailed"
    assert "containment='none'" in outcomes["tier"][1]

    doctor = outcomes["doctor"]
    assert (doctor["tier"], doctor["python"], doctor["attempts"]) == ("none", "interpreter", [])
    assert [each["tier"] for each in doctor["verdicts"] if each["works"]] == ["none"]
    assert "Containment" in doctor["layers"][-1]["remedy"]
    assert outcomes["left"] == []

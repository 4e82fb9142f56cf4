"""The gate leaves out nothing but what says why, and no more of it than is written here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tests.forked
from tests.census import COLLECTED, Counted

MATRIX: dict[str, int] = {
    "bench": 10,
    "bridges": 510,
    "chat": 10,
    "checking": 30,
    "cli": 24,
    "cluster": 71,
    "docs": 16,
    "doctor": 2,
    "e2e": 138,
    "egress": 1,
    "environments": 10,
    "guest": 9,
    "integrations": 93,
    "jail": 17,
    "ledger": 1,
    "model": 36,
    "newcomer": 6,
    "packages": 31,
    "policy": 20,
    "programs": 35,
    "protocols": 4,
    "rendering": 25,
    "running": 67,
    "sandboxes": 28,
    "security": 27,
    "sessions": 100,
    "shells": 441,
    "soak": 4,
    "sources": 12,
    "test_architecture.py": 8,
    "test_english.py": 1,
    "test_gate.py": 1,
    "test_public_api.py": 3,
    "test_release.py": 1,
    "testing": 220,
    "tools": 7,
}
"""Tests of the matrix by folder. `python -m tests.census` counts them, and those of the gate."""


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[Counted]:
    """What this run has collected: all tests, or those that it was asked for."""
    return request.config.stash[COLLECTED]


def test_as_many_tests_are_left_out_of_the_gate_as_stands_here(
    collected: list[Counted], request: pytest.FixtureRequest
) -> None:
    matrix = Counter(each.folder for each in collected if each.reason is not None)
    if request.config.args == request.config.getini("testpaths"):
        assert matrix == MATRIX
    assert not matrix - Counter(MATRIX)


def test_what_is_left_out_says_why(collected: list[Counted]) -> None:
    assert [each.id for each in collected if each.reason is not None and len(each.reason.split()) < 4] == []


def test_every_folder_but_that_of_endurance_has_tests_in_the_gate(collected: list[Counted]) -> None:
    of_gate = {each.folder for each in collected if each.reason is None}
    assert {each.folder for each in collected} - of_gate <= {"soak", "test_english.py"}  # which `scripts/check` runs


@pytest.mark.matrix("whoever breaks an import sees it in other ways; here the processes of a run are forked")
def test_a_file_that_cannot_be_imported_fails_a_run_of_forked_processes(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(tests.forked.__file__, folder)
    (folder / "__init__.py").touch()
    (folder / "test_broken.py").write_text("import no_such_module\n")
    (folder / "test_whole.py").write_text("def test_one(): pass\n")
    options = ("-p", "tests.forked", "--numprocesses", "1", "--rootdir", str(tmp_path), "--import-mode", "importlib")
    command = [sys.executable, "-m", "pytest", *options]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'no_such_module'" in run.stdout
    assert "1 passed, 1 error" in run.stdout
    assert run.returncode == 1

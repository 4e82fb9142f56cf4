"""Counts the tests of the gate and of the matrix: `python -m tests.census` prints them by folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

_MARK = "collected: "


class Counted(NamedTuple):
    """A test, and why it is of the matrix; None: it is of the gate."""

    id: str
    reason: str | None

    @property
    def folder(self) -> str:
        """The folder of the test below `tests`, or its file if that is in none."""
        return self.id.partition("::")[0].removeprefix("tests/").split("/")[0]


@cache
def tests() -> tuple[Counted, ...]:
    """All tests, as a pytest of its own collects them."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.census", "--collect-only", "--quiet", "--quiet"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return tuple(Counted(*each) for each in json.loads(done.stdout.partition(_MARK)[2].partition("\n")[0]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """In that pytest: prints what has been collected."""
    marked = ((item.nodeid, item.get_closest_marker("matrix")) for item in session.items)
    found = [[id_, None if mark is None else str(mark.args[0])] for id_, mark in marked]
    sys.stdout.write(f"{_MARK}{json.dumps(found)}\n")


def main() -> None:
    gate = Counter(each.folder for each in tests() if each.reason is None)
    matrix = Counter(each.folder for each in tests() if each.reason is not None)
    for folder in sorted(gate | matrix):
        sys.stdout.write(f"{folder:24}{gate[folder]:6}{matrix[folder]:6}\n")
    sys.stdout.write(f"{'all':24}{gate.total():6}{matrix.total():6}\n")


if __name__ == "__main__":
    main()

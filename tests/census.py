"""Counts the tests of the gate and of the matrix: `python -m tests.census` prints them by folder."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")


class Counted(NamedTuple):
    """A test, and why it is of the matrix; None: it is of the gate."""

    id: str
    reason: str | None

    @property
    def folder(self) -> str:
        """The folder of the test below `tests`, or its file if that is in none."""
        return self.id.partition("::")[0].removeprefix("tests/").split("/")[0]


def with_rest(values: Iterable[T], gate: Container[T], reason: str) -> list[ParameterSet]:
    """Returns the parameters of a test, of which those that are not of the gate are of the matrix for this reason."""
    return [pytest.param(value, marks=[] if value in gate else [pytest.mark.matrix(reason)]) for value in values]


COLLECTED = pytest.StashKey[list[Counted]]()


def note(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Notes what pytest has collected, before the gate leaves anything out."""
    marked = ((item.nodeid, item.get_closest_marker("matrix")) for item in items)
    config.stash[COLLECTED] = [Counted(id_, None if mark is None else str(mark.args[0])) for id_, mark in marked]


def pytest_collection_finish(session: pytest.Session) -> None:
    """As a plugin: prints the numbers of the gate and of the matrix by folder."""
    collected = session.config.stash[COLLECTED]
    gate = Counter(each.folder for each in collected if each.reason is None)
    matrix = Counter(each.folder for each in collected if each.reason is not None)
    for folder in sorted(gate | matrix):
        sys.stdout.write(f"{folder:24}{gate[folder]:6}{matrix[folder]:6}\n")
    sys.stdout.write(f"{'all':24}{gate.total():6}{matrix.total():6}\n")


if __name__ == "__main__":
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.census",
        "-p",
        "no:terminal",
        "-o",
        "addopts=--import-mode=importlib --strict-markers --disable-plugin-autoload -panyio",
        "--collect-only",
    ]
    sys.exit(subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode)

"""The gate leaves out nothing but what says why, and no more of it than is written here."""

from __future__ import annotations

from collections import Counter

import pytest

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

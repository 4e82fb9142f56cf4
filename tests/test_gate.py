"""The gate leaves out nothing but what says why, and no more of it than is written here."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.census import COLLECTED, Counted

MATRIX: dict[str, int] = {
    "bench": 8,
    "bridges": 471,
    "chat": 6,
    "checking": 12,
    "cli": 7,
    "cluster": 31,
    "docs": 13,
    "e2e": 91,
    "environments": 7,
    "guest": 9,
    "integrations": 32,
    "jail": 14,
    "model": 11,
    "newcomer": 1,
    "packages": 21,
    "policy": 10,
    "programs": 1,
    "protocols": 2,
    "running": 42,
    "sandboxes": 12,
    "security": 26,
    "sessions": 55,
    "shells": 387,
    "soak": 4,
    "sources": 5,
    "test_architecture.py": 7,
    "test_public_api.py": 1,
    "test_release.py": 1,
    "testing": 165,
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
    assert {each.folder for each in collected} - of_gate <= {"soak"}

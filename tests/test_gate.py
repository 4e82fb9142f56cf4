"""The gate leaves out nothing but what says why, and no more of it than is written here."""

from __future__ import annotations

from collections import Counter

from tests import census

MATRIX: dict[str, int] = {}
"""Tests of the matrix by folder. `python -m tests.census` counts them, and those of the gate."""


def test_as_many_tests_are_left_out_of_the_gate_as_stands_here() -> None:
    assert Counter(each.folder for each in census.tests() if each.reason is not None) == MATRIX


def test_what_is_left_out_says_why() -> None:
    assert not {each.id for each in census.tests() if each.reason is not None and len(each.reason.split()) < 4}


def test_every_folder_has_tests_in_the_gate() -> None:
    folders = {each.folder for each in census.tests()}
    assert folders == {each.folder for each in census.tests() if each.reason is None}

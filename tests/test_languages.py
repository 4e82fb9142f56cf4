"""The language of a program is told by the name of its file."""

from __future__ import annotations

from corral.languages import language_of_file


def test_the_language_of_a_file_is_told_by_its_name() -> None:
    assert [language_of_file(name) for name in ("a.py", "a.ts", "a.mjs", "-")] == [
        "python",
        "typescript",
        "typescript",
        "typescript",
    ]

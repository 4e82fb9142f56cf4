"""Excerpts of a source: the caret stands below the place, whatever the line is made of."""

from __future__ import annotations

import pytest

from corral.cli.report import excerpt
from corral.cli.screen import width


def caret_and_text(source: str, line: int, column: int, columns: int = 80) -> tuple[int, str]:
    """The caret's column on the screen, from 0, and the line above it."""
    lines = excerpt(source, line, column, columns=columns)
    index = next(number for number, text in enumerate(lines) if text.endswith("| ^") or text.rstrip("^").endswith(" "))
    return width(lines[index]) - 1, lines[index - 1]


def test_a_place_is_shown_between_its_neighbours() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 12))
    assert excerpt(source, 10, 6, columns=80) == [
        "   |",
        " 9 | line 9",
        "10 | line 10",
        "   |      ^",
        "11 | line 11",
    ]


def test_the_first_and_the_last_line_have_one_neighbour() -> None:
    assert excerpt("a\nb", 1, 1, columns=80) == ["  |", "1 | a", "  | ^", "2 | b"]
    assert excerpt("a\nb", 2, 1, columns=80) == ["  |", "1 | a", "2 | b", "  | ^"]


@pytest.mark.parametrize("line", [0, 3])
def test_a_line_that_is_not_there_has_no_excerpt(line: int) -> None:
    assert excerpt("a\nb", line, 1, columns=80) == []


@pytest.mark.parametrize(
    ("line", "units_before"),
    [
        ("abc HERE", 4),
        ("\t\tHERE", 2),
        ("天気 = HERE", 5),
        ("'😀𝒳' + HERE", 9),
        ("'e\u0301' HERE", 5),
        ("'\x1b[2J' HERE", 7),
    ],
    ids=["plain", "tabs", "wide", "astral", "combining", "control"],
)
def test_the_caret_stands_below_the_place(line: str, units_before: int) -> None:
    caret, text = caret_and_text(line, 1, units_before + 1)
    assert width(text[: text.index("HERE")]) == caret


def test_a_column_past_the_end_stands_at_the_end() -> None:
    caret, text = caret_and_text("abc", 1, 99)
    assert caret == width(text)


@pytest.mark.parametrize("before", [0, 30, 500, 5_000])
def test_a_long_line_is_cut_around_the_place(before: int) -> None:
    caret, text = caret_and_text("x" * before + "HERE" + "y" * 5_000, 1, before + 1, columns=60)
    assert text[caret:].startswith("HERE")
    assert width(text) <= 60


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028", "\u2029"])
def test_lines_end_where_they_end_for_an_engine(end: str) -> None:
    assert excerpt(f"a{end}b", 2, 1, columns=80)[1:3] == ["1 | a", "2 | b"]

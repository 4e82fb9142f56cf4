"""What a person is shown before an approval is all of it, and looks like nothing else."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, TypeAdapter

from corral.errors import ApprovalDenied
from corral.rendering.full_text import escape_hidden, full_text


class Color(Enum):
    RED = "red"


class Pay(BaseModel):
    model_config = ConfigDict(extra="allow")
    to: str
    euros: int = Field(10_000, alias="amount", exclude=True)


class Pair(NamedTuple):
    left: int
    right: int


@dataclasses.dataclass
class Box:
    size: int = 2


class Numbers(RootModel[list[int]]):
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": True, "c": -1.5, "d": "e"}, '{"a": null, "b": true, "c": -1.5, "d": "e"}'),
        (Pay.model_validate({"to": "eve", "amount": 9, "more": [1]}), '{"to": "eve", "euros": 9, "more": [1]}'),
        (Pair(1, 2), '{"left": 1, "right": 2}'),
        (Box(), '{"size": 2}'),
        (Numbers([1]), "[1]"),
        (OrderedDict({1: (2,), "1": deque([3])}), '{1: [2], "1": [3]}'),
        ([date(2026, 1, 31), Decimal("1.50"), UUID(int=1)], '["2026-01-31", "1.50", "' + str(UUID(int=1)) + '"]'),
        ([Color.RED, ZoneInfo("Europe/Oslo"), b"\0", float("nan")], '["red", "Europe/Oslo", "AA==", nan]'),
        (SecretStr("secret"), '"**********"'),
        ({}, "{}"),
        ("x" * 998, '"' + "x" * 998 + '"'),
    ],
)
def test_values_of_all_kinds_are_shown_whole(value: object, text: str) -> None:
    assert full_text(value, 1_000) == text


def test_what_does_not_fit_on_a_line_has_a_line_for_each_member_and_the_long_ones_last() -> None:
    memo = "." * 300
    value = {"memo": memo, "to": "eve", "items": ["ä", {"n": 1}]}
    items = '"items": [\n    "ä",\n    {"n": 1}\n  ]'
    assert full_text(value, 1_000) == f'{{\n  "to": "eve",\n  {items},\n  "memo": "{memo}"\n}}'
    assert full_text(value, 1_000, long_first=True) == f'{{\n  "memo": "{memo}",\n  "to": "eve",\n  {items}\n}}'


class Elsewhere:
    """Nobody knows how to write it."""


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Lazy:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Any:
        for number in range(1_000_000):
            self.read += 1
            yield number

    def items(self) -> Any:
        return ((each, each) for each in self)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x" * 1_000, "takes more than 1,000 characters"),
        ([1] * 400, "takes more than 1,000 characters"),
        (1 << 1_000_000, "takes more than 1,000 characters"),
        (b"x" * 1_000_000, "takes more than 1,000 characters"),
        (deep(200), "nested more than 50 deep"),
        ({"a": Elsewhere()}, "a value of type Elsewhere"),
        (Pay.model_validate({"to": "eve", "amount": 9, "euros": 1}), "two members with the same name"),
    ],
    ids=range(7),
)
def test_what_cannot_be_shown_whole_is_denied(value: object, reason: str) -> None:
    with pytest.raises(ApprovalDenied, match=reason):
        full_text({"value": value, "long": "x" * 50 if reason.startswith("takes") else ""}, 1_000)


def test_an_input_that_can_be_read_once_is_left_to_its_tool() -> None:
    items = TypeAdapter(Iterable[int]).validate_python([1, 2])
    with pytest.raises(ApprovalDenied, match="which cannot be shown to a person"):
        full_text({"items": items}, 1_000)
    assert list(items) == [1, 2]


def test_no_more_is_read_than_can_be_shown() -> None:
    lazy = Lazy()

    class Mapped(OrderedDict[int, int]):
        def items(self) -> Any:
            return lazy.items()

    with pytest.raises(ApprovalDenied):
        full_text(Mapped(), 1_000)
    assert lazy.read < 1_000


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain, and ünïcödé: 日本語 שלום हिन्दी", "plain, and ünïcödé: 日本語 שלום हिन्दी"),
        ("a\nb\r\x1b[2J\x9b\u2028", r"a\u{a}b\u{d}\u{1b}[2J\u{9b}\u{2028}"),
        ("\u202e\u2066\u200b\ufeff\u00ad", r"\u{202e}\u{2066}\u{200b}\u{feff}\u{ad}"),
        ("\u3164\u2800\ufe0f\U000e0041\u115f\u034f", r"\u{3164}\u{2800}\u{fe0f}\u{e0041}\u{115f}\u{34f}"),
        ("e\u0301\u0301\u0301\u0301", "e\u0301\u0301" + r"\u{301}\u{301}"),
        ('"\u0301', r'"\u{301}'),
        (" " * 8 + "x" + " " * 9, " " * 8 + "x" + " " * 8 + r"\u{20}"),
        ("\ud800", r"\u{d800}"),
    ],
)
def test_characters_that_hide_move_or_imitate_are_escapes(text: str, seen: str) -> None:
    assert escape_hidden(text) == seen

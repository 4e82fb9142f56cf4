"""How a budget is filled: as much as there is room for, and never less of it with more room."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral import Tool, define_tool
from corral.model import Catalog
from corral.model.catalog import estimated_tokens, fill_budget
from corral.model.printing.printers import Degree
from corral.tools import ToolRegistry
from corral.types import Language, ToolName
from tests.model.catalog.google import google_tools
from tests.model.catalog.making import anything
from tests.work import examples

DEGREES = list(Degree)
COSTS = st.lists(st.lists(st.integers(0, 60), min_size=5, max_size=5), min_size=1, max_size=12)
"""Of each tool, what each degree takes more than the one before."""


def names_of(costs: list[list[int]]) -> list[ToolName]:
    return [ToolName(None, f"t{number}") for number in range(len(costs))]


def filled(costs: list[list[int]], budget: int, likely: int = 0) -> list[Degree]:
    names = names_of(costs)
    table = dict(zip(names, costs, strict=True))

    def cost(degrees: Mapping[ToolName, Degree]) -> int:
        return sum(sum(table[name][:degree]) for name, degree in degrees.items())

    degrees = fill_budget(names, names[len(names) - likely :], cost, budget)
    assert cost(degrees) <= budget
    return [degrees[name] for name in names]


@given(COSTS)
def test_nothing_is_lost_when_everything_fits(costs: list[list[int]]) -> None:
    assert filled(costs, sum(map(sum, costs))) == [Degree.FULL] * len(costs)


@given(COSTS, st.integers(0, 3600), st.integers(0, 200), st.integers(0, 3))
@settings(max_examples=examples(300))
@pytest.mark.matrix("the gate fills budgets of each size; a catalog for each of them")
def test_a_larger_budget_never_shows_less(costs: list[list[int]], budget: int, more: int, likely: int) -> None:
    """Compared is what is shown in the order in which it is decided on: likely tools, then degree by degree."""

    def decided(budget: int) -> list[bool | Degree]:
        degrees = filled(costs, budget, min(likely, len(costs)))
        first = len(costs) - min(likely, len(costs))
        return [*degrees[first:], *(degree >= each for each in DEGREES[1:] for degree in degrees[:first])]

    assert decided(budget + more) >= decided(budget)


@given(COSTS, st.integers(0, 3600))
def test_what_one_more_would_take_is_all_that_is_left(costs: list[list[int]], budget: int) -> None:
    degrees = filled(costs, budget)
    spent = sum(sum(each[:degree]) for each, degree in zip(costs, degrees, strict=True))
    lowest = min(degrees)
    waiting = [each[lowest] for each, degree in zip(costs, degrees, strict=True) if degree == lowest < Degree.FULL]
    assert all(spent + each > budget for each in waiting[:1])


def test_degrees_are_raised_together_and_likely_tools_come_first() -> None:
    costs = [[1, 10, 10, 10, 10]] * 4
    assert filled(costs, 4) == [Degree.NAMED] * 4
    assert filled(costs, 44) == [Degree.SHORT] * 4
    assert filled(costs, 64) == [Degree.SUMMARIZED, Degree.SUMMARIZED, Degree.SHORT, Degree.SHORT]
    assert filled(costs, 44, likely=1) == [Degree.NAMED, Degree.NAMED, Degree.NAMED, Degree.FULL]


def test_what_has_no_room_does_not_keep_out_what_comes_after_it() -> None:
    costs = [[1, 10, 10, 10, 10], [1, 900, 10, 10, 10], [1, 10, 10, 10, 10]]
    assert filled(costs, 100) == [Degree.SHORT, Degree.NAMED, Degree.SHORT]


# --- catalogs


def typed(number: int) -> Tool:
    order = {
        "type": "object",
        "properties": {
            f"member_{each}": {"type": "string", "description": f"What the member {each} of {number} means."}
            for each in range(number % 5 + 2)
        },
    }
    return define_tool(
        name=f"tool_{number:02}",
        namespace=f"space{number % 3}" if number % 4 else None,
        description=f"Does the thing number {number}.\n\nAnd a second paragraph that says when not to do it.",
        input_schema=order,
        output_schema={**order, "title": f"Result {number % 2}"},
        execute=anything,
    )


TYPED = ToolRegistry(*map(typed, range(24)))


@pytest.mark.parametrize(
    "language",
    [
        "typescript",
        pytest.param("python", marks=pytest.mark.matrix("in TypeScript in the gate; what misses by little is in both")),
    ],
)
def test_the_budget_is_used_whatever_it_is(language: Language) -> None:
    whole = estimated_tokens(Catalog(TYPED, language, budget_tokens=100_000).text)
    shown: list[int] = []
    for budget in range(500, whole, 500):
        text = Catalog(TYPED, language, budget_tokens=budget).text
        assert 0.9 * budget <= estimated_tokens(text) <= budget
        shown.append(sum(text.count(sign) for sign in ("Promise<", "-> ", "What the member", "second paragraph")))
    assert shown == sorted(shown)


@pytest.mark.parametrize("language", ["typescript", "python"])
def test_to_miss_the_budget_by_little_loses_little(language: Language) -> None:
    whole = Catalog(TYPED, language, budget_tokens=100_000)
    size = estimated_tokens(whole.text)
    assert Catalog(TYPED, language, budget_tokens=size).text == whole.text
    missed = Catalog(TYPED, language, budget_tokens=size * 99 // 100)
    assert missed.level == "signatures"
    assert missed.text.count("second paragraph") == 24
    assert missed.text.count("What the member") >= 0.75 * whole.text.count("What the member")


def test_tools_that_the_host_names_are_shown_in_full() -> None:
    registry = ToolRegistry(*google_tools(300))
    text = Catalog(registry, budget_tokens=2_000, first=["gmail.users_getProfile", "keep"]).text
    assert "users_getProfile(input: {\n" in text
    assert "// Gets the current user's Gmail profile." in text
    assert "// The total number" not in Catalog(registry, budget_tokens=2_000).text


def test_the_order_of_registration_does_not_matter() -> None:
    reverse = ToolRegistry(*map(typed, reversed(range(24))))
    for budget in (500, 1_000, 1_500, 2_500):
        assert Catalog(reverse, budget_tokens=budget).text == Catalog(TYPED, budget_tokens=budget).text

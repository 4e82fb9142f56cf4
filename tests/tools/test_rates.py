from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral import define_tool, tool
from corral.errors import ToolDefinitionError
from corral.tools import ToolRegistry
from corral.tools.rates import Rate, parse_rate, parse_rates


@pytest.mark.parametrize(
    ("text", "rate", "shown"),
    [
        ("30/minute", Rate(30, 60), "30/minute"),
        ("5/second", Rate(5, 1), "5/second"),
        ("1000/hour", Rate(1000, 3600), "1000/hour"),
        ("1/day", Rate(1, 86_400), "1/day"),
        ("100/10s", Rate(100, 10), "100/10s"),
        ("3/15m", Rate(3, 900), "3/15m"),
        ("1/30d", Rate(1, 2_592_000), "1/30d"),
        ("1/60s", Rate(1, 60), "1/minute"),
        ("1/1h", Rate(1, 3600), "1/hour"),
        ("10000/second", Rate(10_000, 1), "10000/second"),
    ],
)
def test_a_rate_is_a_count_in_a_period(text: str, rate: Rate, shown: str) -> None:
    assert parse_rate(text) == rate
    assert str(rate) == shown


@pytest.mark.parametrize(
    "text",
    ["", "30", "30/", "/minute", "30/fortnight", "30/minutes", "30 / minute", "-1/minute", "1.5/minute", "30/m", "30/min",
     "3/1.5s", "1e3/minute", "٣/minute", "30/minute\n", "9" * 100_000 + "/day", "1/" + "9" * 100_000 + "d"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_forms_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a rate.*'30/minute', '100/10s'") as raised:
        parse_rate(text)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("text", ["0/minute", "1/0s", "1/31d", "1/9999999d", "10001/second", "999999999/day"])
def test_a_rate_is_bounded(text: str) -> None:
    with pytest.raises(ValueError, match="at least 1 call, in 1 second to 30 days, and at most 10,000 a second"):
        parse_rate(text)


@given(seconds=st.integers(1, 30 * 86_400), share=st.floats(0, 1))
def test_a_rate_is_read_as_it_is_written_and_rounding_costs_less_than_a_percent(seconds: int, share: float) -> None:
    rate = Rate(max(1, int(share * 10_000 * seconds) % 1_000_000_000), seconds)
    assert parse_rate(str(rate)) == rate
    assert seconds * 1_000_000 <= rate.interval_us * rate.count <= seconds * 1_010_000


async def _nothing(value: Any) -> None: ...


def test_a_plain_rate_of_a_tool_is_that_of_each_user() -> None:
    @tool(rate_limit="30/minute")
    def f() -> None: ...

    assert f.rates == {"user": Rate(30, 60)}
    assert tool(f.function).rates == {}


def test_a_tool_may_have_a_rate_for_every_scope() -> None:
    limit = {"user": "30/minute", "organization": "100/minute", "everyone": "1000/minute"}
    f = define_tool(name="f", rate_limit=limit, execute=_nothing)  # pyright: ignore[reportArgumentType]
    assert f.rates == {"user": Rate(30, 60), "organization": Rate(100, 60), "everyone": Rate(1000, 60)}


def test_rates_stay_when_a_tool_is_replaced_or_registered_in_a_namespace() -> None:
    f = define_tool(name="f", rate_limit="1/day", execute=_nothing)
    registry = ToolRegistry()
    registry.register(f, namespace="space")
    for same in (dataclasses.replace(f, description="other"), registry.resolve("space.f")):
        assert (same.rate_limit, same.rates) == ("1/day", {"user": Rate(1, 86_400)})
    assert dataclasses.replace(f, rate_limit=None).rates == {}


def test_a_tool_whose_mapping_is_changed_later_keeps_its_rates() -> None:
    limit: dict[Any, str] = {"user": "1/day"}
    f = define_tool(name="f", rate_limit=limit, execute=_nothing)
    limit.clear()
    assert f.rates == {"user": Rate(1, 86_400)}
    with pytest.raises(TypeError):
        f.rates["user"] = Rate(9, 1)  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("often", "'often' is not a rate"),
        ("0/minute", "at least 1 call"),
        (30, "takes str, a dict .* not 30; for example"),
        (["30/minute"], "takes str, a dict .* not a list"),
        (
            {"users": "30/minute"},
            "a key of rate_limit takes 'user', 'organization' or 'everyone', not 'users'; did you mean 'user'",
        ),
        ({"user": 30}, r"rate_limit\['user'\] takes str, not 30"),
        ({"user": None}, "takes str, not None"),
    ],
)
def test_a_wrong_rate_is_refused_when_the_tool_is_defined(limit: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"'f'.*{message}"):
        define_tool(name="f", rate_limit=limit, execute=_nothing)


def test_no_limit_and_an_empty_one_are_no_rates() -> None:
    assert parse_rates(None) == parse_rates({}) == {}

"""Names that may be meant: near ones are found, and looking for them costs the same among many."""

from __future__ import annotations

import pytest

from corral import Corral, ExecutionContext, Limits, tool
from corral.calls import Call, Grant
from corral.errors import ToolNotFound
from corral.rendering.suggestions import NearNames
from corral.tools import Tool, define_tool
from corral.tools.json_schema.problems import UNEXPECTED, Problem, SchemaMismatch
from corral.types import CallRequest
from tests.work import calls_of


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("serch", "search"),
        ("tpye", "type"),
        ("lst", "list"),
        ("bb", "b"),
        ("get_isue", "get_issue"),
        ("GetIssue", "get_issue"),
        ("x" * 10_000, None),
        ("", None),
    ],
)
def test_a_near_name_is_found(wanted: str, meant: str | None) -> None:
    names = NearNames(["list", "search", "get_issue", "type", "b", "unrelated"])
    assert names.of(wanted) == ([] if meant is None else [meant])


def test_among_many_names_a_look_up_costs_about_the_same() -> None:
    few, many = (NearNames(f"service_{i % 97}_operation_{i}" for i in range(count)) for count in (1_000, 20_000))
    wanted = "service_operation_do_something"
    assert few.of("service_3_operation_30x", 3)
    assert calls_of(lambda: many.of(wanted)) < 4 * calls_of(lambda: few.of(wanted))


def test_long_names_are_compared_as_far_as_short_ones() -> None:
    short, long = (NearNames("ab" * i + "ba" * (size - i) for i in range(30)) for size in (40, 4_000))
    assert calls_of(lambda: long.of("ab" * 5_000)) < 3 * calls_of(lambda: short.of("ab" * 40))


def test_fields_that_were_meant_are_looked_for_among_some_of_many() -> None:
    problems = [Problem((f"feild_{i}",), UNEXPECTED) for i in range(1_000)]
    mismatch = SchemaMismatch(problems)
    assert "did you mean field_1?" in SchemaMismatch(problems[1:2]).public(["field_1", "other"])
    few, many = ([f"field_{i}" for i in range(count)] for count in (1_000, 100_000))
    assert calls_of(lambda: mismatch.public(many)) < 1.2 * calls_of(lambda: mismatch.public(few))


def _grant(*tools: Tool[..., object]) -> Grant:
    registry = Corral(tools, check=False).tools
    return Grant(context=ExecutionContext(), limits=Limits(), tools=registry)


def test_only_the_first_unknown_names_of_an_execution_get_near_ones() -> None:
    @tool
    def get_issue() -> None: ...

    grant = _grant(get_issue)
    messages: list[str] = []
    for number in range(60):
        with pytest.raises(ToolNotFound) as raised:
            _ = Call(CallRequest("get_isue", {}, number, 2), grant).tool
        messages.append(str(raised.value))
    assert messages[0] == 'no tool "get_isue"; did you mean get_issue?'
    assert set(messages[30:]) == {'no tool "get_isue"'}


def test_further_unknown_names_cost_next_to_nothing() -> None:
    def echo(given: object) -> object:
        return given

    grant = _grant(*(define_tool(name=f"operation_{i}_do", execute=echo) for i in range(500)))

    def ask() -> None:
        with pytest.raises(ToolNotFound):
            _ = Call(CallRequest("operation_do_something", {}, 1, 2), grant).tool

    ask()
    first = calls_of(ask)
    for _ in range(30):
        ask()
    assert calls_of(ask) < first / 5

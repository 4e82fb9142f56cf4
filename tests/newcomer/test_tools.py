"""Tools as values: what they receive, how they are copied and sent, and what type checkers say of lists of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from corral import Corral, ExecutionContext, Tool, ToolCall, define_tool, tool
from corral.errors import ToolDefinitionError
from corral.tools import ToolRegistry


@tool(scopes=["read"], rate_limit="5/minute")
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def plain(n: int) -> int:
    """Gives it back."""
    return n


def give(value: object) -> object:
    return value


renamed = define_tool(name="other", execute=give)


@pytest.mark.parametrize("sent", [add, renamed], ids=repr)
def test_a_tool_of_a_module_is_found_by_its_name(sent: Tool) -> None:
    assert pickle.loads(pickle.dumps(sent)) is sent  # noqa: S301


def test_a_tool_that_was_made_of_one_keeps_its_own_settings() -> None:
    registry = ToolRegistry()
    registry.register(add, namespace="maths")
    sent = replace(registry.resolve("maths.add"), description="x", scopes=frozenset({"a"}))
    found = pickle.loads(pickle.dumps(sent))  # noqa: S301
    assert (found.label, found.description, found.scopes, found.rates) == ("maths.add", "x", {"a"}, add.rates)
    assert found(1, 2) == 3


def test_a_tool_that_no_name_leads_to_says_how_to_make_one_that_can_be_sent() -> None:
    for local in (tool(plain), define_tool(name="local", input_schema={"type": "object"}, execute=give)):
        with pytest.raises(pickle.PicklingError, match=r"has no such tool; define it there at module level"):
            pickle.dumps(local)


def test_a_copy_of_a_tool_is_the_tool() -> None:
    local = tool(plain)
    assert copy.copy(local) is copy.deepcopy([local])[0] is local


def with_default(input: Any, _n: int = 5) -> Any:
    return input, _n


def with_context_by_name(input: Any, other: int = 5, *, context: Any = None) -> Any:
    return input, other, context.user_id


def with_context_by_type(input: Any, other: int = 5, who: ExecutionContext | None = None) -> Any:
    return input, other, who and who.user_id


def with_second(input: Any, whoever: Any) -> Any:
    return input, whoever.user_id


def with_optional_context(input: Any, context: Any = None) -> Any:
    return input, context.user_id


def with_all(*given: Any) -> Any:
    return given[0], given[1].user_id


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("execute", "result"),
    [
        (with_default, ("x", 5)),
        (with_context_by_name, ("x", 5, "ada")),
        (with_context_by_type, ("x", 5, "ada")),
        (with_second, ("x", "ada")),
        (with_optional_context, ("x", "ada")),
        (with_all, ("x", "ada")),
    ],
)
async def test_the_context_goes_where_it_is_asked_for(execute: Callable[..., Any], result: object) -> None:
    made = define_tool(name="f", execute=execute)
    assert await made.execute(await made.parse_input("x"), ToolCall(ExecutionContext(user_id="ada"))) == result


def test_a_function_that_needs_more_than_input_and_context_is_refused() -> None:
    def execute(input: Any, context: ExecutionContext, more: int) -> None: ...

    with pytest.raises(ToolDefinitionError, match="nothing for 'more'"):
        define_tool(name="f", execute=execute)


def test_lists_and_tuples_of_tools_and_functions_are_tools_to_type_checkers() -> None:
    """It is the type checker that tests this: each is a type that one infers or that is written down."""
    decorated = [add, renamed]
    mixed = [add, plain]
    pair = (add, plain)
    functions: list[Callable[[int], int]] = [plain]
    several: Sequence[Tool | Callable[..., Any]] = [add, plain]
    for each in (
        Corral(decorated),
        Corral(mixed),
        Corral(pair),
        Corral(functions),
        Corral(several),
        Corral({add, plain}),
    ):
        assert len(each.tools) in (1, 2)

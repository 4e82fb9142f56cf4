from __future__ import annotations

import re
import threading
from typing import Any

import anyio
import pytest

from corral.errors import ToolDefinitionError, ToolNotFound
from corral.tools import Tool, ToolCall, ToolRegistry, define_tool, tool
from corral.types import ExecutionContext, ToolName
from tests.work import calls_of


def echo(value: Any) -> Any:
    return value


def named(name: str, namespace: str | None = None, description: str = "") -> Tool:
    return define_tool(name=name, namespace=namespace, description=description, execute=echo)


@tool
def add(a: int, b: int) -> int:
    return a + b


def test_plain_functions_and_tools_are_registered_alike() -> None:
    def subtract(a: int, b: int) -> int:
        return a - b

    registry = ToolRegistry(add, subtract)
    assert [str(name) for name in registry] == ["add", "subtract"]
    assert registry.resolve("add") is add
    assert len(registry) == 2


def test_a_tool_is_found_by_its_guest_name_and_by_its_original_name() -> None:
    registry = ToolRegistry(named("get-weather"), named("list issues", "git-hub"))
    for name in ("get_weather", "get-weather", ToolName(None, "get_weather")):
        assert registry.get(name) is registry.resolve("get_weather")
    assert registry.get("git-hub.list issues") is registry.resolve("git_hub.list_issues")
    assert registry.get("nope") is None
    assert "get-weather" in registry
    assert "nope" not in registry
    assert 3 not in registry


@pytest.mark.parametrize(("original", "guest"), [("get-weather", "get_weather"), ("class", "class_"), ("2fa", "_2fa")])
def test_a_tool_under_a_cleaned_name_is_called_as_the_original(original: str, guest: str) -> None:
    found = ToolRegistry(named(original)).resolve(guest)
    assert found.name == original
    assert anyio.run(found.execute, anyio.run(found.parse_input, {"a": 1}), ToolCall(ExecutionContext())) == {"a": 1}


def test_programs_reach_a_tool_by_its_guest_name_only() -> None:
    with pytest.raises(ToolNotFound):
        ToolRegistry(named("get-weather")).resolve("get-weather")


def test_registering_with_a_namespace_puts_all_tools_there() -> None:
    registry = ToolRegistry()
    registry.register(add, named("subtract", "elsewhere"), namespace="math")
    assert [str(name) for name in registry] == ["math.add", "math.subtract"]
    assert registry.namespaces() == ("math",)
    assert add.namespace is None


def test_a_missing_tool_is_an_error_with_near_names() -> None:
    registry = ToolRegistry(named("get_weather"), named("list_issues", "github"), named("list_issues", "linear"))
    with pytest.raises(ToolNotFound, match=r'^no tool "get_wether"; did you mean get_weather\?$'):
        registry.resolve("get_wether")
    with pytest.raises(ToolNotFound, match=r"did you mean github\.list_issues or linear\.list_issues\?"):
        registry.resolve("list_issues")
    with pytest.raises(ToolNotFound, match=r"there are: get_weather, github.list_issues, linear.list_issues"):
        registry.resolve("zzz")
    with pytest.raises(ToolNotFound, match=r'^no tool "linear.zzz"; there are: linear.list_issues$'):
        registry.resolve("linear.zzz")
    with pytest.raises(ToolNotFound, match="there are none"):
        ToolRegistry().resolve("zzz")


def test_many_tools_are_counted_instead_of_listed() -> None:
    registry = ToolRegistry(*(named(f"list_thing_{number}", f"space{number % 3}") for number in range(60)))
    with pytest.raises(ToolNotFound, match=r'^no tool "zzz"; there are 60 others in space0, space1, space2$'):
        registry.resolve("zzz")


def test_an_endless_name_makes_a_short_error_that_can_be_encoded() -> None:
    with pytest.raises(ToolNotFound) as raised:
        ToolRegistry(add).resolve("\ud800\n" * 1_000_000)
    assert len(str(raised.value).encode()) < 1000
    assert "\n" not in str(raised.value)


def test_near_names_among_five_thousand_tools_are_found_without_reading_them_all_again() -> None:
    registry = ToolRegistry(*(named(f"list_thing_{number}", f"space{number % 50}") for number in range(5000)))
    with pytest.raises(ToolNotFound, match="list_thing_4711"):
        registry.resolve("lst_thing_4711")

    def resolve() -> None:
        with pytest.raises(ToolNotFound):
            registry.resolve("lst_thing_4712")

    assert calls_of(resolve) < 20_000


def test_a_removed_tool_is_gone_at_once() -> None:
    registry = ToolRegistry(add, named("get-weather", "city"))
    before = registry.snapshot()
    registry.remove("city.get-weather")
    registry.remove(ToolName(None, "add"))
    assert len(registry) == 0
    assert registry.namespaces() == ()
    assert list(map(str, before)) == ["add", "city.get_weather"]
    with pytest.raises(ToolNotFound):
        registry.resolve("add")
    with pytest.raises(ToolNotFound):
        registry.remove("add")


def test_copies_and_other_registries_share_nothing() -> None:
    first = ToolRegistry(add)
    second = first.copy()
    second.register(named("other"))
    first.remove("add")
    assert list(first) == []
    assert list(map(str, second)) == ["add", "other"]


def test_an_original_name_is_registered_once_in_its_namespace() -> None:
    registry = ToolRegistry(add)
    with pytest.raises(ToolDefinitionError, match="already a tool 'add'"):
        registry.register(named("other"), add)
    assert list(map(str, registry)) == ["add"]
    registry.register(add, namespace="math")
    with pytest.raises(ToolDefinitionError, match="in the namespace 'math'"):
        registry.register(add, namespace="math")


def test_a_name_cannot_mean_a_tool_and_a_namespace() -> None:
    with pytest.raises(ToolDefinitionError, match="same name as a namespace"):
        ToolRegistry(named("a", "git-hub"), named("git_hub"))
    with pytest.raises(ToolDefinitionError, match="same name as a tool"):
        ToolRegistry(named("git_hub"), named("a", "git-hub"))


def test_two_namespaces_cannot_become_one() -> None:
    with pytest.raises(ToolDefinitionError, match="both become 'git_hub'"):
        ToolRegistry(named("a", "git-hub"), named("b", "git_hub"))


@pytest.mark.parametrize("name", ["search", "describe", "@search"])
def test_names_for_looking_through_tools_are_reserved_outside_namespaces(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="reserved"):
        ToolRegistry(named(name))
    assert len(ToolRegistry(named(name, "github"))) == 1


def test_iteration_is_sorted_whatever_the_order_of_registration() -> None:
    tools = [named("b"), named("a", "z"), named("a"), named("b", "y")]
    expected = ["a", "b", "y.b", "z.a"]
    assert list(map(str, ToolRegistry(*tools))) == expected
    assert list(map(str, ToolRegistry(*reversed(tools)).snapshot())) == expected


def test_tools_that_do_not_say_what_they_return_are_listed_together() -> None:
    def untyped(a: int):  # pyright: ignore[reportUnknownParameterType]
        return a

    registry = ToolRegistry(add, untyped, named("other"))  # pyright: ignore[reportUnknownArgumentType]
    assert list(map(str, registry.untyped())) == ["other", "untyped"]


def test_threads_may_register_and_look_up_at_the_same_time() -> None:
    registry = ToolRegistry()
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for number in range(50):
                registry.register(named(f"tool_{worker}_{number}"))
                registry.resolve(f"tool_{worker}_{number}")
                if number % 2:
                    registry.remove(f"tool_{worker}_{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(registry) == 4 * 25


class TestSearch:
    registry = ToolRegistry(
        named("list_issues", "github", "Lists the issues of a repository."),
        named("create_issue", "github", "Files a bug."),
        named("list_issues", "linear", "Lists tickets of a team."),
        named("sendMail", None, "Sends an e-mail message to someone."),
    )

    def found(self, query: str, limit: int = 10) -> list[str]:
        return [str(name) for name, _ in self.registry.search(query, limit=limit).tools]

    def test_a_whole_name_comes_first(self) -> None:
        assert self.found("list_issues")[:2] == ["github.list_issues", "linear.list_issues"]

    def test_descriptions_and_namespaces_count(self) -> None:
        assert self.found("tickets linear")[0] == "linear.list_issues"
        assert self.found("send mail") == ["sendMail"]

    def test_no_words_lists_everything_in_order(self) -> None:
        assert self.found("") == list(map(str, self.registry))

    def test_nothing_found_is_an_empty_list(self) -> None:
        assert self.found("zebra") == []

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_that_is_not_positive_gives_nothing(self, limit: int) -> None:
        assert self.found("list", limit) == []
        assert self.found("", limit) == []

    def test_the_limit_keeps_the_best(self) -> None:
        assert self.found("list issues", 1) == ["github.list_issues"]


@pytest.mark.parametrize(
    ("name", "told"),
    [("cancel", "call it as a separate tool"), ("search_tools", 'in programs it is tools.search("words")')],
)
def test_the_models_own_tools_are_told_apart_from_those_of_programs(name: str, told: str) -> None:
    registry = ToolRegistry()
    registry.outside = frozenset({"cancel"})
    for each in (registry, registry.copy()):
        with pytest.raises(ToolNotFound, match=re.escape(told)):
            each.resolve(name)

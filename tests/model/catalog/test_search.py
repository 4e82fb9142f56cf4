"""What a search through a registry finds, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from corral import Tool, define_tool
from corral.tools import ToolRegistry
from corral.tools.words import stem, words
from tests.model.catalog.making import anything


def named(path: str, description: str = "", input_schema: Any = None) -> Tool:
    namespace, _, name = path.rpartition(".")
    return define_tool(
        name=name,
        namespace=namespace or None,
        description=description,
        input_schema=input_schema,
        execute=anything,
    )


ISSUES = ToolRegistry(
    named("github.list_issues", "Lists the issues of a repository."),
    named("github.create_issue", "Creates an issue in a repository."),
    named("linear.list_issues", "Lists the tickets of a team."),
)


def found(registry: ToolRegistry, query: str, **options: Any) -> list[str]:
    return [str(name) for name, _ in registry.search(query, **options).tools]


def test_tools_whose_name_it_is_come_first() -> None:
    for query in ("list_issues", "listIssues", "list issues"):
        *named, other = found(ISSUES, query)
        assert (set(named), other) == ({"github.list_issues", "linear.list_issues"}, "github.create_issue")
    assert found(ISSUES, "linear.list_issues")[0] == "linear.list_issues"


@pytest.mark.parametrize(
    "query",
    [
        "github.get_user",
        "github.getUser",
        "GitHub.getuser",
        "github/get-user",
        "github get user",
        "tools.github.get_user",
        "codemode.github.get_user",
        "`github.get_user`",
        "'tools.github.get_user'",
        "tools.github.get_user({ id: 7, name: 'a team' })",
        "await tools.github.get_user(id=7);",
    ],
)
def test_a_name_is_found_however_a_program_would_mention_it(query: str) -> None:
    others = [named(f"a.user_{number}", "Gets a user of GitHub. get user github id name team") for number in range(9)]
    registry = ToolRegistry(*others, named("gitlab.get_user"), named("get_users"), named("github.get_user"))
    assert found(registry, query)[0] == "github.get_user"


def test_of_names_that_are_nearly_the_same_the_very_one_comes_first() -> None:
    registry = ToolRegistry(named("a.getUser"), named("b.get_user"), named("get-user"), named("c.getuser"))
    assert [found(registry, query)[0] for query in ("getUser", "get_user", "getuser", "c.getUser")] == [
        "a.getUser",
        "get_user",
        "c.getuser",
        "c.getuser",
    ]
    assert set(found(registry, "tools.getUser")) == {"a.getUser", "b.get_user", "get_user", "c.getuser"}


def test_a_name_of_words_that_say_nothing_is_found() -> None:
    registry = ToolRegistry(named("all"), named("x.for_you"), named("list_all", "Does all."))
    assert [found(registry, query)[0] for query in ("all", "for_you", "tools.x.forYou")] == [
        "all",
        "x.for_you",
        "x.for_you",
    ]
    assert found(registry, "for you", namespace="y") == []


def test_what_only_looks_like_a_mention_is_searched_for_by_all_its_words() -> None:
    assert found(ISSUES, "tickets (of a team)")[0] == "linear.list_issues"
    assert found(ISSUES, "tools for issues") != []


def test_a_tool_that_is_all_that_is_asked_for_comes_before_those_that_are_more() -> None:
    longer = [named(f"hub.issues_{verb}_labels_of_repo", f"{verb} labels of an issue.") for verb in ("get", "list")]
    registry = ToolRegistry(
        *longer,
        named("hub.projects_get_for_org", "Get a project."),
        named("hub.repos_get", "Get a repository. Gives the repository with its owner, its parent and its source."),
        named("hub.users_get_authenticated", "Get the authenticated user."),
    )
    assert found(registry, "get a repository")[0] == "hub.repos_get"
    assert found(registry, "who am I")[0] == "hub.users_get_authenticated"


@pytest.mark.parametrize(
    "path", ["hub.issues.listForRepo", "hub.rest.issues.listForRepo", "octo.issues.list-for-repo", "issuesListForRepo"]
)
def test_a_name_that_was_taken_apart_is_near_to_the_one_that_it_spells(path: str) -> None:
    registry = ToolRegistry(named("hub.issues_list_for_repo"), named("hub.issues_list"), named("hub.issues_get"))
    assert registry.near(path) == ["hub.issues_list_for_repo"]


def test_a_name_comes_before_a_tool_that_only_speaks_of_it() -> None:
    talkative = named("a.other", "send_mail send_mail send_mail: send mail, then send mail and send mail again.")
    assert found(ToolRegistry(talkative, named("z.send_mail")), "send_mail") == ["z.send_mail", "a.other"]


def test_words_of_a_description_and_of_a_namespace_count() -> None:
    assert found(ISSUES, "tickets linear")[0] == "linear.list_issues"


def test_words_of_the_trade_find_what_is_called_otherwise() -> None:
    assert found(ISSUES, "open a bug report")[0] == "github.create_issue"
    assert found(ToolRegistry(named("drive.remove_folder"), named("drive.read_folder")), "delete directory") == [
        "drive.remove_folder",
        "drive.read_folder",
    ]


def test_the_word_itself_counts_for_more_than_another_one_for_it() -> None:
    registry = ToolRegistry(named("a.remove_file"), named("b.delete_file"))
    assert found(registry, "delete file") == ["b.delete_file", "a.remove_file"]


def test_parameters_and_what_is_said_of_them_are_found() -> None:
    schema = {"type": "object", "properties": {"cronExpression": {"type": "string", "description": "At which hours."}}}
    registry = ToolRegistry(named("a.first", "Makes a job."), named("b.second", "Makes a job.", schema))
    assert found(registry, "cron expression") == ["b.second"]
    assert found(registry, "hours") == ["b.second"]


@pytest.mark.parametrize("query", ["repository", "repositories", "Repositories!", "repositor", "REPOSITORY"])
def test_endings_and_cases_do_not_matter_and_a_beginning_is_enough(query: str) -> None:
    assert set(found(ISSUES, query)) == {"github.list_issues", "github.create_issue"}


@pytest.mark.parametrize(
    "same",
    [
        "issue issues",
        "query queries",
        "match matches matched matching",
        "stop stopping stopped stops",
        "create creates created creating",
        "address addresses",
        "copy copies copied copying",
    ],
)
def test_forms_of_a_word_have_one_stem(same: str) -> None:
    assert len(set(map(stem, same.split()))) == 1


@pytest.mark.parametrize("word", ["string", "status", "class", "analysis", "need", "thing", "s", "as"])
def test_what_only_looks_like_an_ending_stays(word: str) -> None:
    assert stem(word) == word


def test_identifiers_are_taken_apart() -> None:
    assert words("listOpen_issues2 HTTPServer naïve-café https://example.com/page 日本") == [
        *("list", "open", "issues", "2", "http", "server", "naive", "cafe", "日本"),
    ]


def test_no_words_list_all_tools_in_order() -> None:
    for query in ("", "  ", "?!"):
        assert found(ISSUES, query) == list(map(str, ISSUES))


def test_a_namespace_leaves_out_all_others_and_alone_lists_it() -> None:
    assert found(ISSUES, "", namespace="github") == ["github.create_issue", "github.list_issues"]
    assert found(ISSUES, "list", namespace="linear") == ["linear.list_issues"]
    assert ISSUES.search("", namespace="nope") == ([], 0)


def test_pages_follow_each_other_without_gap_or_overlap() -> None:
    registry = ToolRegistry(*(named(f"many.thing_{number:02}") for number in range(14)))
    for query in ("", "thing"):
        pages = [registry.search(query, limit=5, offset=offset) for offset in (0, 5, 10, 15)]
        assert [len(page.tools) for page in pages] == [5, 5, 4, 0]
        assert {page.total for page in pages} == {14}
        assert [name for page in pages for name, _ in page.tools] == list(registry)


def test_the_order_does_not_depend_on_that_of_registration() -> None:
    tools = [named(f"{space}.get_thing", "Gets a thing.") for space in "cab"]
    for query in ("thing", "get a thing", "gets"):
        assert found(ToolRegistry(*tools), query) == found(ToolRegistry(*reversed(tools)), query)


def test_a_tool_that_came_or_went_is_seen_by_the_next_search() -> None:
    registry = ISSUES.copy()
    assert found(registry, "zebra") == []
    registry.register(named("zoo.feed_zebra"))
    assert found(registry, "zebra") == ["zoo.feed_zebra"]
    registry.remove("zoo.feed_zebra")
    assert found(registry, "zebra") == []


@pytest.mark.parametrize("query", ["x" * 1_000_000, "zebra " * 200_000, "7" * 5_000, "a" * 399 + "\x00"])
def test_a_query_of_any_size_is_answered(query: str) -> None:
    assert ISSUES.search(query) == ([], 0)


def test_what_is_said_of_tools_may_be_long_and_odd() -> None:
    schema = {"type": "object", "properties": {f"p{number}": True for number in range(1000)}}
    registry = ToolRegistry(named("a.b", "word " * 100_000, schema), named("a.c", "\ud800\x00"))
    assert found(registry, "word") == ["a.b"]

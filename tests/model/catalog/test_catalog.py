"""What a model is shown of tools within a budget, and what it is told later."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tree_sitter import Language as Grammar
from tree_sitter import Parser
from tree_sitter_python import language as python_grammar
from tree_sitter_typescript import language_typescript as typescript_grammar

from corral import Corral, Tool, define_tool
from corral.errors import ConfigError
from corral.model import Catalog
from corral.model.catalog import estimated_tokens
from corral.model.printing.printers import Degree, DegreePrinter
from corral.tools import ToolRegistry
from corral.types import Language, ToolName
from tests.model.catalog.making import anything

LANGUAGES: list[Language] = ["typescript", "python"]
PARSERS: dict[Language, Parser] = {
    "typescript": Parser(Grammar(typescript_grammar())),
    "python": Parser(Grammar(python_grammar())),
}

both = pytest.mark.parametrize("language", LANGUAGES)
one = pytest.mark.parametrize(
    "language",
    ["typescript", pytest.param("python", marks=pytest.mark.matrix("the same catalog in TypeScript in the gate"))],
)


@cache
def made(path: str, description: str = "Does what its name says, and says so at some length.", **options: Any) -> Tool:
    namespace, _, name = path.rpartition(".")
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Which one."}, "count": {"type": "integer"}},
        "required": ["name"],
    }
    return define_tool(
        name=name,
        namespace=namespace or None,
        description=description,
        input_schema=schema,
        output_schema={"type": "array", "items": {"type": "string"}},
        execute=anything,
        **options,
    )


def many(count: int) -> ToolRegistry:
    return ToolRegistry(*(made(f"space{number % 7}.thing_{number:04}") for number in range(count)))


@cache
def catalog_of_many(count: int, language: Language) -> Catalog:
    return Catalog(many(count), language)


tokens = estimated_tokens


def parses(text: str, language: Language) -> bool:
    return not PARSERS[language].parse(text.encode()).root_node.has_error


# --- the text


@both
def test_few_tools_are_declared_in_full_and_nothing_is_said_of_searching(language: Language) -> None:
    corral = Corral([made("github.list"), made("github.create"), made("add")], check=False)
    catalog = corral.model.catalog(language)
    assert catalog.level == "full"
    remark, _, declarations = catalog.text.partition("\n")
    assert remark.endswith(" 3 tools. The list is complete.")
    assert corral.model.declarations(language).startswith(declarations)
    assert "search" not in catalog.text


@both
@pytest.mark.parametrize(("count", "level"), [(5, "full"), (120, "signatures"), (400, "names"), (2000, "namespaces")])
def test_the_more_tools_the_less_is_shown_of_each_and_the_budget_holds(
    language: Language, count: int, level: str
) -> None:
    catalog = catalog_of_many(count, language)
    assert catalog.level == level
    assert tokens(catalog.text) <= 4000
    assert parses(catalog.text, language)
    advised = "tools.search(" in catalog.text and "tools.describe(" in catalog.text
    assert advised == (level != "full")
    assert "search(input" not in catalog.text


def test_signatures_are_one_line_for_each_tool() -> None:
    shown = Catalog(many(120), "typescript", budget_tokens=3_200).text.splitlines()
    assert "    thing_0119(input: { name: string; count?: number }): Promise<string[]>;" in shown
    shown = Catalog(many(120), "python").text.splitlines()
    assert "        async def thing_0119(*, name: str, count: int = ...) -> list[str]: ..." in shown


RICH = {
    "type": "object",
    "properties": {
        "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "reply-to": {"type": "string", "description": "An address."},
    },
}


@pytest.mark.parametrize(
    ("language", "line"),
    [
        (
            "typescript",
            '  one(input?: { at?: { x: number }; "reply-to"?: string }): Promise<unknown>;',
        ),
        (
            "python",
            '    async def one(input: {"at": NotRequired[{"x": float}], "reply-to": NotRequired[str]} = ..., /) -> Any: ...',
        ),
    ],
)
def test_signatures_show_the_members_of_an_input_in_both_languages(language: Language, line: str) -> None:
    one = define_tool(name="one", input_schema=RICH, execute=anything)
    views = DegreePrinter({ToolName(None, "one"): one}, language)
    text = views.declare({ToolName(None, "one"): Degree.SHORT})
    assert line in text.splitlines()
    assert parses(text, language)


@pytest.mark.parametrize(
    ("language", "shown"), [("typescript", "m00: string; m01?: string;"), ("python", "m00: str, m01: str = ...,")]
)
def test_of_a_long_input_the_first_members_are_shown_and_that_there_are_more(language: Language, shown: str) -> None:
    members = {f"m{number:02}": {"type": "string"} for number in range(40)}
    wide = define_tool(
        name="wide",
        input_schema={"type": "object", "properties": members, "required": ["m00", "m39"]},
        execute=anything,
    )
    text = DegreePrinter({ToolName(None, "wide"): wide}, language).declare({ToolName(None, "wide"): Degree.SHORT})
    assert shown in text
    assert "m39" in text
    assert ("[key: string]: unknown }" if language == "typescript" else "**more: Any") in text
    assert parses(text, language)


@both
def test_names_stand_beside_their_namespaces(language: Language) -> None:
    lines = Catalog(many(400), language, budget_tokens=2_800).text.splitlines()
    comment = "#" if language == "python" else "//"
    [line] = [line for line in lines if line.startswith(f"{comment} space3: ")]
    assert 50 <= line.count("thing_") <= 57


@both
def test_of_very_many_tools_each_namespace_has_some_named_and_the_others_counted(language: Language) -> None:
    text = catalog_of_many(2000, language).text
    assert " 2000 tools, not all of them named." in text
    lines = [line.partition(" ")[2] for line in text.splitlines() if " space" in line[:8]]
    assert [line.partition(":")[0] for line in lines] == [f"space{number}" for number in range(7)]
    counts = [(line.count("thing_"), int(line.split()[-2])) for line in lines]
    assert [named + more for named, more in counts] == [286] * 5 + [285] * 2
    assert max(named for named, _ in counts) - min(named for named, _ in counts) <= 1


@both
def test_of_a_large_namespace_plain_names_come_first_and_the_beginning_of_a_group_is_said_once(
    language: Language,
) -> None:
    special = [f"hub.admin_apps_{verb}_for_{place}" for verb in ("get", "list") for place in range(40)]
    usual = [f"hub.{group}_{verb}" for group in ("issues", "pulls", "repos") for verb in ("create", "get", "list")]
    registry = ToolRegistry(*map(made, [*special, *usual, *(f"hub.issues_get_{each}_of_it" for each in range(30))]))
    lines = [line.lstrip("/# ") for line in Catalog(registry, language, budget_tokens=500).text.splitlines()]
    assert "hub: names begin with their group, as tools.hub.pulls_get" in lines
    assert "pulls_ (3): create, get, list" in lines
    assert "issues_ (33): create, get, list, ..." in lines
    assert any(line.startswith("admin_ (80): apps_get_for_0, ") and line.endswith(", ...") for line in lines)


def test_namespaces_that_have_no_room_for_a_name_are_counted() -> None:
    registry = ToolRegistry(*(made(f"space{number}.thing") for number in range(120)))
    text = Catalog(registry, budget_tokens=500).text
    assert "Namespaces: " in text
    assert "(1)" in text


def test_very_many_namespaces_are_cut() -> None:
    registry = ToolRegistry(*(made(f"space{number}.thing") for number in range(500)))
    catalog = Catalog(registry, budget_tokens=500)
    assert tokens(catalog.text) <= 500
    assert catalog.text.endswith(" more\n")


def test_the_budget_is_counted_as_the_host_counts() -> None:
    registry = many(120)
    assert Catalog(registry).level == "signatures"
    assert Catalog(registry, count_tokens=lambda text: len(text) // 100).level == "full"
    assert Catalog(registry, count_tokens=len).level == "names"
    assert Catalog(registry, budget_tokens=50_000).level == "full"


def test_a_budget_in_which_nothing_can_be_told_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 500"):
        Corral(check=False).model.catalog(budget_tokens=499)
    with pytest.raises(ConfigError, match="language"):
        Corral(check=False).model.catalog("ruby")  # pyright: ignore[reportArgumentType]


@both
@pytest.mark.parametrize(
    "count",
    [
        5,
        120,
        *(pytest.param(many, marks=pytest.mark.matrix("5 and 120 tools in the gate; more")) for many in (400, 2000)),
    ],
)
def test_the_same_tools_give_the_same_text(language: Language, count: int) -> None:
    reverse = ToolRegistry(*reversed(list(many(count).snapshot().values())))
    assert Catalog(reverse, language).text == catalog_of_many(count, language).text


@both
def test_the_first_turn_does_not_grow_with_the_tools(language: Language) -> None:
    few, more = (Catalog(many(count), language, budget_tokens=500) for count in (500, 3000))
    assert few.level == more.level == "namespaces"
    assert len(more.text) - len(few.text) < 20


@both
def test_a_source_that_is_not_connected_is_named_with_the_reason(language: Language) -> None:
    registry = ToolRegistry(made("github.list"))
    registry.exchange((), (), namespace="db", problem="server 'db' is not connected:\nits process ended")
    comment = "#" if language == "python" else "//"
    assert f"{comment} db: server 'db' is not connected: its process ended" in Catalog(registry, language).text
    registry.exchange((), [made("db.query")], namespace="db", problem="one tool is missing")
    assert "missing" not in Catalog(registry, language).text


@both
def test_no_tools_are_a_text_too(language: Language) -> None:
    assert "0 tools. The list is complete." in Catalog(ToolRegistry(), language).text


# --- news


@both
def test_the_text_stays_as_it_was_and_the_news_say_what_changed(language: Language) -> None:
    registry = ToolRegistry(made("github.list"), made("github.create"), made("add"))
    catalog = Catalog(registry, language)
    before = catalog.text
    assert catalog.news() == ""
    registry.register(made("linear.list"), made("subtract"))
    registry.remove("github.create")
    news = catalog.news()
    assert catalog.text == before
    assert parses(news, language)
    assert "New or changed: 2 tools. The list is complete." in news
    assert "linear" in news
    assert "subtract(" in news
    assert "github.list" not in news
    assert "Removed: github.create\n" in news
    assert catalog.news() == ""


def test_a_tool_that_comes_back_or_changes_is_news() -> None:
    registry = ToolRegistry(made("a.one"), made("a.two"))
    catalog = Catalog(registry)
    registry.remove("a.one")
    assert catalog.news() == "// Removed: a.one\n"
    registry.register(made("a.one", "Does something else now."))
    assert "Does something else now." in catalog.news()
    registry.remove("a.one")
    registry.register(made("a.one", "Does something else now."))
    assert catalog.news() == ""
    registry.remove("a.one")
    registry.register(made("a.one", "Does yet another thing."))
    assert "Does yet another thing." in catalog.news()


def test_news_that_do_not_fit_are_shown_in_less_and_then_searching_is_advised() -> None:
    registry = many(5)
    catalog = Catalog(registry)
    registry.register(*(made(f"new.tool_{number}") for number in range(100)))
    news = catalog.news()
    assert catalog.level == "signatures"
    assert "tools.search(" in news
    assert "tool_99(input: { name: string; count?: number }): Promise<string[]>;" in news
    assert tokens(catalog.text + news) <= 4000
    registry.register(made("late.tool"))
    assert "search(input" not in catalog.news()


@one
def test_news_are_bounded_however_much_changes_and_however_often(language: Language) -> None:
    registry = many(300)
    catalog = Catalog(registry, language)
    spent = tokens(catalog.text)
    for turn in range(4):
        registry.register(*(made(f"turn{turn}.tool_{number}") for number in range(400)))
        for name in list(registry)[:20]:
            registry.remove(name)
        news = catalog.news()
        assert parses(news, language)
        assert tokens(news) <= max(4000 - spent, 500)
        spent += tokens(news)

"""`tools.search` and `tools.describe`, as programs in both languages get them."""

from __future__ import annotations

from typing import Any

import pytest

from corral import ExecutionContext, Tool, ToolCall, define_tool, tool
from corral.errors import InvalidArguments, ToolNotFound
from corral.model import declare_python, declare_tools, declare_typescript, discovery_tools
from corral.tools import ToolRegistry
from corral.types import Language, ToolName
from tests.model.catalog.making import anything
from tests.model.declarations import checker, compiler

pytestmark = pytest.mark.anyio


@tool(namespace="github")
async def list_issues(owner: str, repo: str, state: str = "open") -> list[dict[str, str]]:
    """Lists the issues of a repository.

    Closed ones too, if that is wanted.
    """
    return []


@tool(namespace="github")
async def create_issue(title: str) -> int:
    """Creates an issue."""
    return 1


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def registry(*more: Tool) -> ToolRegistry:
    return ToolRegistry(list_issues, create_issue, add, *more)


async def ask(tools: ToolRegistry, which: str, input: Any, language: Language = "typescript") -> Any:
    """What a program gets that calls one of the two with that input."""
    asked = discovery_tools(tools, language)[ToolName(None, which)]
    return await asked.dump_output(await asked.execute(await asked.parse_input(input), ToolCall(ExecutionContext())))


async def refusal(which: str, input: Any) -> str:
    with pytest.raises((InvalidArguments, ToolNotFound)) as raised:
        await ask(registry(), which, input)
    return str(raised.value)


# --- search


@pytest.mark.parametrize("input", ["issues", {"query": "issues"}, {"query": "issues", "namespace": None}])
async def test_a_search_takes_words_or_an_object(input: Any) -> None:
    found = await ask(registry(), "search", input)
    assert {item["name"] for item in found["items"]} == {"github.list_issues", "github.create_issue"}
    assert (found["total"], found["remaining"], found["next_offset"], "hint" in found) == (2, 0, None, False)


async def test_an_item_has_the_first_line_and_a_signature_in_the_programs_language() -> None:
    [item] = (await ask(registry(), "search", {"query": "list issues", "limit": 1}))["items"]
    signature = "(input: { owner: string; repo: string; state?: string }): Promise<Record<string, string>[]>"
    assert item == {
        "name": "github.list_issues",
        "description": "Lists the issues of a repository.",
        "signature": f"tools.github.list_issues{signature}",
    }
    [item] = (await ask(registry(), "search", {"query": "list issues", "limit": 1}, "python"))["items"]
    assert item["signature"] == (
        "tools.github.list_issues(*, owner: str, repo: str, state: str = ...) -> list[dict[str, str]]"
    )


async def test_without_a_query_it_lists_and_with_a_namespace_only_that() -> None:
    paths = [item["name"] for item in (await ask(registry(), "search", {}))["items"]]
    assert paths == ["add", "github.create_issue", "github.list_issues"]
    found = await ask(registry(), "search", {"query": "", "namespace": "github"})
    assert [item["name"] for item in found["items"]] == ["github.create_issue", "github.list_issues"]


async def test_fourteen_tools_are_two_pages() -> None:
    tools = ToolRegistry(*(define_tool(name=f"tool_{number:02}", execute=anything) for number in range(14)))
    first = await ask(tools, "search", {"limit": 10})
    assert (len(first["items"]), first["total"], first["remaining"], first["next_offset"]) == (10, 14, 4, 10)
    second = await ask(tools, "search", {"limit": 10, "offset": first["next_offset"]})
    assert (len(second["items"]), second["total"], second["remaining"], second["next_offset"]) == (4, 14, 0, None)
    beyond = await ask(tools, "search", {"offset": 14})
    assert (beyond["items"], beyond["next_offset"]) == ([], None)
    assert beyond["hint"] == "nothing at this offset; total is 14"
    assert len((await ask(tools, "search", ""))["items"]) == 10


@pytest.mark.parametrize(
    ("input", "told"),
    [
        ({"limit": -1}, "limit: expected at least 1, got number -1"),
        ({"limit": 0}, "limit: expected at least 1, got number 0"),
        ({"limit": 51}, "limit: expected at most 50, got number 51"),
        ({"limit": "x"}, 'limit: expected integer, got string "x"'),
        ({"limit": 1.5}, "limit: expected integer, got number 1.5"),
        ({"offset": -1}, "offset: expected at least 0, got number -1"),
        ({"querry": "x"}, "querry: unexpected field"),
        (7, "query: expected string, got number 7"),
    ],
)
async def test_a_wrong_question_is_answered_with_what_is_wrong(input: Any, told: str) -> None:
    assert told in await refusal("search", input)


async def test_a_number_without_a_fraction_is_an_integer() -> None:
    assert len((await ask(registry(), "search", {"limit": 2.0, "offset": 0.0}))["items"]) == 2


async def test_where_nothing_matches_a_hint_says_how_to_go_on() -> None:
    tools = registry()
    nothing = await ask(tools, "search", "zebra")
    assert (nothing["items"], nothing["total"]) == ([], 0)
    for part in ('tools.search({ namespace: "github" })', "tools.search() lists all", "namespaces: github"):
        assert part in nothing["hint"]
    assert 'tools.search(namespace="github")' in (await ask(tools, "search", "zebra", "python"))["hint"]
    assert "create_issue" in (await ask(tools, "search", "craete_isue"))["hint"]
    unknown = await ask(tools, "search", {"namespace": "gitlab"})
    assert unknown["hint"] == 'there is no namespace "gitlab"; namespaces: github'
    narrow = await ask(tools, "search", {"query": "numbers", "namespace": "github"})
    assert narrow["hint"] == "nothing in github matches; leave the namespace or the query out"
    assert (await ask(ToolRegistry(), "search", "x"))["hint"] == "there are no tools"


async def test_what_is_shown_of_a_tool_is_bounded_and_one_line() -> None:
    properties = {f"parameter_{number}": {"enum": [f"value {each}" for each in range(99)]} for number in range(99)}
    nested: dict[str, Any] = {"type": "array", "items": {"$ref": "#"}}
    wide = define_tool(
        name="wide",
        description="word " * 1000 + "\nmore",
        input_schema={"type": "object", "properties": properties, "required": ["parameter_1"]},
        output_schema=nested,
        execute=anything,
    )
    [item] = (await ask(ToolRegistry(wide), "search", "wide"))["items"]
    assert item["signature"].startswith("tools.wide(input: { parameter_0?: string; parameter_1: string; parameter_2?: ")
    assert item["signature"].endswith("; [key: string]: unknown }): Promise<unknown[]>")
    assert len(item["signature"]) <= 250
    assert len(item["description"]) <= 122
    [item] = (await ask(ToolRegistry(wide), "search", "wide", "python"))["items"]
    assert item["signature"].startswith("tools.wide(*, parameter_0: str = ..., parameter_1: str, ")
    assert item["signature"].endswith(", **more: Any) -> list[Any]")


# --- describe


@pytest.mark.parametrize("input", ["github.list_issues", {"name": "github.list_issues"}, "tools.github.list_issues"])
async def test_a_description_is_the_declaration_of_one_tool(input: Any) -> None:
    described = await ask(registry(), "describe", input)
    assert described["name"] == "github.list_issues"
    assert described["declaration"].startswith("declare const tools: {\n  github: {\n    // Lists the issues")
    assert "Closed ones too" in described["declaration"]
    assert "create_issue" not in described["declaration"]
    in_python = (await ask(registry(), "describe", input, "python"))["declaration"]
    assert 'async def list_issues(*, owner: str, repo: str, state: str = "open") -> list[dict[str, str]]:' in in_python


async def test_types_that_a_tool_mentions_are_declared_with_it() -> None:
    definitions = {"$defs": {"Person": {"type": "object", "properties": {"name": {"type": "string"}}}}}
    find = define_tool(name="find", output_schema={"$ref": "#/$defs/Person", **definitions}, execute=anything)
    described = await ask(ToolRegistry(find), "describe", "find")
    assert described["declaration"].startswith("type Person = { name?: string };\n")
    described = await ask(ToolRegistry(find), "describe", "find", "python")
    assert "class Person(TypedDict, total=False):" in described["declaration"]


async def test_several_names_give_several_descriptions() -> None:
    described = await ask(registry(), "describe", ["add", "github.create_issue", "search"])
    assert [each["name"] for each in described] == ["add", "github.create_issue", "search"]


@pytest.mark.parametrize("language", ["typescript", "python"])
@pytest.mark.parametrize("form", ["list", "object"])
async def test_of_several_names_each_has_its_own_answer(form: str, language: Language) -> None:
    comment = "#" if language == "python" else "//"
    asked = ["tools.add", "lst_issues", "github", "zebra", "github.create_issue"]
    found = await ask(registry(), "describe", asked if form == "list" else {"name": asked}, language)
    assert [each["name"] for each in found] == ["add", "lst_issues", "github", "zebra", "github.create_issue"]
    assert ["error" in each for each in found] == [False, True, True, True, False]
    assert found[1]["error"] == 'no tool "lst_issues"; did you mean github.list_issues?'
    assert found[1]["declaration"] == f"{comment} {found[1]['error']}\n"
    assert '"github" is a namespace' in found[2]["error"]
    assert "there are: add, github.create_issue" in found[3]["error"]
    assert [await ask(registry(), "describe", each["name"], language) for each in (found[0], found[4])] == [
        found[0],
        found[4],
    ]


@pytest.mark.parametrize(
    ("input", "told"),
    [
        ("github.nope", 'no tool "github.nope"; there are: github.create_issue, github.list_issues'),
        ("github.list_isues", 'no tool "github.list_isues"; did you mean github.list_issues or '),
        ("github", '"github" is a namespace; tools.search({ namespace: "github" }) lists its tools'),
        ({}, "name: field required"),
        ([], "name: expected at least 1 item"),
        (["add"] * 21, "name: expected at most 20 items"),
        (5, "name: expected string or array"),
    ],
)
async def test_an_unknown_name_is_answered_with_what_there_is(input: Any, told: str) -> None:
    assert told in await refusal("describe", input)


async def test_a_declaration_of_great_length_is_made_short_and_says_so() -> None:
    properties = {f"parameter_{number}": {"type": "string", "description": "word " * 50} for number in range(300)}
    wide = define_tool(name="wide", input_schema={"type": "object", "properties": properties}, execute=anything)
    comments: dict[Language, str] = {"typescript": "// ", "python": "# "}
    for language, comment in comments.items():
        text = (await ask(ToolRegistry(wide), "describe", "wide", language))["declaration"]
        assert text.startswith(f"{comment}Shortened: the whole declaration has ")
        assert len(text) < 1000


# --- both


async def test_they_are_in_no_list_and_see_the_tools_of_the_moment() -> None:
    tools = ToolRegistry(add)
    found = discovery_tools(tools, "typescript")[ToolName(None, "search")]
    assert list(map(str, tools)) == ["add"]
    assert "search" not in tools
    tools.register(list_issues)
    answer: Any = await found.execute(await found.parse_input("issues"), ToolCall(ExecutionContext()))
    assert answer["total"] == 1
    tools.remove("github.list_issues")
    answer = await found.execute(await found.parse_input("issues"), ToolCall(ExecutionContext()))
    assert answer["total"] == 0


async def test_a_tool_that_took_the_place_of_another_is_shown_as_it_is() -> None:
    tools = ToolRegistry(add)
    found = discovery_tools(tools, "typescript")[ToolName(None, "search")]
    await found.execute(await found.parse_input("add"), ToolCall(ExecutionContext()))
    tools.remove("add")
    tools.register(define_tool(name="add", output_schema={"type": "string"}, execute=anything))
    answer: Any = await found.execute(await found.parse_input("add"), ToolCall(ExecutionContext()))
    assert answer["items"][0]["signature"] == "tools.add(input?: unknown): Promise<string>"


async def test_they_need_no_scopes_and_only_read() -> None:
    for each in discovery_tools(registry(), "python").values():
        assert (each.scopes, each.any_scope, each.needs_approval) == (frozenset(), frozenset(), False)
        assert each.read_only


DEEP = {
    "type": "object",
    "properties": {
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "description": "Its number."},
                    "user": {"$ref": "#/$defs/User"},
                },
                "required": ["id", "user"],
            },
        }
    },
    "required": ["data"],
    "$defs": {"User": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
}


@pytest.mark.parametrize(
    ("language", "levels"),
    [
        ("typescript", ["{ data: {…}[] }", "user: {…};", "{ name: string };"]),
        ("python", ["data: list[{...}]", "user: {...}", "name: str"]),
    ],
)
async def test_a_description_has_two_levels_of_the_result_or_as_many_as_are_asked_for(
    language: Language, levels: list[str]
) -> None:
    deep = define_tool(name="deep", output_schema=DEEP, execute=anything)
    texts = [
        (await ask(registry(deep), "describe", {"name": "deep", "depth": depth}, language))["declaration"]
        for depth in (1, 2, 3)
    ]
    for text, shown in zip(texts, levels, strict=True):
        assert shown in text
    assert (await ask(registry(deep), "describe", "deep", language))["declaration"] == texts[1]
    assert ["greater depth" in text for text in texts] == [True, True, False]
    assert "Its number." in texts[1]


async def test_a_signature_shows_of_a_result_what_has_room_and_never_that_it_may_be_anything() -> None:
    wide = {"type": "object", "properties": {f"parameter_{number}": {"type": "string"} for number in range(30)}}
    tools = ToolRegistry(define_tool(name="wide", input_schema=wide, output_schema=DEEP, execute=anything))
    [item] = (await ask(tools, "search", "wide"))["items"]
    assert item["signature"].endswith("Promise<{ data: {…}[] }>")
    [item] = (await ask(tools, "search", "wide", "python"))["items"]
    assert item["signature"].endswith('-> {"data": list[{...}]}')


def test_the_compiler_accepts_how_programs_call_them() -> None:
    lines = [
        'const a: string = (await tools.search("x")).items[0].name;',
        'const b: number | null = (await tools.search({ query: "x", limit: 5 })).next_offset;',
        "const c: number = (await tools.search()).total;",
        'const d: string = (await tools.describe("x")).declaration;',
        'const e: string = (await tools.describe({ name: "x" })).name;',
        'await tools.describe(["x", "y"]);',
        'await tools.describe({ name: ["x", "y"] });',
        'await tools.search("x", { limit: 5 });',
        'await tools.describe(["x", "y"], { depth: 3 });',
        'tools.search({ limit: "x" });',
        'tools.search("x", { limit: "x" });',
        "tools.describe();",
    ]
    declared = declare_typescript(discovery_tools(registry(), "typescript"), checked=True)
    start = declared.count("\n") + 1
    errors = compiler.type_errors(declared + "\n".join([*lines, "export {};"]))
    assert sorted(line - start for line in errors) == [9, 10, 11]


def test_the_type_checker_accepts_how_programs_call_them() -> None:
    lines = [
        "from stubs import tools",
        "async def main() -> None:",
        '    a: str = (await tools.search("x"))["items"][0]["name"]',
        '    b: int | None = (await tools.search(query="x", limit=5))["next_offset"]',
        '    c: int = (await tools.search())["total"]',
        '    d: str = (await tools.describe("x"))["declaration"]',
        '    e: str = (await tools.describe(name="x"))["name"]',
        '    await tools.describe(["x", "y"], depth=3)',
        '    await tools.search("x", limit="x")',
        "    await tools.describe()",
    ]
    stubs, program = checker.errors_of(declare_python(discovery_tools(registry(), "python")), "\n".join(lines))
    assert stubs == {}
    assert sorted(program) == [9, 10]


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        ("typescript", ["type FilesOutput = ", "(input: { at: number }): Promise<Uint8Array>"]),
        ("python", ["class FilesOutput(", "class TextOutput(", "(*, at: int) -> bytes:"]),
    ],
)
def test_declarations_name_shared_results_after_what_they_are_and_tell_rates_and_bytes(
    language: Language, shown: list[str]
) -> None:
    def result(*names: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: {"type": "string", "description": "Some text."} for name in names},
        }

    @tool(rate_limit="3/minute")
    def picture(at: int) -> bytes:
        return b""

    results = {"make": result("text"), "read": result("text"), "move": result(*"abc"), "drop": result(*"abc")}
    files = [
        define_tool(name=name, namespace="files", output_schema=each, execute=anything)
        for name, each in results.items()
    ]
    text = declare_tools(ToolRegistry(*files, picture).snapshot(), language)
    for each in (*shown, "Rate limit: 3/minute"):
        assert each in text

"""The tools that a model is given: what they say of themselves, and what it gets whatever it sends them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from corral import Corral, ExecutionContext, define_tool, tool
from corral.errors import ConfigError, StartFailed
from corral.model import ModelTool
from corral.sandboxes import DenoSandbox
from corral.sandboxes.selection import Sandboxes
from corral.tools import ToolRegistry
from corral.types import Language
from tests.model.conftest import TOOLS, many

pytestmark = pytest.mark.anyio

LANGUAGES: list[Language] = ["typescript", "python"]
both = pytest.mark.parametrize("language", LANGUAGES)

SMALL = 500
"""Tokens."""


def far_too_safe() -> Corral:
    """One in which no program can start."""
    return Corral(TOOLS, sandbox={"python": "monty"}, containment="namespaces", check=False)


def by_name(tools: tuple[ModelTool, ...]) -> dict[str, ModelTool]:
    return {each.name: each for each in tools}


# --- what is said


@both
def test_the_fixed_text_is_small(language: Language) -> None:
    corral = Corral(TOOLS)
    declared = len(corral.model.catalog(language).text)
    assert (len(corral.model.tools(language)[0].description) - declared) / 4 <= 190
    assert (len(corral.model.prompt(language=language)) - declared) / 4 <= 190


@both
def test_the_same_tools_give_the_same_text_to_the_byte(language: Language) -> None:
    def told(corral: Corral) -> list[str]:
        descriptions = [each.description for each in corral.model.tools(language)]
        return [*descriptions, corral.model.prompt("Be brief.", language=language)]

    one, other = Corral(TOOLS, check=False), Corral(TOOLS[::-1], check=False)
    assert told(one) == told(one) == told(other)


@both
def test_what_the_prompt_says_the_tool_does_not_repeat(language: Language) -> None:
    corral = Corral(TOOLS, check=False)
    prompt = corral.model.prompt("Be brief.\n\n", language=language)
    assert prompt.startswith("Be brief.\n\nYou call tools from programs in ")
    assert corral.model.catalog(language).text.rstrip() in prompt
    assert "\n" not in corral.model.tools(language, in_prompt=True)[0].description
    alone = corral.model.prompt(language=language)
    assert prompt == f"Be brief.\n\n{alone}"
    assert alone.split("\n\n", 1)[1] == corral.model.tools(language)[0].description.split("\n\n", 1)[1]


def test_a_catalog_that_is_given_is_what_is_told_though_tools_have_come_since() -> None:
    registry = ToolRegistry(*TOOLS)
    corral = Corral(registry, check=False)
    catalog = corral.model.catalog()
    registry.register(*many(1))
    [kept] = corral.model.tools(catalog=catalog)
    assert kept.description.endswith(catalog.text.rstrip())
    assert "open_00" not in kept.description
    assert "open_00" in corral.model.tools()[0].description


def test_a_tool_may_be_named_and_its_schema_is_its_own() -> None:
    corral = Corral(TOOLS, check=False)
    named = corral.model.tools(name="run-python")[0]
    assert named.name == "run-python"
    named.input_schema["properties"].clear()
    assert corral.model.tools()[0].input_schema == {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
        "additionalProperties": False,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        named.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_language_without_programs_is_refused() -> None:
    corral: Any = Corral(TOOLS, check=False)
    for ask in (corral.model.tools, corral.model.prompt, corral.model.catalog):
        with pytest.raises(ConfigError, match="language takes 'typescript' or 'python', not 'ruby'"):
            ask(language="ruby")


# --- running programs


@pytest.mark.parametrize(
    ("language", "code"),
    [("typescript", "return [await tools.who(), 1 + 1]"), ("python", "[await tools.who(), 1 + 1]")],
)
async def test_it_runs_a_program_for_the_caller(corral: Corral, language: Language, code: str) -> None:
    runs = corral.model.tools(language)[0]
    context = ExecutionContext(user_id="ann")
    assert await runs({"code": code}, context) == 'Result: ["ann",2]'
    result = await runs.run({"code": code}, context)
    assert (result.value, result.language, [call.name for call in result.tool_calls]) == (["ann", 2], language, ["who"])
    assert await runs({"code": code}) == 'Result: ["anonymous",2]'


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "code: field required"),
        ({"code": None}, "code: field required"),
        ({"code": 7}, "code: expected string, got number 7"),
        ({"code": ["return 1"]}, "code: expected string, got array"),
        ({"code": "return 1", "lang": "ts"}, "lang: unexpected field"),
        ({"cod": "return 1"}, "2 problems: cod: unexpected field; did you mean code?; code: field required"),
        ("return 1", 'expected object, got string "return 1"'),
        (None, "expected object, got null"),
    ],
)
async def test_wrong_arguments_are_answered_with_what_is_wrong(arguments: Any, told: str) -> None:
    runs = far_too_safe().model.tools("python")[0]
    assert await runs(arguments) == (
        f'The call was rejected; nothing ran.\nInvalidArguments: tool "execute_code": {told}'
    )
    result = await runs.run(arguments)
    assert (result.status, result.error and result.error.code) == ("rejected", "invalid_arguments")


async def test_null_is_no_argument(corral: Corral) -> None:
    assert await corral.model.tools()[0]({"code": "return 1", "lang": None}) == "Result: 1"


async def test_what_the_operator_must_mend_is_raised(warm_deno: DenoSandbox) -> None:
    with pytest.raises(StartFailed):
        await far_too_safe().model.tools("python")[0]({"code": "1"})
    corral = Corral(TOOLS, sandbox=warm_deno, check=False)
    runs = corral.model.tools()[0]
    await corral.aclose()
    with pytest.raises(ConfigError, match="closed"):
        await runs({"code": "return 1"})


async def test_a_program_that_does_not_fit_the_declarations_is_told_each_problem_once() -> None:
    async with Corral(TOOLS, check=True) as corral:
        text = await corral.model.tools()[0](
            {"code": 'await tools.add({ a: "x", b: 1 });\nreturn await tools.look_up({});'}
        )
    assert text.startswith("The program was rejected at line 1, column 19; nothing ran.\nProgramRejected: ")
    assert text.count("line 1, column 19") == 2
    assert text.count("line 2, column") == 1
    assert text.count("declared: tools.add(") == 1
    assert "Notes" not in text


# --- looking for tools


@both
def test_there_are_tools_to_search_with_unless_the_catalog_is_complete(language: Language) -> None:
    assert list(by_name(Corral(TOOLS, check=False).model.tools(language))) == ["execute_code"]
    corral = Corral(many(), check=False)
    catalog = corral.model.catalog(language, budget_tokens=SMALL)
    assert catalog.level != "full"
    names = list(by_name(corral.model.tools(language, catalog=catalog)))
    assert names == ["execute_code", "search_tools", "describe_tools"]


@both
async def test_a_search_gives_what_a_program_gets_as_lines(warm: Sandboxes, language: Language) -> None:
    async with Corral(many(), sandbox=warm, check=False) as corral:
        tools = by_name(corral.model.tools(language, catalog=corral.model.catalog(language, budget_tokens=SMALL)))
        program = 'return await tools.search("door 7")' if language == "typescript" else 'await tools.search("door 7")'
        found = (await corral.execute(program, language=language)).raise_for_error().value
        text = await tools["search_tools"]({"query": "door 7", "namespace": None})
    comment = "//" if language == "typescript" else "#"
    lines = [f"{each['signature']}  {comment} {each['description']}" for each in found["items"]]
    assert lines[0].endswith(f"{comment} Opens door 7.")
    assert text.splitlines()[: 1 + len(lines)] == ["Result:", *lines]


async def test_a_search_goes_page_by_page_and_says_how(warm_deno: DenoSandbox) -> None:
    corral = Corral(many(5), sandbox=warm_deno, check=False)
    search = by_name(
        corral.model.tools(catalog=Corral(many(), sandbox=warm_deno, check=False).model.catalog(budget_tokens=SMALL))
    )["search_tools"]
    assert (await search({"limit": 2, "offset": 1})).splitlines()[3:] == ["2 more, from offset 3 on"]
    assert len((await search({"limit": 2, "offset": 3})).splitlines()) == 3
    assert "no tool matches these words" in await search({"query": "zzz"})
    assert 'there is no namespace "windows"; namespaces: doors' in await search({"namespace": "windows"})
    assert "limit: expected at most 50, got number 51" in await search({"limit": 51})


@both
async def test_describe_declares_a_tool_in_full_and_says_if_there_is_none(
    warm_deno: DenoSandbox, language: Language
) -> None:
    corral = Corral(many(), sandbox=warm_deno, check=False)
    catalog = corral.model.catalog(language, budget_tokens=SMALL)
    describe = by_name(corral.model.tools(language, catalog=catalog))["describe_tools"]
    text = await describe({"name": "tools.doors.open_07"})
    assert text.startswith("Result:\n")
    assert "It stays open for an hour." in text
    assert "path: str" in text
    missing = await describe({"name": "doors.open_7"})
    assert missing.startswith('The call was rejected; nothing ran.\nToolNotFound: no tool "doors.open_7"; did you mean')
    assert 'tool "describe_tools": name: field required' in await describe({})
    several = await describe({"name": ["doors.open_07", "doors.open_7"]})
    assert several.startswith(text.rstrip())
    assert '# no tool "doors.open_7"; did you mean' in several.replace("//", "#")


async def test_tools_that_come_later_are_found(warm_deno: DenoSandbox) -> None:
    registry = ToolRegistry(*many())
    corral = Corral(registry, sandbox=warm_deno, check=False)
    search = by_name(corral.model.tools(catalog=corral.model.catalog(budget_tokens=SMALL)))["search_tools"]

    @tool
    async def ring_bell() -> None:
        """Rings."""

    assert "no tool matches these words" in await search({"query": "bell"})
    registry.register(ring_bell)
    assert "tools.ring_bell(" in await search({"query": "bell"})


# --- tools that are hidden from those who may not call them


def seen(input: object) -> str:
    return "seen"


def gone(input: object) -> str:
    return "gone"


def guarded(**options: Any) -> Corral:
    tools = [
        define_tool(name="look", description="Looks.", execute=seen),
        define_tool(name="shred", description="Shreds.", scopes={"admin"}, execute=gone),
    ]
    return Corral(tools, check=False, **options)


ADMIN = ExecutionContext(scopes={"admin"})


async def test_a_description_and_a_prompt_show_what_their_caller_may_call() -> None:
    corral = guarded(hide_denied=True)
    for context, shown in ((ExecutionContext(), False), (ADMIN, True)):
        [runs] = corral.model.tools(context=context)
        for text in (
            runs.description,
            corral.model.prompt(context=context),
            corral.model.declarations(context=context),
            corral.model.catalog("python", context=context).text,
        ):
            assert ("shred" in text, "look(" in text) == (shown, True)
    assert "shred" in guarded().model.tools()[0].description
    assert "shred" not in guarded().model.tools(hide_denied=True, context=ExecutionContext())[0].description


async def test_for_a_caller_who_is_not_known_yet_the_text_says_that_there_may_be_more() -> None:
    corral = guarded(hide_denied=True)
    runs, search, describe = corral.model.tools()
    assert "1 tool. There may be others. Search for more: `await tools.search(" in runs.description
    assert "shred" not in runs.description
    assert "search(" in corral.model.catalog("python").text
    for context, shown in ((None, False), (ADMIN, True)):
        assert ("shred" in await search({"query": ""}, context)) is shown
        assert ("Shreds." in await describe({"name": "shred"}, context)) is shown
        assert ("gone" in await runs({"code": "return await tools.shred()"}, context)) is shown
    assert 'no tool "shred"; there are: look' in await runs({"code": "return await tools.shred()"})


def test_a_registry_without_tools_for_anybody_can_be_shown() -> None:
    corral = Corral([define_tool(name="shred", scopes={"admin"}, execute=gone)], hide_denied=True, check=False)
    assert corral.model.catalog().text.startswith("// 0 tools. There may be others.")
    assert corral.model.catalog(context=ExecutionContext()).text.startswith("// 0 tools. The list is complete.")


def test_a_text_is_made_once_for_callers_who_see_the_same_and_their_news_are_their_own() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text) // 4

    corral = guarded(hide_denied=True)
    one = corral.model.catalog(context=ADMIN, count_tokens=count)
    made = len(counted)
    other = corral.model.catalog(context=ExecutionContext(scopes={"admin", "unheard-of"}), count_tokens=count)
    assert (one.text, len(counted)) == (other.text, made)
    nobody = corral.model.catalog(context=ExecutionContext(), count_tokens=count)
    corral.tools.register(define_tool(name="burn", scopes={"admin"}, execute=gone))
    assert "burn" in one.news()
    assert "burn" in other.news()
    assert (one.news(), nobody.news()) == ("", "")
    assert "burn" in corral.model.catalog(context=ADMIN, count_tokens=count).text

"""Programs that look for tools, in real sandboxes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from corral import Corral, ExecutionContext, Limits, define_tool, tool
from corral.results import ProgramCapabilities
from corral.tools import ToolRegistry
from corral.types import Language

pytestmark = pytest.mark.anyio

PROGRAMS: dict[Language, str] = {
    "typescript": """
const before = (await tools.search("weather")).total;
await tools.change();
const found = await tools.search("weather", { limit: 5 });
const name = found.items[0].name;
const described = await codemode.describe(name);
const value = await tools[name]({ city: "Oslo" });
const refused = [];
for (const call of [
  () => tools.search({ limit: -1 }), () => tools.search({ limit: "x" }), () => tools.describe("weather.forcast"),
]) {
  try { await call() } catch (error) { refused.push([error.code, error.message]) }
}
return { before, name, described, value, refused, listed: Object.keys(tools) };
""",
    "python": """
before = (await tools.search("weather"))["total"]
await tools.change()
found = await tools.search("weather", limit=5)
name = found["items"][0]["name"]
described = await codemode.describe(name)
value = await tools[name](city="Oslo")
refused = []
for arguments in [{"limit": -1}, {"limit": "x"}]:
    try:
        await tools.search(**arguments)
    except Exception as error:
        refused.append([error.code, str(error)])
try:
    await tools.describe("weather.forcast")
except Exception as error:
    refused.append([error.code, str(error)])
{"before": before, "name": name, "described": described, "value": value, "refused": refused, "listed": list(tools)}
""",
}


async def forecast(input: Any) -> str:
    return f"rain in {input['city']}"


def changing() -> ToolRegistry:
    """A registry to which the tool `change` adds another one."""
    tools = ToolRegistry()
    late = define_tool(
        name="forecast",
        namespace="weather",
        description="Says what the weather will be.",
        input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        output_schema={"type": "string"},
        execute=forecast,
    )

    @tool
    async def change() -> None:
        tools.register(late)

    tools.register(change)
    return tools


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_program_finds_describes_and_calls_a_tool_that_came_while_it_runs(language: Language) -> None:
    result = await Corral(changing(), check=False).execute(PROGRAMS[language], language=language)
    value: Any = result.raise_for_error().value
    assert (value["before"], value["name"], value["value"]) == (0, "weather.forecast", "rain in Oslo")
    declared = {
        "typescript": "forecast(input: { city: string }): Promise<string>;",
        "python": "async def forecast(*, city: str) -> str:",
    }
    assert declared[language] in value["described"]["declaration"]
    assert value["refused"] == [
        ["invalid_arguments", 'tool "search": limit: expected at least 1, got number -1'],
        ["invalid_arguments", 'tool "search": limit: expected integer, got string "x"'],
        ["tool_not_found", 'no tool "weather.forcast"; did you mean weather.forecast?'],
    ]
    assert value["listed"] == ["change"]
    names = ["search", "change", "search", "describe", "weather.forecast", "search", "search", "describe"]
    assert [call.name for call in result.tool_calls] == names


SEVERAL: dict[str, str] = {
    "deno": "const [one, none] = await tools.describe(['change', 'tools.chnge']); return { one, none }",
    "cpython": "one, none = await tools.describe(['change', 'tools.chnge'])\n{'one': one, 'none': none}",
    "monty": "one, none = await tools.describe(name=['change', 'tools.chnge'])\n{'one': one, 'none': none}",
}


@pytest.mark.parametrize("engine", SEVERAL)
async def test_a_checked_program_describes_several_tools_at_once(engine: str) -> None:
    language: Language = "typescript" if engine == "deno" else "python"
    sandboxes: Any = {language: engine}
    corral = Corral(changing(), sandbox=sandboxes, check="required")
    async with corral:
        value: Any = (await corral.execute(SEVERAL[engine], language=language)).raise_for_error().value
    assert "change(" in value["one"]["declaration"]
    assert (value["none"]["name"], value["none"]["error"]) == ("chnge", 'no tool "chnge"; did you mean change?')


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_looking_for_tools_counts_as_a_call_and_needs_nothing_of_the_caller(language: Language) -> None:
    corral = Corral([define_tool(name="hidden", scopes={"admin"}, execute=forecast)], check=False)
    program = "await tools.search('hidden')\nawait tools.describe('hidden')\nawait tools.search('')"
    result = await corral.execute(
        program, language=language, context=ExecutionContext(scopes=()), limits=Limits(calls=2)
    )
    assert result.error is not None
    assert result.error.code == "call_budget_exceeded"
    assert result.capabilities == ProgramCapabilities()
    assert [call.error for call in result.tool_calls] == [None, None]


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_program_elsewhere_may_look_for_tools_too(language: Language) -> None:
    corral = Corral(changing(), check=False)
    transport = httpx.ASGITransport(corral.remote.asgi_app())
    with corral.remote.grant(ExecutionContext(), language=language) as execution:
        headers = {"authorization": f"Bearer {execution.token()}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            found = (await client.post("/tools/search", json="change")).json()
            described = (await client.post("/tools/describe", json={"name": "change"})).json()
    assert found["items"][0]["name"] == "change"
    declared = {"typescript": "change(): ", "python": "async def change("}
    assert declared[language] in described["declaration"]

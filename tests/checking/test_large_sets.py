"""Of very many tools, or tools with very many schemas, a program is checked against those that it names."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from corral import Corral, Tool, define_tool
from corral.checking import declared_tools as toolset
from corral.types import Language

pytestmark = pytest.mark.anyio


async def take(_: object) -> int:
    return 3


def made(name: str, namespace: str = "shop", definitions: int = 0) -> Tool:
    """A tool that takes a number, and has as many schemas that refer to each other."""
    chain: dict[str, Any] = {
        f"Part{number}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/$defs/Part{(number + 1) % definitions}"}},
        }
        for number in range(definitions)
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"number": {"type": "number"}, **({"part": {"$ref": "#/$defs/Part0"}} if chain else {})},
        "required": ["number"],
        "additionalProperties": False,
        **({"$defs": chain} if chain else {}),
    }
    return define_tool(
        name=name,
        namespace=namespace,
        description="Takes a number.",
        input_schema=schema,
        output_schema={"type": "number"},
        execute=take,
    )


@pytest.fixture(scope="module")
async def many(anyio_backend: object) -> AsyncGenerator[Corral]:
    tools = [made(f"take_{number}") for number in range(toolset._MANY_TOOLS + 1)]  # pyright: ignore[reportPrivateUsage]
    async with Corral([*tools, made("alone", "other")], check="required") as corral:
        yield corral


PROGRAMS: dict[Language, str] = {
    "typescript": "return await tools.{}({{ number: {} }})",
    "python": "await tools.{}(number={})",
}
BOTH = pytest.mark.parametrize("language", PROGRAMS)


@BOTH
async def test_a_program_that_names_its_tools_is_checked_at_once(many: Corral, language: Language) -> None:
    right, wrong = PROGRAMS[language].format("shop.take_7", 1), PROGRAMS[language].format("shop.take_7", "[]")
    result = await many.execute(right, language=language)
    assert (result.value, result.checked) == (3, True)
    assert (await many.execute(wrong, language=language)).status == "rejected"


@BOTH
async def test_a_misspelt_tool_is_told_what_there_is(many: Corral, language: Language) -> None:
    found = await many.check(PROGRAMS[language].format("shop.tak_7", 1), language)
    [remark] = [each for each in found.diagnostics if each.severity == "error"]
    assert "shop.take_7" in remark.message


@BOTH
async def test_a_namespace_by_another_name_is_declared_whole(many: Corral, language: Language) -> None:
    alias = "const { alone } = tools.other; " if language == "typescript" else "other = tools.other\n"
    call = "return await alone({ number: [] })" if language == "typescript" else "await other.alone(number=[])"
    assert not (await many.check(alias + call, language)).passed


async def test_a_program_that_may_call_any_tool_is_checked_against_all(many: Corral) -> None:
    found = await many.check("const name = String(1); return await tools[name].x, await tools.shop.take_7({})")
    assert found.checked
    assert not found.passed


async def test_more_schemas_than_can_be_declared_leave_such_a_program_unchecked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolset, "_MANY_DEFINITIONS", 20)
    monkeypatch.setattr(toolset, "_MOST_DEFINITIONS", 40)
    async with Corral([made(f"take_{number}", definitions=15) for number in range(3)], check=True) as corral:
        assert (await corral.check(PROGRAMS["typescript"].format("shop.take_1", 1))).checked
        assert not (await corral.check("const name = String(1); return await tools[name]()")).checked

"""Words for models about what programs have besides tools."""

from __future__ import annotations

import pytest

from corral import Corral, ExecutionContext
from corral.egress import Network
from corral.integrations.kit import CodeModeBase
from corral.model.model_tools import Surroundings
from corral.sessions import Directory, Mount, Sessions
from corral.types import Language

pytestmark = pytest.mark.anyio

FILES = [Mount("/workspace"), Mount("/in", Directory("."))]
SAID = "Files stay from one program to the next: /workspace (the working directory), /in (read-only, by absolute path)."


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_model_hears_of_the_files_that_its_programs_have(language: Language) -> None:
    corral = Corral(sessions=Sessions(files=FILES))
    for text in (
        corral.model.tools(language)[0].description,
        corral.model.prompt(language=language),
        CodeModeBase(corral, language=language).kit().prompt,
    ):
        assert SAID in text
        assert "nothing but files carries over to the next program" in text
        assert "or files" not in text


async def test_the_tool_of_a_session_runs_all_its_programs_there() -> None:
    caller = ExecutionContext(user_id="ann")
    async with Corral(check=False) as corral, corral.session(context=caller) as session:
        assert (
            "No network, files or processes. At most 256 calls and 60 s." in corral.model.tools("python")[0].description
        )
        tool = corral.model.tools("python", session=session)[0]
        assert "/workspace (the working directory)" in tool.description
        assert "There are" not in tool.description
        await tool({"code": "open('a.txt', 'w').write('kept')"}, caller)
        assert "kept" in await tool({"code": "open('a.txt').read()"}, caller)
        for name in ("data/b.csv", "c\nDo as I say"):
            await session.files.write_text(name, "")
        told = corral.model.prompt(session=session)
        assert "/workspace (the working directory). There are `a.txt`, `data/` and 1 more.\n" in told


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_model_hears_where_its_programs_may_send_requests(language: Language) -> None:
    said = " requests to https://api.example.com and nowhere else"
    network = Network(allow=["https://api.example.com"])
    alone = Corral(network=network).model.tools(language)[0].description
    assert said in alone
    assert ("No imports or files." if language == "typescript" else "No files or processes.") in alone
    with_files = Corral(network=network, sessions=Sessions(files=FILES)).model.tools(language)[0].description
    assert said in with_files
    assert SAID in with_files


async def test_without_files_it_hears_that_there_are_none() -> None:
    assert "No imports, network or files." in Corral().model.tools()[0].description


@pytest.mark.parametrize(
    ("packages", "clients"),
    [
        ((), "`urllib.request` sends requests to https://a.example and nowhere else."),
        (("numpy", "httpx"), "`urllib.request` and `httpx` send requests to https://a.example and nowhere else."),
    ],
)
def test_it_hears_of_no_package_that_is_not_there(packages: tuple[str, ...], clients: str) -> None:
    told = Surroundings(packages=packages, origins=("https://a.example",), python="3.11").rules("python")
    named = "".join(f"`{each}`, " for each in packages).removesuffix(", ")
    assert f"You may import {named}{' and ' if named else ''}the standard library of Python 3.11." in told
    assert clients in told
    assert "requests`" not in told


def test_it_hears_that_programs_are_checked_only_where_they_are() -> None:
    assert "type-checked" in Corral().model.tools()[0].description
    assert "type-checked" not in Corral(check=False).model.tools()[0].description

"""Words for models about what programs have besides tools."""

from __future__ import annotations

import pytest

from corral import Corral, Directory, ExecutionContext, Language, Mount
from corral.egress import Network
from corral.integrations.kit import kit
from corral.sessions import Sessions

pytestmark = pytest.mark.anyio

FILES = [Mount("/workspace"), Mount("/in", Directory("."))]
SAID = "Files stay from one program to the next: /workspace (the working directory), /in (read-only, by absolute path)."


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_model_hears_of_the_files_that_its_programs_have(language: Language) -> None:
    corral = Corral(sessions=Sessions(files=FILES))
    for text in (
        corral.model_tool(language).description,
        corral.system_prompt(language=language),
        kit(corral, language=language).prompt,
    ):
        assert SAID in text
        assert "share nothing but files" in text
        assert "no files" not in text


async def test_the_tool_of_a_session_runs_all_its_programs_there() -> None:
    caller = ExecutionContext(user_id="ann")
    async with Corral(check=False) as corral, corral.session(context=caller) as session:
        assert "no network, files or processes" in corral.model_tool("python").description
        tool = corral.model_tool("python", session=session)
        assert "/workspace (the working directory)" in tool.description
        await tool({"code": "open('a.txt', 'w').write('kept')"}, caller)
        assert "kept" in await tool({"code": "open('a.txt').read()"}, caller)
        assert "/workspace (the working directory)" in corral.system_prompt(session=session)


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_model_hears_where_its_programs_may_send_requests(language: Language) -> None:
    said = "send requests to https://api.example.com and nowhere else"
    network = Network(allow=["https://api.example.com"])
    alone = Corral(network=network).model_tool(language).description
    assert said in alone
    assert "no files" in alone
    with_files = Corral(network=network, sessions=Sessions(files=FILES)).model_tool(language).description
    assert said in with_files
    assert SAID in with_files


async def test_without_files_it_hears_that_there_are_none() -> None:
    assert "no imports, no network, no files" in Corral().model_tool().description

"""On whose behalf programs run."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.routing import Mount

from corral import Corral, ExecutionContext, tool
from corral.errors import AccessDenied
from corral.integrations.mcp import McpRequest, mcp_server
from corral.sandboxes import DenoSandbox
from tests.integrations.mcp.serving import MODES, listening, make_corral, run, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    async with make_corral() as corral:
        yield corral


async def who(client: Client) -> list[str | None]:
    return (await run(client, "return await tools.who()")).structured_content["value"]


async def test_everybody_is_one_anonymous_user_and_a_session_is_one_of_theirs(corral: Corral) -> None:
    async with (
        listening(mcp_server(corral)) as url,
        Client(url, mode="legacy") as one,
        Client(url, mode="legacy") as other,
        Client(url) as modern,
    ):
        first, again, second, third, fourth = [await who(each) for each in (one, one, other, modern, modern)]
    assert {each[0] for each in (first, second, third)} == {"anonymous"}
    assert first == again
    assert third == fourth
    assert len({each[2] for each in (first, second, third)}) == 3


@pytest.mark.parametrize("mode", MODES)
async def test_a_context_may_be_given(corral: Corral, mode: str) -> None:
    server = mcp_server(corral, context=ExecutionContext(user_id="ada", session_id="s"))
    async with Client(server, mode=mode) as client:
        assert await who(client) == ["ada", None, "s"]


def by_header(request: McpRequest) -> ExecutionContext:
    assert request.request is not None
    token = request.request.headers.get("authorization")
    if token is None:
        raise AccessDenied("a program needs a token")
    return ExecutionContext(user_id=token.removeprefix("Bearer "), session_id="s")


@pytest.mark.parametrize("mode", MODES)
async def test_a_context_may_be_made_of_the_request(corral: Corral, mode: str) -> None:
    async with listening(mcp_server(corral, context=by_header)) as url:
        for user in ("ada", "bob"):
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {user}"}, timeout=30) as http,
                Client(streamable_http_client(url, http_client=http), mode=mode) as client,
            ):
                assert await who(client) == [user, None, "s"]
        async with Client(url, mode=mode) as client:
            with pytest.raises(MCPError, match="a program needs a token"):
                await who(client)


def broken(_: McpRequest) -> ExecutionContext:
    raise ConnectionError("postgresql://ada:secret@db refused")


async def test_why_a_context_could_not_be_made_stays_in_the_log(
    corral: Corral, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        listening(mcp_server(corral, context=broken)) as url,
        Client(url, mode="legacy") as client,
    ):
        with pytest.raises(MCPError, match="the caller of this request could not be determined") as raised:
            await who(client)
    assert "secret" not in str(raised.value)
    assert "secret" in caplog.text


async def test_it_can_be_mounted_in_another_app() -> None:
    corral = make_corral()
    server = mcp_server(corral)
    mounted = server.streamable_http_app()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with corral, server.session_manager.run():
            yield

    app = Starlette(routes=[Mount("/tools", mounted)], lifespan=lifespan)
    async with serving(app) as url:
        for mode in MODES:
            async with Client(f"{url}/tools/mcp", mode=mode) as client:
                assert (await who(client))[0] == "anonymous"


async def test_who_asks_is_shown_the_tools_that_it_may_call(warm_deno: DenoSandbox) -> None:
    @tool(scopes={"admin"})
    async def shred() -> str:
        """Shreds."""
        return "gone"

    @tool(read_only=True)
    async def look() -> str:
        """Looks."""
        return "seen"

    def scoped(request: McpRequest) -> ExecutionContext:
        assert request.request is not None
        return ExecutionContext(scopes=request.request.headers["x-scopes"].split(), session_id="s")

    async with (
        Corral([shred, look], hide_denied=True, sandbox=warm_deno, check=False) as corral,
        listening(mcp_server(corral, context=scoped)) as url,
    ):
        for scopes, shown in (("", False), ("admin", True), ("other", False)):
            async with (
                httpx2.AsyncClient(headers={"x-scopes": scopes}, timeout=30) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                runs = (await client.list_tools()).tools[0]
                assert "look(" in (runs.description or "")
                assert ("shred(" in (runs.description or "")) is shown
                assert runs.annotations is not None
                assert runs.annotations.read_only_hint is not shown
                ran = await run(client, "return await tools.shred()")
                told = "gone" if shown else 'no tool \\"shred\\"; there are: look'
                assert told in json.dumps(ran.structured_content)
                found = await client.call_tool("search_tools", {"query": "shred"})
                assert ("tools.shred" in str(found.content)) is shown

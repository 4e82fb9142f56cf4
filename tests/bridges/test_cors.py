"""Pages of listed origins may call tools from a browser, those of others may not."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest

from corral import Corral, ExecutionContext, tool
from corral.plugins import load_by_name

pytestmark = pytest.mark.anyio

PAGE = "https://app.example"
CALLS: dict[str, tuple[str, object]] = {
    "http": ("/tools/add", {"a": 1, "b": 2}),
    "graphql": ("/graphql", {"query": "{ add(a: 1, b: 2) }"}),
    "trpc": ("/add?input=%7B%22a%22%3A1%2C%22b%22%3A2%7D", None),
    "connect": ("/corral.tools.Tools/add", {"a": 1, "b": 2}),
}
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,trpc-accept"}


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.mark.parametrize("protocol", CALLS)
async def test_a_browser_lets_pages_of_listed_origins_call(protocol: str) -> None:
    path, body = CALLS[protocol]
    async with Corral([add], check=False) as corral:
        app = corral.remote.asgi_app(load_by_name("corral.bridges", protocol, allowed_origins=[PAGE]))
        transport = httpx.ASGITransport(cast("Any", app))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            asked = await http.options(path, headers={"origin": PAGE, **ASKED})
            assert asked.status_code == 204
            assert asked.headers["access-control-allow-origin"] == PAGE
            assert asked.headers["access-control-allow-headers"] == "authorization,trpc-accept"
            assert "POST" in asked.headers["access-control-allow-methods"]

            async def call(origin: str | None, token: str) -> httpx.Response:
                headers = {"authorization": f"Bearer {token}", **({} if origin is None else {"origin": origin})}
                if body is None:
                    return await http.get(path, headers=headers)
                return await http.post(path, headers=headers, json=body)

            with corral.remote.grant(ExecutionContext()) as execution:
                answer = await call(PAGE, execution.token())
                assert (answer.status_code, "3" in answer.text) == (200, True)
                assert answer.headers["access-control-allow-origin"] == PAGE
                assert "origin" in answer.headers["vary"]
                assert (await call(PAGE, "x")).headers["access-control-allow-origin"] == PAGE, "a page reads refusals"
                assert "access-control-allow-origin" not in (await call(None, execution.token())).headers
                for origin in "https://evil.example", "null", f"{PAGE}.evil.example":
                    refused = await call(origin, execution.token())
                    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (403, False)
                    refused = await http.options(path, headers={"origin": origin, **ASKED})
                    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (403, False)

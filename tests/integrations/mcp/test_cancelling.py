"""A program ends with the request that it came in."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client

from corral.integrations.mcp import mcp_server
from tests.integrations.mcp.serving import Elicitation, Held, listening, make_corral, run
from tests.integrations.mcp.test_approvals import YES
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("mode", "over", "elicitation"),
    [
        ("legacy", "streams", False),
        ("legacy", "http", True),
        ("2026-07-28", "calls", False),
        ("2026-07-28", "calls", True),
    ],
)
async def test_a_cancelled_request_cancels_the_call_in_flight(mode: str, over: str, elicitation: bool) -> None:
    held = Held()
    options: dict[str, Any] = {"elicitation_callback": Elicitation(lambda _: YES)} if elicitation else {}
    async with AsyncExitStack() as stack:
        corral = await stack.enter_async_context(make_corral(held))
        server: Any = mcp_server(corral)
        if over == "http":
            server = await stack.enter_async_context(listening(server))
        client = await stack.enter_async_context(Client(server, mode=mode, **options))
        with anyio.fail_after(LIMIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, client, "await tools.hold()")
                await held.begun.wait()
                tasks.cancel_scope.cancel()
            await held.cancelled.wait()
            assert (await run(client, "return 1")).structured_content["value"] == 1


async def test_a_connection_that_breaks_cancels_the_call_in_flight() -> None:
    held = Held()
    async with make_corral(held) as corral, listening(mcp_server(corral)) as url:
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params: dict[str, Any] = {"name": "execute_code", "arguments": {"code": "await tools.hold()"}, "_meta": meta}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "execute_code",
        }

        async def post() -> None:
            async with httpx.AsyncClient() as client:
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                await client.post(url, json=body, headers=headers, timeout=30)

        with anyio.fail_after(LIMIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(post)
                await held.begun.wait()
                tasks.cancel_scope.cancel()
            await held.cancelled.wait()

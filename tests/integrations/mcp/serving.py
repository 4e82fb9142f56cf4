"""A Corral as an MCP server in this process, and the SDK's client of it, in both eras of the protocol."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import uvicorn
from mcp import Client
from mcp.server import Server
from starlette.applications import Starlette

from corral import Corral, ExecutionContext, ToolCall, ToolError, tool
from corral.integrations.mcp import ask_client

__all__ = ["MODES", "Elicitation", "Held", "listening", "make_corral", "run", "serving"]

MODES = ["legacy", "2026-07-28"]


class Held:
    """A call that waits until it is cancelled."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.cancelled = anyio.Event()


def make_corral(held: Held | None = None, *, check: bool = False, **options: Any) -> Corral:
    """A few tools, one of which needs an approval."""

    @tool(read_only=True)
    async def add(a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    @tool(needs_approval=True)
    async def pay(euros: int, note: str = "") -> str:
        """Pays."""
        return f"paid {euros}"

    @tool
    async def fail() -> None:
        """Fails."""
        raise ToolError("it is closed")

    @tool
    async def who(*, context: ExecutionContext) -> list[str | None]:
        """On whose behalf it is called."""
        return [context.user_id, context.organization_id, context.session_id]

    @tool
    async def hold() -> None:
        """Waits."""
        assert held is not None
        held.begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            held.cancelled.set()
            raise

    @tool
    async def book(*, call: ToolCall) -> None:
        """Books, in two steps."""
        call.progress(1, 2, "reserving")
        call.progress(2, 2, "booking")
        await anyio.lowlevel.checkpoint()

    return Corral([add, pay, fail, who, hold, book], approve=ask_client, check=check, **options)


class Elicitation:
    """Who answers the questions of one client, and what they were."""

    def __init__(self, answer: Callable[[str], types.ElicitResult]) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def __call__(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        assert params.requested_schema["properties"]["approve"]["type"] == "boolean"
        self.asked.append(params.message)
        return self._answer(params.message)


async def run(client: Client, code: str, **options: Any) -> types.CallToolResult:
    return await client.call_tool("execute_code", {"code": code}, **options)


@asynccontextmanager
async def serving(app: Starlette) -> AsyncGenerator[str]:
    """An app at a URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, log_level="critical", timeout_graceful_shutdown=1, lifespan="on")
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True


@asynccontextmanager
async def listening(server: Server[Any], **options: Any) -> AsyncGenerator[str]:
    """The server at a URL."""
    async with serving(server.streamable_http_app(**options)) as url:
        yield f"{url}/mcp"

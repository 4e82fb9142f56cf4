"""A source opened by itself, without a Corral: what it offers, and calls as the end of the pipeline makes them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from corral import ExecutionContext, Tool, ToolCall
from corral.sources.mcp import McpServer
from corral.tools import ToolRegistry, ToolSource

__all__ = ["Offered", "opened", "rogue", "unanswered"]

ROGUE = Path(__file__).with_name("rogue_server.py")


class Offered:
    """What a source has offered."""

    def __init__(self, source: ToolSource) -> None:
        self.registry = ToolRegistry()
        self.problems: list[str | None] = []
        """As they came with each offer."""
        self._source = source
        self._tools: list[Tool] = []

    def __call__(self, tools: Iterable[Tool], *, problem: str | None = None) -> None:
        offered = list(tools)
        self.registry.exchange(self._tools, offered, namespace=self._source.namespace, problem=problem)
        self._tools = offered
        self.problems.append(problem)

    @property
    def problem(self) -> str | None:
        return self.problems[-1] if self.problems else None

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self._tools]

    def tool(self, name: str) -> Tool:
        return next(tool for tool in self._tools if tool.name == name)

    async def call(self, name: str, context: ExecutionContext | None = None, /, **arguments: Any) -> Any:
        tool = self.tool(name)
        value = await tool.execute(await tool.parse_input(arguments), ToolCall(context or ExecutionContext()))
        return await tool.dump_output(value)


@asynccontextmanager
async def opened(source: ToolSource) -> AsyncGenerator[Offered]:
    offered = Offered(source)
    async with source.open(offered):
        yield offered


@asynccontextmanager
async def unanswered(server: Offered, name: str) -> AsyncGenerator[None]:
    """Calls a tool of the rogue server, which has the call before the block, gives no answer, and hears of its end."""
    ended = anyio.Event()

    async def call() -> None:
        await server.call(name)
        ended.set()

    before = (await server.call("taken")).count(name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        while (await server.call("taken")).count(name) == before:
            pass
        yield
        assert not ended.is_set()
        tasks.cancel_scope.cancel()


def rogue(*modes: str, **options: Any) -> McpServer:
    """The server of `rogue_server.py`, which does what no server should."""
    return McpServer("rogue", command=[sys.executable, "-I", "-S", str(ROGUE), *modes], **options)

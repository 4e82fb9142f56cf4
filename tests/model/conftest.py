"""A Corral for the model's side, without type checks: what it says of programs does not depend on them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from corral import Corral, ExecutionContext, Limits, Tool, ToolError, define_tool, tool
from corral.sandboxes.selection import Sandboxes


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
async def look_up(key: str) -> str:
    """Looks a key up."""
    raise ToolError(f"there is no key {key}")


@tool
async def who(context: ExecutionContext) -> str:
    """For whom the program runs."""
    return context.user_id


@tool(scopes={"admin"})
async def forbid() -> None:
    """Needs a scope."""


@tool(needs_approval=True)
async def ask() -> None:
    """Needs an approval."""


TOOLS = [add, look_up, who, forbid, ask]


def many(count: int = 60) -> list[Tool]:
    """So many tools that a small catalog cannot declare all of them in full."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return [
        define_tool(
            name=f"open_{number:02}",
            namespace="doors" if number % 2 else None,
            description=f"Opens door {number}.\n\nIt stays open for an hour.",
            input_schema=schema,
            output_schema={"type": "boolean"},
            execute=_nothing,
        )
        for number in range(count)
    ]


async def _nothing(input: object) -> bool:
    return input is not None


@pytest.fixture(scope="module")
async def corral(warm: Sandboxes) -> AsyncIterator[Corral]:
    async with Corral(TOOLS, sandbox=warm, check=False, limits=Limits(wall_seconds=20)) as corral:
        yield corral

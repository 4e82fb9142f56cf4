"""`python -m bench.mcp`: how long the lists of tools of real MCP servers are, and that of a Corral in front of them.

A token is four bytes of the JSON of a list of tools, as the client of the SDK gets it. The servers are fetched by
`python -m tests.foreign`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from pydantic_core import to_json
from tests.integrations.mcp.upstreams import configured, prepared

from bench.host import describe_host
from corral import Corral
from corral.integrations.mcp import mcp_server
from corral.sources.mcp import mcp_servers
from corral.types import Language

_LANGUAGES: tuple[Language, ...] = ("typescript", "python")
_BUDGETS = (1_000, 4_000, 16_000)


def main() -> None:
    argparse.ArgumentParser(prog="python -m bench.mcp", description=__doc__).parse_args()
    host = describe_host(uvloop=False)
    print(f"{host['cpu']}, {host['cores']} cores, load {host['load']}; {host['python']}\n")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> None:
    config = prepared(folder)
    every: list[types.Tool] = []
    for name, server in configured(folder).items():
        listed = await _listed(server)
        every += listed
        _row(name, listed)
    _row("all of them", every)
    async with Corral(mcp_servers(config), check=False).connected() as corral:
        for language in _LANGUAGES:
            for budget in _BUDGETS:
                async with Client(mcp_server(corral, language=language, budget_tokens=budget)) as client:
                    _row(f"corral, {language}, budget {budget:,}", (await client.list_tools()).tools)
        started = time.perf_counter()
        corral.model.catalog(budget_tokens=_BUDGETS[1])
        print(f"\na catalog of {_BUDGETS[1]:,} tokens is made in {time.perf_counter() - started:.2f} s")


async def _listed(server: dict[str, Any]) -> list[types.Tool]:
    async with Client(StdioServerParameters(**server)) as client:
        return (await client.list_tools()).tools


def _row(what: str, tools: Sequence[types.Tool]) -> None:
    size = len(to_json([tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools]))
    print(f"{what:<36}{len(tools):>5} tools {-(-size // 4):>9,} tokens")


if __name__ == "__main__":
    main()

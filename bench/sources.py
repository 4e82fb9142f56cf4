"""`python -m bench.sources`: what a call costs that goes on to an MCP server or an HTTP API.

The floors are what one would use oneself: `Client.call_tool` of mcp, and httpx, on the same server in the same run.
`tool` is the tool of the source by itself, `program` a call by a program in the sandbox, of 100 in a row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from mcp import Client, StdioServerParameters

from bench.host import describe_host
from bench.options import positive
from corral import Corral, ExecutionContext, Limits, Tool, ToolCall
from corral.sources.mcp import McpServer
from corral.sources.openapi import OpenApi

_CALLS = 100
_TIME = str(Path(sys.executable).with_name("mcp-server-time"))
_ZONE = {"timezone": "Europe/Oslo"}
_DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Items", "version": "1"},
    "paths": {
        "/items/{id}": {
            "get": {
                "operationId": "get_item",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {"200": {"description": "ok", "content": {"application/json": {"schema": {}}}}},
            }
        }
    },
}


class _Items(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sources", description=__doc__)
    parser.add_argument("--rounds", metavar="N", type=positive, default=7, help="how many rounds (default: 7)")
    rounds = parser.parse_args().rounds
    host = describe_host(uvloop=False)
    print(f"{host['cpu']}, {host['cores']} cores, load {host['load']}; {host['python']}; rounds: {rounds}\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Items) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(_measure(f"http://127.0.0.1:{server.server_port}", rounds))
        server.shutdown()


async def _measure(url: str, rounds: int) -> None:
    sources = [McpServer("time", command=[_TIME]), OpenApi("items", _DOCUMENT, base_url=url)]
    async with (
        Corral(sources, check=False, limits=Limits(calls=10 * _CALLS)) as corral,
        Client(StdioServerParameters(command=_TIME)) as client,
        httpx.AsyncClient(base_url=url) as http,
    ):
        ways: dict[str, dict[str, Callable[[], Awaitable[object]]]] = {
            "MCP over stdio, time": {
                "floor": lambda: client.call_tool("get_current_time", _ZONE),
                "tool": _by_tool(corral.tools.resolve("time.get_current_time"), _ZONE),
                "program": _by_program(corral, "time.get_current_time", _ZONE),
            },
            "HTTP, one item": {
                "floor": lambda: http.get("/items/7"),
                "tool": _by_tool(corral.tools.resolve("items.get_item"), {"id": 7}),
                "program": _by_program(corral, "items.get_item", {"id": 7}),
            },
        }
        for what, each in ways.items():
            seconds: dict[str, list[float]] = {name: [] for name in each}
            for _ in range(rounds):
                for name, call in each.items():
                    seconds[name].append(await _one_call(call, once=name == "program"))
            floor = median(seconds["floor"])
            print(what)
            for name, found in seconds.items():
                print(f"  {name:<10}{median(found) * 1e6:9.0f} µs {median(found) / floor:6.2f} ×")


def _by_tool(tool: Tool, arguments: object) -> Callable[[], Awaitable[object]]:
    context = ExecutionContext()

    async def call() -> object:
        return await tool.dump_output(await tool.execute(await tool.parse_input(arguments), ToolCall(context)))

    return call


def _by_program(corral: Corral, tool: str, arguments: object) -> Callable[[], Awaitable[object]]:
    program = f"""
    for (let count = 0; count < 10; count++) await tools.{tool}({json.dumps(arguments)});
    const started = performance.now();
    for (let count = 0; count < {_CALLS}; count++) await tools.{tool}({json.dumps(arguments)});
    return (performance.now() - started) / 1000;
    """

    async def call() -> object:
        return (await corral.execute(program)).raise_for_error().value

    return call


async def _one_call(call: Callable[[], Awaitable[Any]], *, once: bool) -> float:
    """Seconds of one of many calls; a program counts its own."""
    if once:
        return await call() / _CALLS
    started = time.perf_counter()
    for _ in range(_CALLS):
        await call()
    return (time.perf_counter() - started) / _CALLS


if __name__ == "__main__":
    main()

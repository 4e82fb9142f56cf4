"""`python -m bench.stalls`: how long the event loop stands still while hostile texts and values are dealt with.

A task sleeps 5 ms at a time. `pause` is the longest time by the clock that it was kept waiting above that; `held` is
the most processor time that this process used between two of its turns, all threads together, which does not depend on
what else the machine does. `times idle` compares `held` with that of a loop on which an honest program makes calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.host import describe_host
from corral import Corral, ExecutionContext, Language, Limits, Tool, define_tool, tool
from corral.sources.mcp import McpServer
from corral.sources.openapi import OpenApi

__all__ = ["CASES", "Beat", "Case", "measured"]

_STEP_SECONDS = 0.005
_EVE = ExecutionContext(user_id="eve", organization_id="E")
_LIMITS = Limits(wall_seconds=8, cpu_seconds=8, calls=256, calls_in_flight=128)


class Beat:
    """Pulses of the event loop, and what was the longest between two of them."""

    def __init__(self) -> None:
        self.pause_seconds = 0.0
        self.held_seconds = 0.0

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncGenerator[None]:
        pulse = asyncio.create_task(self._run())
        try:
            yield
            await asyncio.sleep(2 * _STEP_SECONDS)  # so that a pause at the end is seen
        finally:
            pulse.cancel()

    async def _run(self) -> None:
        while True:
            wall, held = time.perf_counter(), time.process_time()
            await asyncio.sleep(_STEP_SECONDS)
            self.pause_seconds = max(self.pause_seconds, time.perf_counter() - wall - _STEP_SECONDS)
            self.held_seconds = max(self.held_seconds, time.process_time() - held)


Case = Callable[[], Awaitable[object]]


@tool
async def add(left: int, right: int) -> int:
    """Adds."""
    return left + right


@tool
async def take(value: Any) -> int:
    """Takes anything."""
    return int(value is not None)


@tool
async def many(items: list[dict[str, int]]) -> int:
    """Takes objects."""
    return len(items)


def _program(source: str, *, language: Language = "typescript", at_once: int = 1) -> Case:
    """Programs of one user, all with this source but for their numbers."""

    async def run() -> None:
        async with Corral([add, take, many]) as corral:
            await corral.execute("return 1", language=language, context=_EVE)
            sources = [f"{source}{number}" if at_once > 1 else source for number in range(at_once)]
            async with asyncio.TaskGroup() as tasks:
                for each in sources:
                    tasks.create_task(corral.execute(each, language=language, context=_EVE, limits=_LIMITS))

    return run


def _tools(count: int) -> list[Tool]:
    return [tool(name=f"service_{i % 97}_operation_{i}_do_something")(_number) for i in range(count)]


async def _number(x: int) -> int:
    return x


def _schema(width: int) -> dict[str, Any]:
    part = {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "A part."}
    members = {f"p{i}": part for i in range(30)}
    return {
        "type": "object",
        "properties": {
            f"field_{i}": {"type": "object", "description": "It has parts.", "properties": members}
            for i in range(width)
        },
    }


def _take(value: object) -> object:
    return value


async def _unknown_names() -> None:
    async with Corral(_tools(2_000), check=False) as corral:
        names = "'service_operation_do_something_'.repeat(6).slice(0, 190) + i"
        await corral.execute(
            f"return (await Promise.allSettled(Array.from({{length: 256}}, (_, i) => tools[{names}]({{}})))).length",
            limits=_LIMITS,
        )


async def _described() -> None:
    schema = _schema(12)
    big = define_tool(name="big", description="Is big.", input_schema=schema, output_schema=schema, execute=_take)
    async with Corral([big], check=False) as corral:
        source = "const n = Array(20).fill('big');"
        source += "await Promise.allSettled(Array.from({length: 100}, () => tools.describe({name: n})))"
        await corral.execute(source, limits=Limits(wall_seconds=2))


async def _shown() -> None:
    """Values that are deep and large, as a model is shown them."""
    async with Corral([take], check=False) as corral:
        source = "let v = Array(240000).fill([]); for (let i = 0; i < 90; i++) v = {a: v};"
        result = await corral.execute(source + "await tools.take({value: v}); return v")
        result.model_text()


def _rogue(kind: str) -> Case:
    async def run() -> None:
        command = [sys.executable, str(Path(__file__).with_name("rogue.py")), kind]
        async with Corral([McpServer("rogue", command=command)], check=False) as corral:
            await corral.execute("return await tools.rogue.get({})", limits=_LIMITS)

    return run


async def _document() -> None:
    """An OpenAPI document of 100 operations over a chain of 1,000 definitions, and the declarations of its tools."""
    chain = {
        f"S{i}": {"type": "object", "properties": {"n": {"$ref": f"#/components/schemas/S{i + 1}"}}}
        for i in range(1000)
    }
    answer = {
        "200": {"description": "ok", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {f"/p{i}": {"get": {"operationId": f"o{i}", "responses": answer}} for i in range(100)},
        "components": {"schemas": chain | {"S1000": {"type": "string"}}},
    }
    async with Corral([await asyncio.to_thread(OpenApi, "api", document)]) as corral:
        await corral.execute("return typeof tools.api.o7", limits=_LIMITS)


async def _openapi_json() -> None:
    import httpx

    corral = Corral(_tools(500), check=False)
    app = corral.asgi_app()
    async with corral:
        with corral.grant(_EVE) as execution:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                headers = {"Authorization": f"Bearer {execution.token()}"}
                gets = [client.get("/openapi.json", headers=headers) for _ in range(8)]
                for response in await asyncio.gather(*gets):
                    response.raise_for_status()


def _soup(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


CASES: dict[str, Case] = {
    "TypeScript that is no regular expression": _program("a=" + _soup("/[", 40_000)),
    "TypeScript of templates": _program(_soup("a`", 60_000)),
    "TypeScript of generics": _program(_soup("a<", 60_000)),
    "TypeScript, short and slow to parse": _program("```ts\na=" + _soup("/[", 7_700) + "\n```\n```\n```\n"),
    "TypeScript, eight of 240 kB": _program(_soup("a;", 240_000), at_once=8),
    "TypeScript of 4,000 kinds of objects": _program(
        "const f = (x: number) => [" + ",".join(f"{{a{i}: 1, b: {{c{i}: 2}}}}" for i in range(4_000)) + "][x];\n"
        "await tools.add({left: 1, right: 1})"
    ),
    "TypeScript with 6,000 mistakes": _program("tools.ad({});\n" * 6_000),
    "Python that is none": _program(_soup("(a[{", 60_000), language="python"),
    "Python, eight of 240 kB": _program("a = b\n" * 40_000, language="python", at_once=8),
    "Python with 6,000 mistakes": _program("await tools.ad()\n" * 6_000, language="python"),
    "calls of 256 unknown names among 2,000": _unknown_names,
    "an input of 240,000 lists": _program("await tools.take({value: Array(240000).fill([])})"),
    "an input of 100,000 wrong objects": _program("await tools.many({items: Array(100000).fill({kind: 'c'})})"),
    "an input with 110,000 unknown fields": _program(
        "const o = {}; for (let i = 0; i < 110000; i++) o[i.toString(36)] = 0; await tools.add(o)"
    ),
    "64,000 lines on the console": _program("for (let i = 0; i < 64000; i++) console.log('')"),
    "an error with a strange stack": _program(
        "const e = new Error('x'); e.stack = '    at '+'('.repeat(8000); throw e"
    ),
    "values deep and large, shown": _shown,
    "2,000 descriptions of a large tool": _described,
    "another server's enum of 9,000 objects": _rogue("objects"),
    "another server's pattern that backtracks": _rogue("backtracking"),
    "another server's 40 patterns": _rogue("patterns"),
    "another server's 6,000 fields": _rogue("names"),
    "an OpenAPI document over one chain": _document,
    "eight times /openapi.json of 500 tools": _openapi_json,
}


async def idle() -> None:
    """An honest program that makes calls."""
    async with Corral([add], check=False) as corral:
        for _ in range(5):
            await corral.execute("for (let i = 0; i < 50; i++) await tools.add({left: i, right: 1})")


async def measured(case: Case) -> Beat:
    """The beat of an event loop that deals with a case."""
    gc.collect()  # what the case before has left is not this one's
    beat = Beat()
    async with beat():
        await case()
    return beat


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose names hold TEXT")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    host = describe_host(uvloop=False)
    print(f"{host['cpu']}, {host['cores']} cores, load {host['load']}; {host['python']}\n")
    quiet = asyncio.run(measured(idle))
    print(f"{'':44}{'pause, ms':>10}{'held, ms':>10}{'times idle':>12}{'all, s':>9}")
    rows: dict[str, tuple[float, float]] = {}
    for name, case in {"an honest program": idle, **CASES}.items():
        if options.only in name:
            started = time.perf_counter()
            beat = asyncio.run(measured(case))
            seconds = time.perf_counter() - started
            ratio = beat.held_seconds / quiet.held_seconds
            rows[name] = (beat.pause_seconds, beat.held_seconds)
            pause_ms, held_ms = beat.pause_seconds * 1000, beat.held_seconds * 1000
            print(f"{name:44}{pause_ms:>10.0f}{held_ms:>10.0f}{ratio:>12.1f}{seconds:>9.1f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"host": host, "rows": rows}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

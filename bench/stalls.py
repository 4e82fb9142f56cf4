"""`python -m bench.stalls`: how long the event loop stands still while hostile texts and values are dealt with.

A task sleeps 5 ms at a time. `pause` is the longest time by the clock that it was kept waiting above that; `held` is
the most processor time that this process used between two of its turns, all threads together, which does not depend on
what else the machine does. `times idle` compares `held` with that of a loop on which an honest program makes calls.
`memory` is what this process has after the case, which the cases before it share in.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import gc
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from typing_extensions import override

from bench.host import describe_host
from corral import Corral, ExecutionContext, Limits, Tool, define_tool, tool
from corral.bridges.base import BridgeProtocol
from corral.bridges.http import HttpBridge
from corral.compilers import CompiledProgram, Compiler
from corral.egress import Network
from corral.egress.exchanges import Exchanges
from corral.errors import FileError, ToolError
from corral.protocols.connect import ConnectBridge
from corral.protocols.trpc import TrpcBridge
from corral.sessions import Mount, Scratch
from corral.shells import LocalShell, MemoryShell, Shell
from corral.shells.integrations.operations import apply_operation
from corral.sources.mcp import McpServer
from corral.sources.openapi import OpenApi
from corral.types import Language

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
async def echo(value: Any) -> Any:
    """Gives it back."""
    return value


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
    corral = Corral(_tools(500), check=False)
    app = corral.remote.asgi_app()
    async with corral:
        with corral.remote.grant(_EVE) as execution:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                headers = {"Authorization": f"Bearer {execution.token()}"}
                gets = [client.get("/openapi.json", headers=headers) for _ in range(8)]
                for response in await asyncio.gather(*gets):
                    response.raise_for_status()


def _archive(content: bytes, kind: bytes, times: int = 1) -> Case:
    """An import of an archive of `times` headers of this kind before one file."""

    async def run() -> None:
        header = tarfile.TarInfo("header")
        header.type, header.size = kind, len(content)
        part = header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
        archive = part * times + tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT) + bytes(1024)
        async with Corral() as corral, corral.session(context=_EVE, files=[Mount("/w", Scratch())]) as session:
            with contextlib.suppress(FileError):
                await session.files.import_tar(archive)

    return run


async def _many_files() -> None:
    """An archive of 4,000 files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for number in range(4_000):
            archive.addfile(tarfile.TarInfo(f"f{number}"))
    async with Corral() as corral, corral.session(context=_EVE, files=[Mount("/w", Scratch())]) as session:
        await session.files.import_tar(packed.getvalue())


class _Answering(Compiler):
    """A compiler whose package answers with this map."""

    def __init__(self, source_map: str) -> None:
        self._map = source_map

    @override
    async def compile(self, source: str) -> CompiledProgram:
        return CompiledProgram("throw new Error('x')", self._map)


def _source_map(text: str) -> Case:
    async def run() -> None:
        async with Corral([add], compilers={"other": _Answering(text)}) as corral:
            await corral.execute("x", compiler="other", context=_EVE)

    return run


def _files(size: int, work: Callable[[Shell], Awaitable[object]]) -> Case:
    """Work on a file of line breaks."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "lines")
            await asyncio.to_thread(lambda: path.write_bytes(b"\n" * size))
            with contextlib.suppress(FileError, ToolError):
                await work(LocalShell(folder))

    return run


def _headers(member: str, value: object) -> Case:
    """A request of a program's with these headers, to a host that does not exist."""

    class Caller:
        execution_id = "x"
        context = _EVE

    async def run() -> None:
        network = Network(allow=["http://a.example.com"], resolver=_resolved, seconds=2)
        async with Exchanges(network, Caller(), None) as exchanges:
            with contextlib.suppress(Exception):
                if member == "raw":
                    sent = {"do": "open", "id": 1, "host": "a.example.com", "port": 80, "tls": False, "raw": value}
                    await exchanges.http(sent)
                else:
                    sent = {"do": "open", "id": 1, "url": "http://a.example.com/", "method": "GET", "headers": value}
                    await exchanges.fetch(sent)

    return run


async def _resolved(_: str) -> list[str]:
    return []


def _input(bridge: Callable[[], BridgeProtocol], path: str, wrapped: Callable[[bytes], bytes]) -> Case:
    """A call with 900 kB of empty objects, which come back."""

    async def run() -> None:
        protocol = bridge()
        async with Corral([echo], check=False) as corral:
            transport = httpx.ASGITransport(corral.remote.asgi_app(protocol))
            with corral.remote.grant(_EVE) as execution:
                headers = {"Authorization": f"Bearer {execution.token()}", "Content-Type": "application/json"}
                async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                    body = wrapped(b'{"value":[' + b"{}," * 300_000 + b"1]}")
                    (await client.post(path, content=body, headers=headers)).raise_for_status()

    return run


def _in_memory(*commands: str) -> Case:
    async def run() -> None:
        async with MemoryShell() as shell:
            for command in commands:
                await shell.run(command, timeout_seconds=8)

    return run


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
    "TypeScript with 3,000 unknown names": _program("".join(f"a{i};" for i in range(3_000))),
    "Python with 3,000 unknown names": _program("".join(f"a{i};" for i in range(3_000)), language="python"),
    "Python with one unknown name 3,000 times": _program("a;" * 3_000, language="python"),
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
    "an archive with 60 kB of digits": _archive(b"1" * 60_000, tarfile.XHDTYPE),
    "an archive with 3,000 headers in a row": _archive(b"9 a=bcde\n", tarfile.XHDTYPE, 3_000),
    "an archive with a name of 8 MB": _archive(b"a" * 8_000_000, tarfile.GNUTYPE_LONGNAME),
    "an archive of 4,000 files": _many_files,
    "a source map of 1 MB": _source_map('{"version": 3, "mappings": "' + _soup("AAAA,", 990_000) + '"}'),
    "a source map of 1 MB of lines": _source_map('{"version": 3, "mappings": "' + ";" * 990_000 + '"}'),
    "a source map of 3.8 MB": _source_map('{"version": 3, "mappings": "' + _soup("AAAA,", 3_800_000) + '"}'),
    "one line of 60 MB of line breaks": _files(60_000_000, lambda shell: shell.files.read_text("lines", lines=(1, 1))),
    "all of 9.9 MB of line breaks": _files(9_900_000, lambda shell: shell.files.read_text("lines")),
    "a patch of 9.9 MB of line breaks": _files(
        9_900_000, lambda shell: apply_operation(shell, "update_file", "lines", "@@ a\n-x\n+y\n")
    ),
    "a request with 80,000 headers": _headers("headers", [[f"a{i}", "b"] for i in range(80_000)]),
    "a raw request with 80,000 headers": _headers(
        "raw", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * 80_000 + b"\r\n"
    ),
    "900 kB of {} over HTTP": _input(
        HttpBridge, "/calls", lambda value: b'{"calls":[{"sequence":1,"tool":"echo","input":' + value + b"}]}"
    ),
    "900 kB of {} over tRPC": _input(TrpcBridge, "/echo", lambda value: value),
    "900 kB of {} over Connect": _input(
        ConnectBridge,
        "/corral.v1.Bridge/Call",
        lambda value: json.dumps({"tool": "echo", "input": base64.b64encode(value).decode()}).encode(),
    ),
    "a command that crashes MemoryShell": _in_memory("time " * 4_000 + ":", "true"),
    "a command with 60 MB of files in MemoryShell": _in_memory(
        "head -c 1000000 /dev/zero > p; for i in 1 2 3 4 5 6; do cat p >> a; done; for i in {1..9}; do cp a $i; done",
        "cat a",
        "sort a a a",
    ),
    "a command with 5,000 files in MemoryShell": _in_memory(
        "mkdir d; for i in {1..5000}; do echo > d/$i; done", "rm -r d"
    ),
}


async def idle() -> None:
    """An honest program that makes calls."""
    async with Corral([add], check=False) as corral:
        for _ in range(5):
            await corral.execute("for (let i = 0; i < 50; i++) await tools.add({left: i, right: 1})")


def memory_mb() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


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
    print(f"{'':44}{'pause, ms':>10}{'held, ms':>10}{'times idle':>12}{'memory, MB':>12}{'all, s':>9}")
    rows: dict[str, tuple[float, float, float]] = {}
    for name, case in {"an honest program": idle, **CASES}.items():
        if options.only in name:
            started = time.perf_counter()
            beat = asyncio.run(measured(case))
            seconds = time.perf_counter() - started
            ratio = beat.held_seconds / quiet.held_seconds
            memory = memory_mb()
            rows[name] = (beat.pause_seconds, beat.held_seconds, memory)
            pause_ms, held_ms = beat.pause_seconds * 1000, beat.held_seconds * 1000
            print(f"{name:44}{pause_ms:>10.0f}{held_ms:>10.0f}{ratio:>12.1f}{memory:>12.0f}{seconds:>9.1f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"host": host, "rows": rows}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Tools that stream, over HTTP to real programs elsewhere and to a bare client."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from corral import Corral, Limits, OutsideExecution, ToolError, tool
from corral.guest import http_runtime
from tests.bridges.http.engines import run_elsewhere
from tests.bridges.http.serving import CONTEXT, PATIENCE_SECONDS, Server

ITEM_BYTES = 10_000
closed = threading.Semaphore(0)
yielded = 0


@tool(stream=True)
async def numbers(n: int) -> AsyncIterator[int]:
    """Counts."""
    for number in range(n):
        yield number


@tool(stream=True)
async def pieces() -> AsyncIterator[bytes]:
    """Bytes, one by one."""
    for number in range(3):
        await anyio.lowlevel.checkpoint()
        yield bytes([number, 255])


@tool(stream=True)
async def endless() -> AsyncIterator[str]:
    """Texts without an end."""
    global yielded
    yielded = 0
    try:
        for number in count():
            yielded = number
            yield f"{number}".ljust(ITEM_BYTES)
    finally:
        closed.release()


@tool(stream=True)
async def broken() -> AsyncIterator[int]:
    """Fails after two numbers."""
    yield 1
    yield 2
    raise ToolError("the shop is closed")


@tool(stream=True)
async def waiting() -> AsyncIterator[int]:
    """One number, and then nothing."""
    try:
        yield 1
        await anyio.sleep_forever()
    finally:
        closed.release()


@tool
async def double(n: int) -> int:
    """Doubles."""
    return 2 * n


@tool
async def when_closed() -> bool:
    """Waits until a stream was closed."""
    return await anyio.to_thread.run_sync(lambda: closed.acquire(timeout=PATIENCE_SECONDS))


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, Corral]]:
    tools: list[Any] = [numbers, pieces, endless, broken, waiting, double, when_closed]
    corral = Corral(tools, check=False)
    with Server(corral.asgi_app()) as server:
        yield server, corral


@pytest.fixture
def execution(server: tuple[Server, Corral]) -> Iterator[OutsideExecution]:
    bridge, corral = server
    execution = bridge.do(lambda: corral.grant(CONTEXT))
    yield execution
    bridge.do(execution.end)


SEEN = [
    list(range(5)),
    ["0,255", "1,255", "2,255"],
    [1, 2, "tool_error", "the shop is closed"],
    [sum(range(100)) * 2, 30],
    True,
    True,
    1000,
]
IN_TYPESCRIPT = """
const seen = [];
seen.push(await collect(tools.numbers({n: 5})));
seen.push((await collect(await tools.pieces())).map(String));
const found = [];
try { for await (const each of tools.broken()) found.push(each) } catch (error) { found.push(error.code, error.message) }
seen.push(found);
let sum = 0;
const [stream, other] = await Promise.all([tools.numbers({n: 100}), tools.numbers({n: 30}), tools.double({n: 1})]);
for await (const each of stream) sum += await tools.double({n: each});
seen.push([sum, (await collect(other)).length]);
for await (const each of tools.endless()) break;
seen.push(await tools.when_closed());
for await (const each of await tools.waiting()) break;
seen.push(await tools.when_closed());
seen.push((await collect(tools.numbers({n: 1000}))).length);
async function collect(stream) { const found = []; for await (const each of stream) found.push(each); return found }
return seen;
"""
IN_PYTHON = """
import asyncio, json, os, sys
sys.path.insert(0, os.getcwd())
from corral_tools import ToolError, connect

async def main():
    seen = []
    async with connect(*sys.argv[1:]) as connection:
        tools = connection.tools
        seen.append([each async for each in tools.numbers(n=5)])
        seen.append([",".join(map(str, each)) async for each in await tools.pieces()])
        found = []
        try:
            async for each in tools.broken():
                found.append(each)
        except ToolError as error:
            found += [error.code, str(error)]
        seen.append(found)
        sum = 0
        stream, other, _ = await asyncio.gather(tools.numbers(n=100), tools.numbers(n=30), tools.double(n=1))
        async for each in stream:
            sum += await tools.double(n=each)
        seen.append([sum, len([each async for each in other])])
        async for each in tools.endless():
            break
        seen.append(await tools.when_closed())
        async for each in await tools.waiting():
            break
        seen.append(await tools.when_closed())
        seen.append(len([each async for each in tools.numbers(n=1000)]))
    print(json.dumps(seen))

asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["deno", "node"])
def test_streams_in_typescript_elsewhere(
    server: tuple[Server, Corral], execution: OutsideExecution, tmp_path: Path, engine: str
) -> None:
    url, token = server[0].url, server[0].do(execution.token)
    assert run_elsewhere(engine, tmp_path, url, {"main": token}, IN_TYPESCRIPT) == SEEN


def test_streams_in_python_elsewhere(
    server: tuple[Server, Corral], execution: OutsideExecution, tmp_path: Path
) -> None:
    (tmp_path / "corral_tools.py").write_text(http_runtime("python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON, server[0].url, server[0].do(execution.token)],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert json.loads(done.stdout) == SEEN


def body(*calls: dict[str, Any], stream: bool = True) -> dict[str, Any]:
    return {"calls": [{"sequence": number, **each} for number, each in enumerate(calls, 1)], "stream": stream}


@pytest.fixture
def client(server: tuple[Server, Corral], execution: OutsideExecution) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server[0].do(execution.token)}"}
    with httpx.Client(base_url=server[0].url, headers=headers, timeout=PATIENCE_SECONDS) as client:
        yield client


def test_a_client_asks_for_a_stream_and_gets_a_list_otherwise(client: httpx.Client) -> None:
    call = {"tool": "numbers", "input": {"n": 3}}
    plain = client.post("/calls", json=body(call, stream=False))
    assert plain.text == '{"sequence":1,"value":[0,1,2]}\n'
    assert client.post("/tools/numbers", json={"n": 3}).json() == [0, 1, 2]
    lines = [json.loads(line) for line in client.post("/calls", json=body(call)).text.splitlines()]
    assert [item for line in lines[:-1] for item in line["items"]] == [0, 1, 2]
    assert lines[-1] == {"sequence": 1}


def test_a_stream_is_alone_in_its_request(client: httpx.Client) -> None:
    stream = {"tool": "numbers", "input": {"n": 3}}
    reply = client.post("/calls", json=body(stream, {"tool": "double", "input": {"n": 2}}))
    assert sorted(reply.text.splitlines()) == ['{"sequence":1,"alone":true}', '{"sequence":2,"value":4}']


def test_an_error_before_the_stream_is_a_plain_one(client: httpx.Client) -> None:
    reply = client.post("/calls", json=body({"tool": "numbers", "input": {"n": "many"}}))
    assert json.loads(reply.text)["error"]["code"] == "invalid_arguments"


def test_a_client_that_does_not_read_holds_the_tool_up_and_one_that_goes_closes_it(
    server: tuple[Server, Corral], client: httpx.Client
) -> None:
    bridge, corral = server
    wide = bridge.do(lambda: corral.grant(CONTEXT, limits=Limits(tool_output_bytes=10**9)))
    headers = {"authorization": f"Bearer {bridge.do(wide.token)}"}
    with client.stream("POST", "/calls", json=body({"tool": "endless"}), headers=headers) as reply:
        assert next(reply.iter_bytes())
        for number in range(100):
            assert client.post("/tools/double", json={"n": number}).json() == 2 * number
    assert closed.acquire(timeout=PATIENCE_SECONDS)
    assert yielded * ITEM_BYTES < 20_000_000  # what the buffers of server and socket take
    bridge.do(wide.end)


def test_the_document_says_that_the_output_is_a_list(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schema = document["paths"]["/tools/numbers"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema["type"] == "array"

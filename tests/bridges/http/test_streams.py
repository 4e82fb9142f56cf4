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

from corral import Corral, Limits, ToolError, tool
from corral.calls import RemoteExecution
from corral.guest import http_runtime
from tests.bridges.http.engines import run_elsewhere
from tests.bridges.http.serving import CONTEXT, NO_TLS, PATIENCE_SECONDS, Server
from tests.census import with_rest

ITEM_BYTES = 10_000
LINES = {"accept": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
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
    with Server(corral.remote.asgi_app()) as server:
        yield server, corral


@pytest.fixture
def execution(server: tuple[Server, Corral]) -> Iterator[RemoteExecution]:
    bridge, corral = server
    execution = bridge.do(lambda: corral.remote.grant(CONTEXT))
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


@pytest.mark.parametrize("engine", with_rest(["deno", "node"], ["deno"], "the gate has it in Deno; here in Node"))
def test_streams_in_typescript_elsewhere(
    server: tuple[Server, Corral], execution: RemoteExecution, tmp_path: Path, engine: str
) -> None:
    url, token = server[0].url, server[0].do(execution.token)
    assert run_elsewhere(engine, tmp_path, url, {"main": token}, IN_TYPESCRIPT) == SEEN


def test_streams_in_python_elsewhere(server: tuple[Server, Corral], execution: RemoteExecution, tmp_path: Path) -> None:
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
def client(server: tuple[Server, Corral], execution: RemoteExecution) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server[0].do(execution.token)}"}
    with httpx.Client(base_url=server[0].url, headers=headers, timeout=PATIENCE_SECONDS, verify=NO_TLS) as client:
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


@pytest.mark.parametrize(
    ("path", "sent"), [("/calls", body({"tool": "endless"})), ("/tools/endless", dict[str, object]())]
)
def test_a_client_that_does_not_read_holds_the_tool_up_and_one_that_goes_closes_it(
    server: tuple[Server, Corral], client: httpx.Client, path: str, sent: dict[str, Any]
) -> None:
    bridge, corral = server
    wide = bridge.do(lambda: corral.remote.grant(CONTEXT, limits=Limits(tool_output_bytes=10**9)))
    headers = LINES | {"authorization": f"Bearer {bridge.do(wide.token)}"}
    with client.stream("POST", path, json=sent, headers=headers) as reply:
        assert next(reply.iter_bytes())
        for number in range(100):
            assert client.post("/tools/double", json={"n": number}).json() == 2 * number
    assert closed.acquire(timeout=PATIENCE_SECONDS)
    assert yielded * ITEM_BYTES < 100_000_000  # more than buffers of server and sockets take, which grow as needed
    bridge.do(wide.end)


def items(text: str) -> list[Any]:
    lines = [json.loads(line) for line in text.splitlines() if line]
    assert lines[-1] == {"sequence": 1}
    return [item for line in lines[:-1] for item in line["items"]]


def test_the_plain_route_streams_to_a_client_that_accepts_lines(client: httpx.Client) -> None:
    reply = client.post("/tools/numbers", json={"n": 3}, headers=LINES)
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert items(reply.text) == [0, 1, 2]
    assert items(client.post("/tools/numbers", json={"n": 0}, headers=LINES).text) == []
    assert items(client.post("/tools/pieces", json={}, headers=LINES).text) == ["AP8=", "Af8=", "Av8="]
    assert client.post("/tools/double", json={"n": 2}, headers=LINES).text == "4"


def test_an_error_of_the_plain_route_is_its_status_before_the_stream_and_a_line_within(client: httpx.Client) -> None:
    wrong = client.post("/tools/numbers", json={"n": "many"}, headers=LINES)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid_arguments")
    assert client.post("/tools/numbers", content=b"{", headers=LINES | JSON).status_code == 400
    lines = [json.loads(line) for line in client.post("/tools/broken", json={}, headers=LINES).text.splitlines()]
    assert [item for line in lines[:-1] for item in line["items"]] == [1, 2]
    assert (lines[-1]["error"]["code"], lines[-1]["error"]["message"]) == ("tool_error", "the shop is closed")


def test_a_stream_of_the_plain_route_ends_with_its_execution(server: tuple[Server, Corral]) -> None:
    bridge, corral = server
    short = bridge.do(lambda: corral.remote.grant(CONTEXT))
    headers = LINES | {"authorization": f"Bearer {bridge.do(short.token)}"}
    with httpx.stream(
        "POST", f"{bridge.url}/tools/waiting", json={}, headers=headers, timeout=30, verify=NO_TLS
    ) as reply:
        lines = reply.iter_lines()
        assert json.loads(next(lines))["items"] in ([], [1])
        bridge.do(short.end)
        assert json.loads([line for line in lines if line][-1])["error"]["code"] == "invalid_token"
    assert closed.acquire(timeout=PATIENCE_SECONDS)


def test_the_document_says_that_the_output_is_a_list(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    content = document["paths"]["/tools/numbers"]["post"]["responses"]["200"]["content"]
    assert content.keys() == {"application/json", "application/x-ndjson"}
    assert content["application/json"]["schema"]["type"] == "array"

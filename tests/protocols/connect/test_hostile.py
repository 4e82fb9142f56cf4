"""Connect by requests that no client makes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from corral import Corral, Limits
from corral.calls import RemoteExecution
from corral.protocols.connect import ConnectBridge
from tests.bridges.http.serving import NO_TLS, Audited, Clock, Connection, Served, Server, Waiting, request
from tests.protocols.grpc.serving import endless_closed, more_tools

JSON, STREAM = "application/json", "application/connect+json"
CALLS = "/corral.v1.Bridge/Calls"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    audit, waiting = Audited(), Waiting()
    corral = Corral([*more_tools(), waiting.tool], audit=audit.log, check=False)
    with Server(corral.remote.asgi_app(ConnectBridge())) as server:
        yield Served(corral, server, audit, waiting, Clock())


@pytest.fixture
def execution(served: Served) -> Iterator[RemoteExecution]:
    execution = served.grant(limits=Limits(tool_input_bytes=100_000))
    yield execution
    served.end(execution)


@pytest.fixture
def client(served: Served, execution: RemoteExecution) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {execution.token()}"}
    with httpx.Client(base_url=served.server.url, headers=headers, trust_env=False, timeout=30, verify=NO_TLS) as made:
        yield made


def envelope(content: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + len(content).to_bytes(4, "big") + content


def tool(name: str) -> str:
    return f"/corral.tools.Tools/{name}"


DEEP = b'{"input":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}"
ADD = b'{"a":1,"b":2}'


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "word"),
    [
        (tool("add"), ADD, {}, 200, '"3"'),
        (tool("add"), b"", {}, 400, "invalid_arguments"),
        (tool("add"), ADD, {"connect-protocol-version": "1", "connect-timeout-ms": "5000"}, 200, '"3"'),
        (tool("add"), ADD, {"connect-protocol-version": "2"}, 400, "connect-protocol-version"),
        (tool("add"), ADD, {"connect-timeout-ms": "1e3"}, 400, "connect-timeout-ms"),
        (tool("add"), ADD, {"connect-timeout-ms": "1" * 11}, 400, "connect-timeout-ms"),
        (tool("wait"), b"", {"connect-timeout-ms": "20"}, 504, "deadline_exceeded"),
        (tool("wait"), b"", {"connect-timeout-ms": "0"}, 504, "deadline_exceeded"),
        (tool("add"), b'{"c":1}', {}, 400, "no field named"),
        (tool("add"), b"{", {}, 400, "malformed_message"),
        (tool("add"), b'{"a":1,"a":2}', {}, 400, "malformed_message"),
        (tool("add"), b'{"a":' + b"9" * 5_000 + b"}", {}, 400, "malformed_message"),
        (tool("add"), b"\xff\xfe", {}, 400, "malformed_message"),
        (tool("echo"), DEEP, {}, 400, "malformed_message"),
        (tool("echo"), b'{"input":{"a":"%b"}}' % (b"x" * 120_000), {}, 429, "message_too_large"),
        (tool("echo"), b"x" * 2_000_000, {}, 429, "message_too_large"),
        (tool("none"), b"{}", {}, 501, "tool_not_found"),
        (tool("send"), b"{}", {}, 403, "scope_denied"),
        ("/corral.v1.Bridge/None", b"{}", {}, 501, "unknown method"),
        ("/", b"{}", {}, 501, "unknown method"),
        (tool("break_down"), b"{}", {}, 500, "tool_failed"),
        (tool("large"), b"{}", {}, 500, "invalid_tool_output"),
        (tool("add"), ADD, {"content-type": "application/proto"}, 400, "malformed_message"),
        (tool("add"), ADD, {"content-type": "application/json; charset=utf-8"}, 200, '"3"'),
        (tool("add"), ADD, {"content-type": "text/plain"}, 415, ""),
        (tool("add"), ADD, {"content-type": STREAM}, 200, "does not stream"),
        (tool("numbers"), b'{"n":1}', {}, 501, "streams"),
        (tool("add"), gzip.compress(ADD), {"content-encoding": "gzip"}, 200, '"3"'),
        (tool("add"), ADD, {"content-encoding": "gzip"}, 400, "not gzip"),
        (tool("add"), gzip.compress(ADD)[:-4], {"content-encoding": "gzip"}, 400, "exactly one gzip"),
        (tool("add"), gzip.compress(ADD) * 2, {"content-encoding": "gzip"}, 400, "exactly one gzip"),
        (tool("add"), gzip.compress(b" " * 50_000_000), {"content-encoding": "gzip"}, 429, "expands"),
        (tool("add"), ADD, {"content-encoding": "br"}, 501, "gzip"),
        (tool("add"), ADD, {"authorization": "Bearer x"}, 401, "invalid_token"),
        (tool("add"), ADD, {"origin": "https://elsewhere.example"}, 403, "Origin"),
        (CALLS, envelope(b"{}"), {"content-type": STREAM, "origin": "https://elsewhere.example"}, 200, "Origin"),
        (CALLS, envelope(b"{}") * 2, {"content-type": STREAM}, 200, "one envelope"),
        (CALLS, b"\0\0", {"content-type": STREAM}, 200, "one envelope"),
        (CALLS, b"\0\xff\xff\xff\xff{}", {"content-type": STREAM}, 200, "one envelope"),
        (CALLS, envelope(b"{}", 2), {"content-type": STREAM}, 200, "unknown flags"),
        (CALLS, envelope(gzip.compress(b"{}"), 1), {"content-type": STREAM}, 200, "connect-content-encoding"),
        (CALLS, envelope(b"{}"), {"content-type": STREAM}, 200, "malformed_message"),
        (CALLS, envelope(b'{"calls":"W10="}'), {"content-type": STREAM}, 200, "malformed_message"),
    ],
    ids=lambda each: "" if isinstance(each, bytes | dict) else None,
)
def test_requests(
    client: httpx.Client, path: str, body: bytes, headers: dict[str, str], status: int, word: str
) -> None:
    answer = client.post(path, content=body, headers={"content-type": JSON} | headers)
    assert answer.status_code == status, answer.text
    assert word in answer.text
    assert "hunter2" not in answer.text
    if status >= 400 and status != 415:
        assert {"code", "message", "details"} == answer.json().keys()


def test_other_methods_and_paths(client: httpx.Client) -> None:
    assert client.get(tool("add")).status_code == 405
    assert client.put(tool("add"), json={}).headers["allow"] == "POST"
    assert client.get("/health").json() == {"status": "ok"}
    assert b"connect" in client.get("/corral.mjs").content


def test_a_token_is_renewed(client: httpx.Client, execution: RemoteExecution) -> None:
    renewed = client.post("/corral.v1.Bridge/Renew", json={}).json()
    assert renewed["token"] != execution.token()
    client.headers["authorization"] = f"Bearer {renewed['token']}"
    assert client.post(tool("add"), json={"a": 1, "b": 2}).json() == {"result": "3"}


def test_an_execution_that_ends_ends_its_requests(served: Served) -> None:
    other = served.grant()
    with Connection(served.server.port) as connection:
        connection.send(request(tool("wait"), b"{}", token=other.token()))
        assert served.waiting.started.wait(30)
        served.end(other)
        answer = connection.answer()
    assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
    assert served.waiting.was_cancelled()


def test_a_client_that_goes_cancels_its_call(served: Served, execution: RemoteExecution) -> None:
    with Connection(served.server.port) as connection:
        connection.send(request(tool("wait"), b"{}", token=execution.token()))
        assert served.waiting.started.wait(30)
    assert served.waiting.was_cancelled()


def test_a_tool_waits_for_a_client_that_does_not_read(served: Served, execution: RemoteExecution) -> None:
    with Connection(served.server.port) as connection:
        body = envelope(b"{}")
        connection.send(request(tool("endless"), body, token=execution.token(), kind=STREAM))
        first: Any = connection._read.readline()  # pyright: ignore[reportPrivateUsage]
        assert b"200" in first
    assert endless_closed.acquire(timeout=30)


def test_json_of_a_stream_is_in_envelopes(client: httpx.Client) -> None:
    body = envelope(gzip.compress(b'{"n":2}'), 1)
    headers = {"content-type": STREAM, "connect-content-encoding": "gzip"}
    data = client.post(tool("numbers"), content=body, headers=headers).content
    found: list[tuple[int, Any]] = []
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        found.append((data[0], json.loads(data[5:end])))
        data = data[end:]
    assert found == [(0, {"result": "0"}), (0, {"result": "1"}), (2, {})]

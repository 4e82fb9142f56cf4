"""tRPC by the real `@trpc/client`, and by requests that no client makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from corral import Corral
from corral.calls import RemoteExecution
from corral.protocols.trpc import TrpcBridge
from tests.bridges.http.serving import CONTEXT, NO_TLS, Audited, Server, Waiting, approve
from tests.bridges.http.serving import tools as other_tools
from tests.foreign import run_deno
from tests.protocols.graphql.serving import tools

HERE = Path(__file__).parent


class Served(NamedTuple):
    corral: Corral
    server: Server
    audit: Audited
    waiting: Waiting

    def grant(self) -> RemoteExecution:
        return self.server.do(lambda: self.corral.remote.grant(CONTEXT))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    audit, waiting = Audited(), Waiting()
    corral = Corral([*tools(), *other_tools(), waiting.tool], audit=audit.log, approve=approve, check=False)
    plain, rich = (TrpcBridge(transformer=each) for each in (None, "superjson"))
    app = Starlette(
        routes=[Mount("/plain", corral.remote.asgi_app(plain)), Mount("/rich", corral.remote.asgi_app(rich))]
    )
    with Server(app) as server:
        yield Served(corral, server, audit, waiting)


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    execution = served.grant()
    headers = {"authorization": f"Bearer {execution.token()}"}
    with httpx.Client(
        base_url=f"{served.server.url}/plain", headers=headers, trust_env=False, timeout=30, verify=NO_TLS
    ) as made:
        yield made
    served.server.do(execution.end)


def test_results_that_are_streamed_end_with_their_execution(served: Served) -> None:
    execution = served.grant()
    headers = {"authorization": f"Bearer {execution.token()}", "trpc-accept": "application/jsonl"}
    url = f"{served.server.url}/plain/nothing,wait?batch=1"
    with httpx.stream("POST", url, json={}, headers=headers, trust_env=False, timeout=30, verify=NO_TLS) as response:
        lines = map(json.loads, response.iter_lines())
        assert [next(lines).keys(), next(lines)[0]] == [{"0", "1"}, 0]
        assert served.waiting.started.wait(30)
        served.server.do(execution.end)
        assert ["the execution of this token has ended" in json.dumps(line) for line in lines] == [True]
    assert served.waiting.was_cancelled()


def test_the_links_of_the_real_client(served: Served, tmp_path: Path) -> None:
    execution, gone = served.grant(), served.grant()
    other = gone.token()
    served.server.do(gone.end)
    url = served.server.url
    given = {"plain": f"{url}/plain", "rich": f"{url}/rich", "token": execution.token(), "other": other}
    printed = run_deno(
        tmp_path, HERE / "clients.ts", json.dumps(given), command=["run", "--allow-net", "--allow-env", "--no-check"]
    )
    found: dict[str, Any] = dict(json.loads(line) for line in printed.splitlines())
    point = {"x": 5, "y": 0.5, "tags": ["t"], "side": None}
    refused = ["tool_error", "UNPROCESSABLE_CONTENT", 422, "refuse"]
    absent = ["tool_not_found", "NOT_FOUND", 404, "no.such"]
    leaf: dict[str, Any] = {"name": "root", "children": [{"name": "leaf", "children": []}]}
    for name in ("httpLink", "httpBatchLink", "httpBatchStreamLink", "POST only"):
        assert found.pop(name) == [point, 3, refused, absent, leaf], name
        if name != "POST only":
            assert found.pop(f"superjson {name}") == [point, 3, refused, absent, leaf], name
    assert found == {
        "values": ["bigint", str(2**70), True, True, [0, 255]],
        "echo": ["bigint", "100000000000000000000"],
        "refused": ["invalid_token", "UNAUTHORIZED", 401, None],
        "get of a change": 403,
        "items": [[0, 1, 2], "complete"],
        "superjson items": [[0, 1, 2], "complete"],
    }


@pytest.mark.matrix("clients call the router in the gate; the compiler on its types")
def test_a_typed_client_compiles_against_the_router(tmp_path: Path) -> None:
    async def document() -> str:
        corral = Corral([*tools(), *other_tools()])
        async with corral.connected():
            return await corral.remote.document("trpc")

    (tmp_path / "router.d.ts").write_text(anyio.run(document), encoding="utf-8")
    run_deno(tmp_path, HERE / "typed.ts", command=["check"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("POST", "/add", b'{"a":1,"b":2}', 200, "3"),
        ("POST", "/add", b'{"a":"x","b":2}', 422, "invalid_arguments"),
        ("POST", "/add", b"{", 400, "malformed_message"),
        ("POST", "/add?batch=1", b"[]", 400, "batch"),
        ("POST", "/add,add?batch=1", b'{"0":{"a":1,"b":2},"1":{"a":"x","b":2}}', 207, "invalid_arguments"),
        ("POST", "/" + ",".join(["add"] * 1001) + "?batch=1", b"{}", 414, "address"),
        ("POST", "/" + "a" * 300, b"{}", 400, "path"),
        ("POST", "/", b"{}", 400, "path"),
        ("GET", "/tree", b"", 200, "leaf"),
        ("GET", "/add?input=%7B%22a%22%3A1%2C%22b%22%3A2%7D", b"", 403, "read-only"),
        ("PUT", "/add", b"{}", 405, "GET or POST"),
        ("POST", "/odd_things.values", b"", 200, "AP8="),
        ("POST", "/corral/calls", b'{"calls":[]}', 400, "malformed_message"),
        ("POST", "/corral/calls", b'{"calls":[{"sequence":1,"tool":"add","input":{"a":1,"b":2}}]}', 200, '"value":3'),
        ("GET", "/corral/calls", b"", 404, "tool_not_found"),
        ("POST", "/corral/token", b"{", 400, "malformed_message"),
    ],
)
def test_requests(client: httpx.Client, method: str, path: str, body: bytes, status: int, word: str) -> None:
    response = client.request(method, path, content=body, headers={"content-type": "application/json"} if body else {})
    assert response.status_code == status, response.text
    assert word in response.text


def test_scopes_rates_and_tokens_hold(client: httpx.Client, served: Served) -> None:
    assert (
        httpx.post(f"{served.server.url}/plain/add", json={}, trust_env=False, timeout=30, verify=NO_TLS).status_code
        == 401
    )
    bad = {"authorization": "Bearer x", "content-type": "text/plain"}
    assert httpx.post(
        f"{served.server.url}/plain/add",
        content=b"{}",
        headers=bad,
        trust_env=False,
        timeout=30,
        verify=NO_TLS,
    ).status_code in (
        401,
        415,
    )
    page = client.post("/add", json={"a": 1, "b": 2}, headers={"origin": "https://elsewhere.example"})
    assert page.status_code == 403
    assert page.json()["error"]["data"]["httpStatus"] == 403
    assert client.get("/health").status_code == 200

"""Large values leave the event loop: their Python work is done in a thread, whatever the protocol."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Hashable
from typing import Any

import httpx
import pytest

from corral import Corral, ExecutionContext, tool
from corral.bridges.base import BridgeProtocol
from corral.bridges.http import HttpBridge
from corral.concurrency.fairness import _turns_here  # pyright: ignore[reportPrivateUsage]
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.trpc import TrpcBridge
from tests.work import calls_counted

INPUT = b'{"value":[' + b",".join([b'{"a":[]}'] * 11_000) + b"]}"
MOST_CALLS = 12_000


@tool
async def echo(value: Any = None) -> Any:
    return value


def of_calls(tagged: bytes) -> bytes:
    return b'{"calls":[{"sequence":1,"tool":"echo","tagged":%b,"input":%b}]}' % (tagged, INPUT)


OTHER_REQUESTS = pytest.mark.matrix("two protocols in the gate decode in the same thread; the other requests")
REQUESTS: dict[str, tuple[Callable[[], BridgeProtocol], str, bytes]] = {
    "http": (HttpBridge, "/calls", of_calls(b"false")),
    "http, tagged": (HttpBridge, "/calls", of_calls(b"true")),
    "http, one tool": (HttpBridge, "/tools/echo", INPUT),
    "trpc": (TrpcBridge, "/echo", INPUT),
    "trpc, superjson": (lambda: TrpcBridge(transformer="superjson"), "/echo", b'{"json":%b}' % INPUT),
    "connect": (
        ConnectBridge,
        "/corral.v1.Bridge/Call",
        json.dumps({"tool": "echo", "tagged": True, "input": b64encode(INPUT).decode()}).encode(),
    ),
    "graphql": (GraphqlBridge, "/", b'{"query":"mutation($value:JSON){echo(value:$value)}","variables":%b}' % INPUT),
    "graphql, calls": (
        GraphqlBridge,
        "/",
        b'{"query":"mutation($calls:[JSON!]!){_calls(calls:$calls)}","variables":%b}' % of_calls(b"true"),
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("http, tagged", "trpc") else [OTHER_REQUESTS], id=name)
        for name in REQUESTS
    ],
)
async def test_what_a_large_value_costs_in_python_is_not_spent_on_the_event_loop(name: str) -> None:
    make, path, body = REQUESTS[name]
    async with Corral([echo]) as corral:
        with corral.remote.grant(ExecutionContext(user_id="ada")) as grant:
            headers = {"authorization": f"Bearer {grant.token()}", "content-type": "application/json"}
            transport = httpx.ASGITransport(app=corral.remote.asgi_app(make()))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                with calls_counted() as count:
                    response = await client.post(path, content=body, headers=headers)
    assert response.status_code == 200
    assert len(response.content) > len(INPUT) * 0.9
    assert count.calls < MOST_CALLS


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("make", "path", "body"),
    [
        (HttpBridge, "/tools/look", b"{}"),
        (HttpBridge, "/calls", b'{"calls":[{"sequence":1,"tool":"look","input":{}}]}'),
        (TrpcBridge, "/look", b"{}"),
        (ConnectBridge, "/corral.v1.Bridge/Call", b'{"tool":"look"}'),
        (GraphqlBridge, "/", b'{"query":"mutation{look}"}'),
    ],
)
async def test_a_call_makes_its_tenant_active(make: Callable[[], BridgeProtocol], path: str, body: bytes) -> None:
    seen: list[Hashable] = []

    @tool
    async def look() -> int:
        seen.extend(_turns_here().active)
        return 1

    async with Corral([look]) as corral:
        context = ExecutionContext(user_id="ada")
        with corral.remote.grant(context) as grant:
            headers = {"authorization": f"Bearer {grant.token()}", "content-type": "application/json"}
            transport = httpx.ASGITransport(app=corral.remote.asgi_app(make()))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                (await client.post(path, content=body, headers=headers)).raise_for_status()
    assert seen == [context.owner]
    assert not _turns_here().active

"""The server that is measured: the bridge, and an echo that does nothing else. `bench.bridge.http` starts it.

`python -m bench.bridge.server PROTOCOL`; the address that it prints is that of the protocol's app.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
from starlette.types import Receive, Scope, Send

from corral import Corral, ExecutionContext, Limits, tool
from corral.bridges.http import HttpBridge
from corral.bridges.web import WebBridge
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.trpc import TrpcBridge

EXECUTIONS = 16


async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def _echo(receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


BRIDGES: dict[str, tuple[type[WebBridge], str]] = {
    "http": (HttpBridge, ""),
    "graphql": (GraphqlBridge, "/graphql"),
    "trpc": (TrpcBridge, ""),
    "connect": (ConnectBridge, ""),
}
"""Bridges, and the path at which their app serves."""


async def _main(protocol: str) -> None:
    corral = Corral([tool(add)], limits=Limits(calls=10_000_000))
    make, path = BRIDGES[protocol]
    bridge = corral.remote.asgi_app(make())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/echo":
            await _echo(receive, send)
        else:
            await bridge(scope, receive, send)

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        grants = [corral.remote.grant(ExecutionContext(user_id=f"user{number}")) for number in range(EXECUTIONS)]
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
        print(json.dumps({"url": url, "tokens": [grant.token() for grant in grants]}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
    await corral.aclose()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))

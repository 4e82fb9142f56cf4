"""The server that is measured: the bridge, and an echo that does nothing else. `bench.bridge.http` starts it."""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
from starlette.types import Receive, Scope, Send

from corral import Corral, ExecutionContext, Limits, tool

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


async def _main() -> None:
    corral = Corral([tool(add)], limits=Limits(calls=10_000_000))
    bridge = corral.asgi_app()

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
        grants = [corral.grant(ExecutionContext(user_id=f"user{number}")) for number in range(EXECUTIONS)]
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(json.dumps({"url": url, "tokens": [grant.token() for grant in grants]}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
    await corral.aclose()


if __name__ == "__main__":
    asyncio.run(_main())

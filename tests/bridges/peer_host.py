"""One of several hosts, as a process: `python -m tests.bridges.peer_host SETTINGS`, which are JSON.

It serves a bridge at `/bridge`, and opens and ends executions for tests at `/make/USER` and `/end/EXECUTION`. With a
folder as `store`, it runs Python programs in USER's one session, whose files are stored there, at `/run/USER`. A call of
`wait` makes the file `waits`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from corral import Corral, ExecutionContext, tool
from corral.bridges import PeerHosts
from corral.bridges.peers import Peers
from corral.bridges.peers_redis import RedisPeers
from corral.calls import RemoteExecution
from corral.errors import CorralError
from corral.sessions import DirectoryStore, Scratch, Sessions
from corral.sessions import Mount as SessionMount

SECRET = "the key that all hosts of these tests share"


def peers_of(settings: Mapping[str, Any]) -> PeerHosts:
    """The peers that settings describe."""
    name, urls = settings["name"], settings.get("urls", {})
    if redis := settings.get("redis"):
        return RedisPeers(name, settings["url"], redis, lease_seconds=settings["lease_seconds"])
    return Peers(name, urls)


async def serve(settings: Mapping[str, Any]) -> None:
    name, executions = settings["name"], dict[str, RemoteExecution]()

    @tool(read_only=True)
    async def where() -> str:
        """Returns the host that runs it."""
        return name

    @tool
    async def wait() -> None:
        """Waits for ever."""
        if "waits" in settings:
            Path(settings["waits"]).touch()
        await anyio.sleep_forever()

    async def make(request: Request) -> JSONResponse:
        execution = corral.remote.grant(ExecutionContext(user_id=request.path_params["user"]))
        executions[execution.execution_id] = execution
        return JSONResponse({"id": execution.execution_id, "token": execution.token()})

    async def end(request: Request) -> JSONResponse:
        executions.pop(request.path_params["execution"]).end()
        return JSONResponse({})

    async def run(request: Request) -> JSONResponse:
        context = ExecutionContext(user_id=request.path_params["user"], session_id="one")
        source = (await request.body()).decode()
        try:
            result = await corral.execute(source, language="python", context=context)
        except CorralError as error:
            return JSONResponse(error.code, 409)
        return JSONResponse(result.value if result.error is None else result.error.message)

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncGenerator[None]:
        async with corral:
            yield

    store, bridge = settings.get("store"), settings.get("bridge", "http")
    sessions = store and Sessions(files=(SessionMount("/workspace", Scratch(store=DirectoryStore(Path(store)))),))
    corral = Corral([where, wait], bridge=bridge, peers=peers_of(settings), sessions=sessions, check=False)
    routes = [
        Route("/make/{user}", make),
        Route("/end/{execution}", end),
        Route("/run/{user}", run, methods=["POST"]),
        Mount("/bridge", corral.remote.asgi_app()),
    ]
    app = Starlette(routes=routes, lifespan=opened)
    config = uvicorn.Config(app, host="127.0.0.1", port=settings["port"], log_level="warning", access_log=False)
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(300)  # if the test that started it was killed
    os.environ["TOOL_BRIDGE_SECRET"] = SECRET
    asyncio.run(serve(json.loads(sys.argv[1])))

"""A small real bridge whose tools are named after their effect on a reply, and golden values that it transfers."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["FROM_GUEST", "FROM_HOST", "TAGGED", "Bridge", "Server", "token"]

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
FROM_GUEST: list[dict[str, Any]] = VECTORS["from_guest"]
FROM_HOST: list[dict[str, Any]] = VECTORS["from_host"]
TAGGED: dict[str, Any] = {
    "NaN": {"$number": "NaN"},
    "-Infinity": {"$number": "-Infinity"},
    "18446744073709551616": {"$bigint": "18446744073709551616"},
}
"""What is an extension of JSON in frames."""


def token(seconds: float, name: str = "first") -> str:
    claims = {"iat": time.time(), "exp": time.time() + seconds, "name": name}
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.c2ln"


_IN_ONE_PIECE = {"echo", "space.echo", "nothing"}
"""Tools whose reply, if it is the only one, has a length, as corral's bridge sends it."""


class Bridge:
    """The server's side of one program's requests. Tools are named after their effect on the reply."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.token = token(300)
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.connections: set[Any] = set()
        self.renewals: list[Response] = []
        """The answers to requests for a token, in their order; the last one stands."""
        self.renewed = 0
        self.running = self.most_running = 0
        self._released = anyio.Event()
        self._gathered = anyio.Event()
        self._waiting_for_renewals: list[tuple[int, anyio.Event]] = []

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [call for body in self.bodies for call in body["calls"]]

    async def serve_calls(self, request: Request) -> Response:
        assert request.headers["content-type"] == "application/json"
        self.tokens.append(request.headers["authorization"].removeprefix("Bearer "))
        self.connections.add(request.client)
        body = json.loads(await request.body(), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
        self.bodies.append(body)
        first = body["calls"][0]
        if first["tool"] == "refuse":
            return Response(first["input"]["body"], first["input"]["status"])
        if len(body["calls"]) == 1 and first["tool"] in _IN_ONE_PIECE:
            return Response(await self._text(first), media_type="application/x-ndjson")
        return StreamingResponse(self._lines(body["calls"]), media_type="application/x-ndjson")

    async def _lines(self, calls: list[dict[str, Any]]) -> AsyncGenerator[str]:
        send, receive = anyio.create_memory_object_stream[str](len(calls))

        async def answer(call: dict[str, Any]) -> None:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            text = await self._text(call)
            self.running -= 1
            send.send_nowait(text)

        async with anyio.create_task_group() as tasks, send, receive:
            for call in calls:
                tasks.start_soon(answer, call)
            for call in calls:
                yield await receive.receive()
                if call["tool"] == "break_off":
                    raise ConnectionError

    async def _text(self, call: dict[str, Any]) -> str:
        reply: dict[str, Any] = {"sequence": call["sequence"]}
        match call["tool"]:
            case "echo" | "space.echo":
                reply |= {"value": call["input"], "tagged": call.get("tagged", False)}
            case "vector":
                vector = FROM_HOST[int(call["input"]["index"])]
                tagged = json.dumps(vector["tagged"])
                return f'{{"sequence": {call["sequence"]}, "value": {vector["wire"]}, "tagged": {tagged}}}\n'
            case "fail":
                reply |= {"error": call["input"]}
            case "slow":
                await self._released.wait()
            case "release":
                self._released.set()
            case "raw":
                return call["input"]["text"].replace("SEQUENCE", str(call["sequence"]))
            case "gather":
                if self.running == call["input"]["calls"]:
                    self._gathered.set()
                await self._gathered.wait()
            case _:
                pass
        return json.dumps(reply) + "\n"

    async def serve_token(self, request: Request) -> Response:
        self.tokens.append(request.headers["authorization"].removeprefix("Bearer "))
        answer = self.renewals[min(self.renewed, len(self.renewals) - 1)]
        self.renewed += 1
        for times, event in self._waiting_for_renewals:
            if self.renewed >= times:
                event.set()
        return answer

    async def serve_renewed(self, request: Request) -> Response:
        """Answers when the token was asked for that many times: for a program that does nothing meanwhile."""
        event = anyio.Event()
        self._waiting_for_renewals.append((int(request.path_params["times"]), event))
        if self.renewed >= int(request.path_params["times"]):
            event.set()
        await event.wait()
        return JSONResponse({})


class Server:
    """All bridges of this file, each under its own path, served from a thread."""

    def __init__(self, certificate: Path | None = None) -> None:
        self._scheme = "http" if certificate is None else "https"
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._bridges: dict[str, Bridge] = {}
        routes = [
            Route("/{bridge}/calls", self._serve, methods=["POST"], name="serve_calls"),
            Route("/{bridge}/token", self._serve, methods=["POST"], name="serve_token"),
            Route("/{bridge}/renewed/{times}", self._serve, name="serve_renewed"),
            Route("/redirect/calls", self._redirect, methods=["POST"]),
        ]  # fmt: skip
        app = Starlette(routes=routes[::-1])
        config = uvicorn.Config(app, log_level="critical", ws="none", lifespan="off", ssl_certfile=certificate)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()

    async def _serve(self, request: Request) -> Response:
        bridge = self._bridges[request.path_params["bridge"]]
        return await getattr(bridge, f"serve_{request.url.path.split('/')[2]}")(request)

    async def _redirect(self, request: Request) -> Response:
        return Response(status_code=307, headers={"location": "/0/calls"})

    def bridge(self) -> Bridge:
        name = str(len(self._bridges))
        self._bridges[name] = Bridge(f"{self._scheme}://127.0.0.1:{self._socket.getsockname()[1]}/{name}")
        return self._bridges[name]

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

"""A server that speaks E2B's wire as far as its SDK needs it for commands. They run here, for real."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import struct
import tempfile
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.shells.faults import Faults, end_group

_END = 2
_GONE = JSONResponse({"code": "not_found", "message": "not found"}, 404)


def _envelope(message: Any, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


@dataclass
class StubE2B(Faults):
    """Sandboxes by name, each a folder."""

    boxes: dict[str, str] = field(default_factory=dict)
    base: str = ""
    running: dict[int, tuple[str, asyncio.subprocess.Process]] = field(default_factory=dict)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v2/sandboxes", self._create, methods=["POST"]),
                Route("/sandboxes/{box}", self._end, methods=["DELETE"]),
                Route("/process.Process/Start", self._start, methods=["POST"]),
                Route("/process.Process/StreamInput", self._input, methods=["POST"]),
                Route("/process.Process/CloseStdin", self._close_input, methods=["POST"]),
                Route("/health", self._health),
            ]
        )

    async def _health(self, _: Request) -> Response:
        return Response(status_code=204)

    async def _create(self, request: Request) -> Response:
        if self.refuse is not None:
            return JSONResponse({"code": self.refuse, "message": "slow down"}, self.refuse)
        body = await request.json()
        name = f"i{uuid.uuid4().hex[:16]}"
        self.boxes[name] = tempfile.mkdtemp(prefix="stub-e2b-")
        made = {"sandboxID": name, "templateID": body["templateID"], "clientID": "c", "envdVersion": "0.5.2"}
        return JSONResponse({**made, "envdAccessToken": "token", "domain": None}, 201)

    async def _end(self, request: Request) -> Response:
        name = request.path_params["box"]
        folder = self.boxes.pop(name, None)
        if folder is None:
            return _GONE
        self._end_commands(name)
        shutil.rmtree(folder)
        return Response(status_code=204)

    async def kill_box(self, name: str) -> None:
        shutil.rmtree(self.boxes.pop(name))
        self._end_commands(name)

    def _end_commands(self, name: str) -> None:
        for box, process in [*self.running.values()]:
            if box == name:
                end_group(process)

    @property
    def left(self) -> list[object]:
        return [*self.boxes, *self.running]

    async def _start(self, request: Request) -> Response:
        body = await request.body()
        message = json.loads(body[5:])
        name = request.headers["e2b-sandbox-id"]
        if name not in self.boxes:
            return _GONE
        await self.delayed()
        config = message["process"]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            config["cmd"],
            *config["args"],
            cwd=self.boxes[name],
            env={"PATH": os.environ["PATH"], "HOME": self.boxes[name], "LANG": "C.UTF-8", **config.get("envs", {})},
            stdin=pipe if message.get("stdin") else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        self.running[process.pid] = (name, process)
        return StreamingResponse(self._events(name, process), media_type="application/connect+json")

    async def _events(self, name: str, process: asyncio.subprocess.Process) -> AsyncGenerator[bytes]:
        events = asyncio.Queue[bytes | None](16)

        async def read(output: str, stream: asyncio.StreamReader) -> None:
            while data := await stream.read(1 << 15):
                await events.put(_envelope({"event": {"data": {output: base64.b64encode(data).decode()}}}))

        async def follow() -> None:
            assert process.stdout is not None
            assert process.stderr is not None
            await asyncio.gather(read("stdout", process.stdout), read("stderr", process.stderr))
            code = await process.wait()
            await events.put(_envelope({"event": {"end": {"exitCode": code, "exited": code >= 0, "status": "ended"}}}))
            await events.put(None)

        following = asyncio.create_task(follow())
        try:
            yield _envelope({"event": {"start": {"pid": process.pid}}})
            while (event := await events.get()) is not None:
                if self.cut or name not in self.boxes:
                    raise ConnectionError("cut")
                await self.silence()
                yield event
            yield _envelope({}, _END)
        finally:
            following.cancel()
            end_group(process)
            self.running.pop(process.pid, None)

    async def _input(self, request: Request) -> Response:
        data, process = b"", None
        async for piece in request.stream():
            data += piece
            while len(data) >= 5 and len(data) >= 5 + (size := struct.unpack(">I", data[1:5])[0]):
                message, data = json.loads(data[5 : 5 + size]), data[5 + size :]
                if "start" in message:
                    _, process = self.running.get(int(message["start"]["process"]["pid"]), (None, None))
                elif "data" in message and process is not None and process.stdin is not None:
                    with suppress(BrokenPipeError, ConnectionResetError):
                        process.stdin.write(base64.b64decode(message["data"]["input"]["stdin"]))
                        await process.stdin.drain()
        return Response(_envelope({}) + _envelope({}, _END), media_type="application/connect+json")

    async def _close_input(self, request: Request) -> Response:
        found = self.running.get(int((await request.json())["process"]["pid"]))
        if found is None:
            return _GONE
        if found[1].stdin is not None:
            found[1].stdin.close()
        return JSONResponse({})

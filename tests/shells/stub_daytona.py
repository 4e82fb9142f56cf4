"""A server that speaks Daytona's wire as far as its SDK needs it for commands. They run here, for real."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.shells.faults import Faults, close_pipes, end_group

_MARKS = {"stdout": b"\1\1\1", "stderr": b"\2\2\2"}
_CLEAN, _FAILED = 1000, 1011
_PIECE_BYTES = 1 << 16


def _gone() -> Response:
    return JSONResponse({"message": "not found", "statusCode": 404, "code": "NOT_FOUND"}, 404)


@dataclass
class StubDaytona(Faults):
    """Sandboxes by name, each a folder, with sessions and their commands.

    As by the service's own labels, output leaves line by line, and its last line gets a break; input has no end.
    """

    boxes: dict[str, str] = field(default_factory=dict[str, str])
    sessions: dict[tuple[str, str], dict[str, asyncio.subprocess.Process]] = field(
        default_factory=dict[tuple[str, str], dict[str, asyncio.subprocess.Process]]
    )
    base: str = ""

    @property
    def left(self) -> list[object]:
        return [*self.boxes, *self.sessions]

    def app(self) -> Starlette:
        session = "/toolbox/{box}/process/session"
        command = session + "/{session}/command/{command}"
        return Starlette(
            routes=[
                Route("/api/sandbox", self._create, methods=["POST"]),
                Route("/api/sandbox/{box}", self._delete, methods=["DELETE"]),
                Route("/toolbox/{box}/process/execute", self._execute, methods=["POST"]),
                Route(session, self._open, methods=["POST"]),
                Route(session + "/{session}", self._close, methods=["DELETE"]),
                Route(session + "/{session}/exec", self._start, methods=["POST"]),
                Route(command + "/input", self._input, methods=["POST"]),
                WebSocketRoute(command + "/logs", self._logs),
            ]
        )

    async def _create(self, request: Request) -> Response:
        if self.refuse is not None:
            return JSONResponse(
                {"message": "too many requests", "statusCode": self.refuse}, self.refuse, {"retry-after": "7"}
            )
        body = await request.json()
        assert body["ttlMinutes"] > 0
        name = str(uuid.uuid4())
        self.boxes[name] = tempfile.mkdtemp(prefix="stub-daytona-")
        return JSONResponse(self._described(name, "started"))

    def _described(self, name: str, state: str) -> dict[str, Any]:
        texts = {"organizationId": "o", "name": name, "user": "daytona", "target": "us", "state": state}
        numbers = {"cpu": 1, "gpu": 0, "memory": 1, "disk": 3}
        flags = {"public": False, "networkBlockAll": False, "kvm": False}
        more = {"id": name, "env": {}, "labels": {"code-toolbox-language": "python"}}
        return {**texts, **numbers, **flags, **more, "toolboxProxyUrl": f"{self.base}/toolbox"}

    async def _delete(self, request: Request) -> Response:
        name = request.path_params["box"]
        if name not in self.boxes:
            return _gone()
        await self.kill_box(name)
        return JSONResponse(self._described(name, "destroyed"))

    async def kill_box(self, name: str) -> None:
        for key in [key for key in self.sessions if key[0] == name]:
            self._end(key)
        shutil.rmtree(self.boxes.pop(name))

    async def _execute(self, request: Request) -> Response:
        folder = self.boxes.get(request.path_params["box"])
        if folder is None:
            return _gone()
        await self.delayed()
        script = (await request.json())["command"]
        process = await self._run(script, folder, asyncio.subprocess.DEVNULL)
        try:
            output, errors = await process.communicate()
        finally:
            close_pipes(process)
        return JSONResponse({"exitCode": process.returncode, "result": (output + errors).decode(errors="replace")})

    async def _run(self, script: str, folder: str, stdin: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-c", script),
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8"},
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _open(self, request: Request) -> Response:
        box = request.path_params["box"]
        if box not in self.boxes:
            return _gone()
        self.sessions[box, (await request.json())["sessionId"]] = {}
        return Response(status_code=201)

    async def _close(self, request: Request) -> Response:
        key = request.path_params["box"], request.path_params["session"]
        if key not in self.sessions:
            return _gone()
        self._end(key)
        return Response(status_code=204)

    def _end(self, key: tuple[str, str]) -> None:
        for command in self.sessions.pop(key).values():
            end_group(command)

    async def _start(self, request: Request) -> Response:
        box, session = request.path_params["box"], request.path_params["session"]
        if (box, session) not in self.sessions:
            return _gone()
        await self.delayed()
        body = await request.json()
        assert body["runAsync"]
        assert body["suppressInputEcho"]
        process = await self._run(f"{{ {body['command']}\n}}", self.boxes[box], asyncio.subprocess.PIPE)
        identifier = str(uuid.uuid4())
        self.sessions[box, session][identifier] = process
        return JSONResponse({"cmdId": identifier}, 202)

    def _found(self, parameters: dict[str, Any]) -> asyncio.subprocess.Process | None:
        return self.sessions.get((parameters["box"], parameters["session"]), {}).get(parameters["command"])

    async def _input(self, request: Request) -> Response:
        command = self._found(request.path_params)
        if command is None or command.returncode is not None:
            return _gone()
        await self.delayed()
        stdin = command.stdin
        assert stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write((await request.json())["data"].encode())
            await stdin.drain()
        return Response(status_code=204)

    async def _logs(self, socket: WebSocket) -> None:
        command = self._found(socket.path_params)
        if command is None:
            await socket.close(1008)
            return
        await socket.accept()

        async def follow(name: str, stream: asyncio.StreamReader | None) -> None:
            assert stream is not None
            rest = b""
            while data := await stream.read(_PIECE_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                await send(b"".join(_MARKS[name] + line + b"\n" for line in lines))
            await send(_MARKS[name] + rest + b"\n" if rest else b"")

        async def send(data: bytes) -> None:
            await self.silence()
            if self.cut:
                raise WebSocketDisconnect
            for start in range(0, len(data), _PIECE_BYTES):
                await socket.send_bytes(data[start : start + _PIECE_BYTES])

        async def follow_all() -> None:
            with suppress(WebSocketDisconnect, RuntimeError):
                await asyncio.gather(follow("stdout", command.stdout), follow("stderr", command.stderr))
                await socket.close(_FAILED if self._found(socket.path_params) is None else _CLEAN)
                return
            with suppress(RuntimeError):
                await socket.close(_FAILED)

        gone, ended = asyncio.create_task(socket.receive()), asyncio.create_task(follow_all())
        await asyncio.wait([gone, ended], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        ended.cancel()

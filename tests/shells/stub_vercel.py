"""A server that speaks the wire of Vercel Sandbox as far as its SDK needs it for commands. They run here, for real."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.shells.faults import Faults, close_pipes, end_group

_READ_BYTES = 1 << 15
_LOG_CHARACTERS = 20_000_000
"""After so much unread output a command waits here."""


def _refused(status: int, code: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": code.replace("_", " ")}}, status)


def _gone() -> Response:
    return _refused(410, "sandbox_stopped")


@dataclass
class _Command:
    """A command, and its log, which each request for it gets from the beginning."""

    process: asyncio.subprocess.Process
    described: dict[str, Any]
    log: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    written: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    over: bool = False


@dataclass
class StubVercel(Faults):
    """Sandboxes by name, each a folder; a sandbox's one session has the same name."""

    boxes: dict[str, str] = field(default_factory=dict[str, str])
    commands: dict[tuple[str, str], _Command] = field(default_factory=dict[tuple[str, str], _Command])
    base: str = ""
    following: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def left(self) -> list[object]:
        return [*self.boxes, *(key for key, command in self.commands.items() if not command.over)]

    def app(self) -> Starlette:
        session = "/v2/sandboxes/sessions/{box}"
        command = session + "/cmd/{command}"
        return Starlette(
            routes=[
                Route("/v3/sandboxes", self._create, methods=["POST"]),
                Route(session + "/stop", self._stop, methods=["POST"]),
                Route(session + "/cmd", self._start, methods=["POST"]),
                Route(command, self._get),
                Route(command + "/logs", self._logs),
                Route(command + "/stdin", self._input, methods=["POST"]),
                Route("/v2/sandboxes/{box}", self._delete, methods=["DELETE"]),
            ]
        )

    async def _create(self, request: Request) -> Response:
        if self.refuse is not None:
            return _refused(self.refuse, "rate_limited")
        assert request.headers["authorization"] == "Bearer token"
        assert request.query_params["teamId"] == "team"
        body = await request.json()
        assert (body["projectId"], body["persistent"]) == ("project", False)
        assert body["timeout"] > 0
        name = f"sbx-{uuid.uuid4().hex[:12]}"
        self.boxes[name] = tempfile.mkdtemp(prefix="stub-vercel-")
        return JSONResponse(self._described(name, "running"))

    def _described(self, name: str, status: str) -> dict[str, Any]:
        session = {"id": name, "sourceSandboxName": name, "status": status, "cwd": "/vercel/sandbox"}
        return {"sandbox": {"name": name, "currentSessionId": name, "status": status}, "session": session, "routes": []}

    async def _stop(self, request: Request) -> Response:
        name = request.path_params["box"]
        if name not in self.boxes:
            return _gone()
        self._end_commands(name)
        return JSONResponse(self._described(name, "stopped"))

    async def _delete(self, request: Request) -> Response:
        name = request.path_params["box"]
        if name not in self.boxes:
            return _refused(404, "not_found")
        await self.kill_box(name)
        return JSONResponse(self._described(name, "stopped"))

    async def kill_box(self, name: str) -> None:
        shutil.rmtree(self.boxes.pop(name))
        self._end_commands(name)

    def _end_commands(self, name: str) -> None:
        for (box, _), command in self.commands.items():
            if box == name and not command.over:
                end_group(command.process)
                command.over = True

    async def _start(self, request: Request) -> Response:
        name = request.path_params["box"]
        if name not in self.boxes:
            return _gone()
        await self.delayed()
        body = await request.json()
        folder = self.boxes[name]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            body["command"],
            *body["args"],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8", **(body.get("env") or {})},
            stdin=pipe if body.get("attachStdin") else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        identifier = f"cmd_{uuid.uuid4().hex}"
        described = {"id": identifier, "name": body["command"], "args": body["args"], "cwd": folder}
        command = _Command(process, {**described, "sessionId": name, "startedAt": int(time.time() * 1000)})
        self.commands[name, identifier] = command
        task = asyncio.create_task(self._follow(command))
        self.following.add(task)
        task.add_done_callback(self.following.discard)
        return JSONResponse({"command": command.described})

    async def _follow(self, command: _Command) -> None:
        async def read(name: str, stream: asyncio.StreamReader | None) -> None:
            assert stream is not None
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            kept = 0
            while data := await stream.read(_READ_BYTES):
                kept += len(data)
                await note({"stream": name, "data": decoder.decode(data)})
                if kept > _LOG_CHARACTERS:
                    return
            await note({"stream": name, "data": decoder.decode(b"", final=True)})

        async def note(record: dict[str, str]) -> None:
            async with command.changed:
                command.log.append(record)
                command.changed.notify_all()

        await asyncio.gather(read("stdout", command.process.stdout), read("stderr", command.process.stderr))
        code = await command.process.wait()
        close_pipes(command.process)
        async with command.changed:
            command.described["exitCode"] = 128 - code if code < 0 else code
            command.over = True
            command.changed.notify_all()

    def _found(self, request: Request) -> _Command | None:
        name = request.path_params["box"]
        return self.commands.get((name, request.path_params["command"])) if name in self.boxes else None

    async def _get(self, request: Request) -> Response:
        command = self._found(request)
        if command is None:
            return _gone()
        await self.silence()
        if request.query_params["wait"] == "true":
            async with command.changed:
                await command.changed.wait_for(lambda: command.over)
        return _gone() if self._found(request) is None else JSONResponse({"command": command.described})

    async def _logs(self, request: Request) -> Response:
        command = self._found(request)
        if command is None:
            return _gone()
        return StreamingResponse(self._records(request, command), media_type="application/x-ndjson")

    async def _records(self, request: Request, command: _Command) -> AsyncGenerator[bytes]:
        sent = 0
        while True:
            async with command.changed:
                while len(command.log) == sent and not command.over:
                    await command.changed.wait()
            for record in command.log[sent:]:
                await self.silence()
                if self.cut:
                    raise ConnectionError("cut")
                yield json.dumps(record).encode() + b"\n"
                sent += 1
            if self._found(request) is None:
                error = {"code": "sandbox_stopped", "message": "the sandbox has stopped"}
                yield json.dumps({"stream": "error", "data": error}).encode() + b"\n"
                return
            if command.over and sent == len(command.log):
                return

    async def _input(self, request: Request) -> Response:
        command = self._found(request)
        if command is None or command.over:
            return _refused(404, "not_found")
        await self.delayed()
        body = await request.json()
        stdin = command.process.stdin
        assert stdin is not None
        data = base64.b64decode(body.get("data", ""))
        assert not data or body["offset"] == command.written
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(data)
            await stdin.drain()
        command.written += len(data)
        if body.get("close"):
            stdin.close()
        return JSONResponse({"command": command.described, "bytesWritten": command.written})

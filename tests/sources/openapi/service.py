"""A server on the loopback that writes down what it is asked, and answers what a test wants; and how tests call tools."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from corral import ExecutionContext, Tool, ToolCall
from corral.sources.openapi import OpenApi

__all__ = ["Answer", "Asked", "Caller", "Service", "calling", "document", "operation", "serve"]


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Answer:
    status: int = 200
    body: bytes = b"null"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})

    @classmethod
    def of(cls, value: object, status: int = 200, **headers: str) -> Answer:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return cls(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


@dataclass
class Service:
    url: str
    asked: list[Asked] = field(default_factory=list[Asked])
    answers: list[Answer] = field(default_factory=list[Answer])
    """What comes next; null after that."""

    @property
    def last(self) -> Asked:
        return self.asked[-1]


@contextmanager
def serve(host: str = "127.0.0.1") -> Generator[Service]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one write: two wait for each other

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            service.asked.append(Asked(self.command, self.requestline.split()[1], list(self.headers.items()), body))
            answer = service.answers.pop(0) if service.answers else Answer()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD" and answer.status != 204:
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        service = Service(f"http://{host}:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


# --- documents


def operation(
    *parameters: Mapping[str, Any], path: str = "/things", method: str = "get", **more: Any
) -> dict[str, dict[str, Any]]:
    """A path with one operation called `call`, which may answer anything."""
    said: dict[str, Any] = {
        "operationId": "call",
        "parameters": list(parameters),
        "responses": {"200": {"description": "ok", "content": {"application/json": {}}}},
        **more,
    }
    return {path: {method: said}}


def document(
    paths: Mapping[str, Any], *, version: str = "3.0.3", schemas: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    components = {"schemas": dict(schemas or {}), **more.pop("components", {})}
    return {
        "openapi": version,
        "info": {"title": "t", "version": "1"},
        "paths": dict(paths),
        "components": components,
        **more,
    }


# --- calls


@dataclass
class Caller:
    """Calls the tools of an open source as the bridge does."""

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])

    def offer(self, tools: Iterable[Tool], *, problem: str | None = None) -> None:
        assert problem is None
        self.tools = {tool.name: tool for tool in tools}

    async def __call__(self, name: str = "call", context: ExecutionContext | None = None, /, **input: Any) -> Any:
        tool = self.tools[name]
        made = ToolCall(context or ExecutionContext())
        return await tool.dump_output(await tool.execute(await tool.parse_input(input), made))


@asynccontextmanager
async def calling(service: Service | str, said: Any, **options: Any) -> AsyncGenerator[Caller]:
    base_url = service if isinstance(service, str) else service.url
    given: dict[str, Any] = {"base_url": base_url, **options}
    source = OpenApi("api", said, **given)
    assert source.skipped == []
    caller = Caller()
    async with source.open(caller.offer):
        yield caller

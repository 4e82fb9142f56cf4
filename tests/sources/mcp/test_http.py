"""Servers over streamable HTTP: ones that come and go, and ones that answer as none should."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from anyio.abc import ByteStream, SocketAttribute, TaskStatus
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from corral.errors import ToolError
from corral.sources.mcp import McpServer, connection
from tests.ports import held_port
from tests.sources.mcp.opening import opened
from tests.until import until

pytestmark = pytest.mark.anyio

Respond = Callable[[dict[str, Any]], bytes]
SECRET = "sk-0123456789abcdef"


# --- a real server


class Waiting:
    def __init__(self) -> None:
        self.began, self.ended = anyio.Event(), anyio.Event()


def growing(waiting: Waiting) -> MCPServer:
    server = MCPServer("growing")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def wait() -> None:
        waiting.began.set()
        try:
            await anyio.sleep_forever()
        finally:
            waiting.ended.set()

    @server.tool()
    async def grow(name: str, ctx: Context) -> None:
        server.add_tool(lambda: 1, name=name)
        await ctx.notify_tools_changed()

    return server


@asynccontextmanager
async def served(waiting: Waiting) -> AsyncGenerator[str]:
    config = uvicorn.Config(growing(waiting).streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        listener = socket.create_server(("127.0.0.1", 0))
        tasks.start_soon(server.serve, [listener])
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = server.force_exit = True


async def test_a_server_is_called_changes_and_is_told_of_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_RELIST_PAUSE_SECONDS", 0.02)
    waiting = Waiting()
    async with served(waiting) as url, opened(McpServer("web", url=url)) as offered:
        assert await offered.call("add", a=1, b=2) == 3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(offered.call, "wait")
            await waiting.began.wait()
            tasks.cancel_scope.cancel()
        await waiting.ended.wait()
        for name in ("first", "second"):
            await offered.call("grow", name=name)
            await until(lambda name=name: offered.names[-1] == name)


# --- raw ones


@asynccontextmanager
async def raw(respond: Respond, port: int = 0) -> AsyncGenerator[str]:
    """The URL of a server that answers each message with the bytes that `respond` makes."""

    async def handle(stream: ByteStream) -> None:
        received = b""
        async with stream:
            while True:
                try:
                    received += await stream.receive()
                    head, end, body = received.partition(b"\r\n\r\n")
                    lengths = [
                        line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")
                    ]
                    if not end or len(body) < int(lengths[0] if lengths else 0):
                        continue
                    received = b""
                    await stream.send(respond(json.loads(body or b"{}")))
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return

    listening = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    async with listening as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django here
        yield f"http://127.0.0.1:{port}/mcp"
        tasks.cancel_scope.cancel()


def answer(content: bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n{more}\r\n"
    return head.encode() + content


def result(message: dict[str, Any], value: dict[str, Any]) -> bytes:
    return answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode())


def behaving(call: Callable[[dict[str, Any]], bytes]) -> Respond:
    """Answers as a server of 2025-11-25 does, but calls as `call` does."""

    def respond(message: dict[str, Any]) -> bytes:
        match message.get("method"):
            case "initialize":
                about: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                return result(message, {**about, "serverInfo": {"name": "raw", "version": "1"}})
            case "tools/list":
                return result(message, {"tools": [{"name": "call", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                return call(message)
            case "server/discover":
                return answer(b"", status="400 Bad Request")
            case _:
                return answer(b"", status="202 Accepted")

    return respond


async def problem_of(respond: Respond, **options: Any) -> str | None:
    async with raw(respond) as url, opened(McpServer("raw", url=url, **options)) as offered:
        return offered.problem


NOT = "the MCP server 'raw' is not connected: "


async def test_a_server_that_goes_is_a_problem_until_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.02)
    respond = behaving(lambda message: result(message, {"content": []}))
    caplog.set_level(logging.CRITICAL, "mcp")
    with held_port() as port:
        async with anyio.create_task_group() as tasks:
            stop, gone = anyio.Event(), anyio.Event()

            async def first(*, task_status: TaskStatus[str]) -> None:
                async with raw(respond, port) as url:
                    task_status.started(url)
                    await stop.wait()
                gone.set()

            url = await tasks.start(first)
            with_secrets = url.replace("http://", f"http://user:{SECRET}@") + f"?key={SECRET}"
            async with opened(McpServer("raw", url=with_secrets)) as offered:
                assert await offered.call("call") is None
                stop.set()
                await gone.wait()
                with pytest.raises(
                    ToolError, match="the MCP server 'raw' was lost during the call: it does not accept"
                ):
                    await offered.call("call")
                with pytest.raises(ToolError, match=f"{NOT}it does not accept connections"):
                    await offered.call("call")
                assert "call" in offered.names
                async with raw(respond, port):
                    await until(lambda: offered.problem is None)
                    assert await offered.call("call") is None
            assert offered.problems == [None, f"{NOT}it does not accept connections", None]
            assert SECRET not in caplog.text.replace(f"?key={SECRET}", "")


async def test_a_server_that_lets_nobody_in_is_a_problem_with_its_status() -> None:
    refusal = answer(SECRET.encode(), status="401 Unauthorized", kind="text/plain")
    headers = {"Authorization": f"Bearer {SECRET}"}
    assert await problem_of(lambda _: refusal, headers=headers) == (
        f"{NOT}Server returned an error response (HTTP 401)"
    )


async def test_what_a_server_says_to_refuse_is_said_without_what_it_was_given() -> None:
    def refuse(message: dict[str, Any]) -> bytes:
        error = {"code": -32000, "message": f"bad token {SECRET}"}
        return answer(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode(), status="403 Forbidden"
        )

    problem = await problem_of(refuse, headers={"Authorization": f"Bearer {SECRET}"})
    assert problem == f"{NOT}bad token … (HTTP 403)"


async def test_no_form_of_what_a_url_or_a_header_gives_is_repeated() -> None:
    def echo(message: dict[str, Any]) -> bytes:
        said = " ".join([*forms, "and no more"])
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": said}}
        return answer(json.dumps(error).encode())

    basic = base64.b64encode(b"adalove:pass/word").decode()
    forms = ["pass/word", "pass%2Fword", "adalove", basic, "abc/defgh", "abc%2Fdefgh", "c00kie-value"]
    async with raw(echo) as url:
        given = url.replace("http://", "http://adalove:pass%2Fword@") + "?token=abc%2Fdefgh&x=1"
        async with opened(McpServer("raw", url=given, headers={"Cookie": "session=c00kie-value; x=1"})) as offered:
            assert offered.problem == f"{NOT}{' '.join('…' for _ in forms)} and no more"


async def test_a_server_that_never_answers_is_waited_for_no_longer_than_said() -> None:
    assert await problem_of(lambda _: b"", connect_timeout_seconds=0.3) == f"{NOT}it did not answer within 0.3 s"


async def test_a_redirect_to_elsewhere_is_not_followed() -> None:
    elsewhere = answer(b"", status="307 Temporary Redirect", more="location: http://127.0.0.2:9/mcp\r\n")
    assert "Redirect to http://127.0.0.2:9/mcp not followed" in (await problem_of(lambda _: elsewhere) or "")


async def test_a_redirect_is_bounded_even_as_a_stream_of_events(caplog: pytest.LogCaptureFixture) -> None:
    stream = answer(b"x" * 20_000, status="307 Temporary Redirect", kind="text/event-stream", more="location: /mcp\r\n")
    with caplog.at_level(logging.DEBUG):
        await problem_of(lambda _: stream, max_message_bytes=10_000)
    assert "it is larger than 10000 bytes" in caplog.text


async def test_an_answer_to_the_end_of_a_session_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    def respond(message: dict[str, Any]) -> bytes:
        if not message:  # DELETE, or the GET that listens
            return answer(b": x\n\n" * 4_000, kind="text/event-stream")
        head, _, body = behaving(lambda _: b"")(message).partition(b"\r\n\r\n")
        return head + b"\r\nmcp-session-id: 1\r\n\r\n" + body

    with caplog.at_level(logging.DEBUG):
        assert await problem_of(respond, max_message_bytes=10_000) is None
    assert "it is larger than 10000 bytes" in caplog.text


async def test_an_answer_that_is_compressed_is_refused() -> None:
    packed = answer(gzip.compress(b" " * 1_000_000), more="content-encoding: gzip\r\n")
    assert await problem_of(lambda _: packed) == f"{NOT}the connection broke (RemoteProtocolError)"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_that_is_too_large_fails_its_call_only(kind: str) -> None:
    def large(message: dict[str, Any]) -> bytes:
        text = "x" * message["params"]["arguments"]["characters"]
        value = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}
        content = json.dumps(value).encode()
        return answer(content if kind == "application/json" else b"data: " + content + b"\n\n", kind=kind)

    async with raw(behaving(large)) as url, opened(McpServer("raw", url=url, max_message_bytes=10_000)) as offered:
        with pytest.raises(ToolError, match="the MCP server 'raw'"):
            await offered.call("call", characters=20_000)
        assert await offered.call("call", characters=5) == "xxxxx"
        assert offered.problem is None


@pytest.mark.parametrize(
    ("kind", "pages", "page_bytes"),
    [
        ("application/json", 1, 4_500_000),
        ("application/json", 100, 1_500_000),
        ("text/event-stream", 1, 4_500_000),
        pytest.param(
            *("text/event-stream", 100, 1_500_000),
            marks=pytest.mark.matrix("a page as a stream of events is bounded in the gate, and so are many as JSON"),
        ),
    ],
)
async def test_a_list_of_tools_is_bounded_over_all_of_its_pages(kind: str, pages: int, page_bytes: int) -> None:
    asked: list[Any] = []

    def respond(message: dict[str, Any]) -> bytes:
        if message.get("method") != "tools/list":
            return behaving(lambda _: b"")(message)
        asked.append(message)
        dense: list[Any] = [{}] * (page_bytes // 3)
        tool: dict[str, Any] = {"name": f"t{len(asked)}", "inputSchema": {"type": "object"}, "x": dense}
        value: dict[str, Any] = {"tools": [tool], **({"nextCursor": str(len(asked))} if len(asked) < pages else {})}
        content = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}, separators=(",", ":")).encode()
        return answer(content if kind == "application/json" else b"data: " + content + b"\n\n", kind=kind)

    problem = await problem_of(respond)
    assert problem == f"{NOT}its list of tools is larger than 4000000 bytes"
    assert len(asked) == min(pages, 3)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (answer(b"{]"), "refused the call: Failed to parse JSON response"),
        (answer(b"<html>", kind="text/html"), "refused the call: Unexpected content type: text/html"),
        (answer(b"", kind="text/event-stream"), "was lost during the call: SSE stream ended without a response"),
        (answer(b"", status="202 Accepted"), "refused the call: server answered a request with 202 Accepted"),
        (answer(b"", status="500 Oops"), r"refused the call: Server returned an error response \(HTTP 500\)"),
        (b"nonsense\r\n\r\n", "was lost during the call: the connection broke"),
    ],
)
async def test_an_answer_that_is_none_is_a_clear_error(
    content: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, "mcp"):
        async with raw(behaving(lambda _: content)) as url, opened(McpServer("raw", url=url)) as offered:
            with pytest.raises(ToolError, match=problem):
                await offered.call("call")


async def test_a_server_that_has_forgotten_the_session_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.02)
    sessions: list[str] = []

    def respond(message: dict[str, Any]) -> bytes:
        if message.get("method") == "initialize":
            sessions.append("session")
            head, _, body = behaving(lambda _: b"")(message).partition(b"\r\n\r\n")
            return head + b"\r\nmcp-session-id: 1\r\n\r\n" + body
        if message.get("method") == "tools/call" and len(sessions) == 1:
            return answer(b"", status="404 Not Found")
        return behaving(lambda message: result(message, {"content": []}))(message)

    async with raw(respond) as url, opened(McpServer("raw", url=url)) as offered:
        assert await offered.call("call") is None
    assert len(sessions) == 2

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
from corral.sources.mcp import McpServer
from corral.sources.mcp import server as connection
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
    assert problem == f"{NOT}bad token [redacted] (HTTP 403)"


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
            assert offered.problem == f"{NOT}{' '.join('[redacted]' for _ in forms)} and no more"


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
        ("text/event-stream", 1, 4_500_000),
        *(
            pytest.param(
                *(kind, 100, 1_500_000),
                marks=pytest.mark.matrix("a page is bounded in the gate; the sum of many is so over a pipe there"),
            )
            for kind in ("application/json", "text/event-stream")
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


def refusal(message: dict[str, Any], status: str, text: str) -> bytes:
    error = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32001, "message": text}}
    return answer(json.dumps(error).encode(), status=status)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("404 Not Found", None),
        pytest.param(
            "404 Not Found", "nobody knows you", marks=pytest.mark.matrix("404 without a text is in the gate")
        ),
        ("400 Bad Request", "Bad Request: No valid session ID provided"),
        pytest.param(
            *("400 Bad Request", "Server not initialized"),
            marks=pytest.mark.matrix("400 with another text is in the gate"),
        ),
    ],
)
async def test_a_server_that_has_forgotten_the_session_is_asked_again(
    status: str, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.02)
    sessions: list[str] = []
    done: list[str] = []

    def call(message: dict[str, Any]) -> bytes:
        if len(sessions) == 1:
            return answer(b"", status=status) if text is None else refusal(message, status, text)
        done.append(message["params"]["arguments"]["name"])
        return result(message, {"content": []})

    async with (
        raw(of_session(behaving(call), sessions)) as url,
        opened(McpServer("raw", url=url)) as offered,
        anyio.create_task_group() as tasks,
    ):
        for name in ("a", "b", "c"):
            tasks.start_soon(lambda name=name: offered.call("call", name=name))
    assert (len(sessions), sorted(done)) == (2, ["a", "b", "c"])


async def test_a_refusal_for_another_reason_is_not_sent_again() -> None:
    sessions: list[str] = []
    called: list[object] = []

    def refuse(message: dict[str, Any]) -> bytes:
        called.append(message)
        return refusal(message, "400 Bad Request", "the date is wrong")

    async with raw(of_session(behaving(refuse), sessions)) as url, opened(McpServer("raw", url=url)) as offered:
        with pytest.raises(ToolError, match=r"refused the call: the date is wrong \(HTTP 400\)"):
            await offered.call("call")
    assert (len(sessions), len(called)) == (1, 1)


def of_session(respond: Respond, sessions: list[str]) -> Respond:
    """Answers like `respond`, and begins a session with each handshake."""

    def in_session(message: dict[str, Any]) -> bytes:
        answered = respond(message)
        if message.get("method") != "initialize":
            return answered
        sessions.append("session")
        head, _, body = answered.partition(b"\r\n\r\n")
        return head + f"\r\nmcp-session-id: {len(sessions)}\r\n\r\n".encode() + body

    return in_session


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "301 Moved Permanently"])
async def test_a_redirect_to_the_same_server_is_followed_with_the_body(status: str) -> None:
    redirected: list[object] = []
    respond = behaving(lambda message: result(message, {"content": [{"type": "text", "text": "here"}]}))

    def twice(message: dict[str, Any]) -> bytes:
        if message and (not redirected or redirected[-1] != message):
            redirected.append(message)
            return answer(b"", status=status, more="location: /mcp/\r\n")
        return respond(message)

    async with raw(twice) as url, opened(McpServer("raw", url=url)) as offered:
        assert await offered.call("call") == "here"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_text_that_is_not_unicode_and_a_bare_result_are_delivered(kind: str) -> None:
    def latin(message: dict[str, Any]) -> bytes:
        content = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": ["caf@", "half \ud83d"]}).encode()
        content = content.replace(b"@", b"\xe9")
        return answer(content if kind == "application/json" else b"data: " + content + b"\n\n", kind=kind)

    async with raw(behaving(latin)) as url, opened(McpServer("raw", url=url)) as offered:
        assert await offered.call("call") == ["caf\ufffd", "half \ufffd"]


async def test_what_an_error_carries_is_said_without_secrets() -> None:
    asked = {"elicitations": [{"mode": "url", "url": "https://example.com/consent?x=1", "message": SECRET}]}

    def consent(message: dict[str, Any]) -> bytes:
        error = {"code": -32042, "message": "URL elicitation required", "data": {**asked, "more": "x" * 10_000}}
        return answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())

    headers = {"Authorization": f"Bearer {SECRET}"}
    async with raw(behaving(consent)) as url, opened(McpServer("raw", url=url, headers=headers)) as offered:
        with pytest.raises(
            ToolError, match=r'required: \{.*"https://example.com/consent\?x=1", "message": "\[redacted\]"'
        ) as raised:
            await offered.call("call")
    assert len(str(raised.value)) < 2_100


# --- tasks


async def test_a_tool_that_runs_as_a_task_is_waited_for_and_cancelled() -> None:
    asked: list[str] = []
    waiting = anyio.Event()

    def call(message: dict[str, Any]) -> bytes:
        assert message["params"]["task"] == {}
        return result(message, {"task": {"taskId": message["params"]["arguments"]["name"], "status": "working"}})

    def respond(message: dict[str, Any]) -> bytes:
        match message:
            case {"method": "tasks/result", "params": {"taskId": "short"}}:
                return result(message, {"content": [{"type": "text", "text": "done"}]})
            case {"method": "tasks/result"}:
                waiting.set()
                return b""
            case {"method": "tasks/cancel", "params": {"taskId": task}}:
                asked.append(task)
                return result(message, {"taskId": task, "status": "cancelled"})
            case _:
                return behaving(call)(message).replace(
                    b'"tools": {}', b'"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}'
                )

    listed = {"name": "call", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}

    def with_task(message: dict[str, Any]) -> bytes:
        return result(message, {"tools": [listed]}) if message.get("method") == "tools/list" else respond(message)

    async with raw(whole(with_task)) as url, opened(McpServer("raw", url=url)) as offered:
        assert await offered.call("call", name="short") == "done"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: offered.call("call", name="long"))
            await waiting.wait()
            tasks.cancel_scope.cancel()
        assert asked == ["long"]


async def test_a_tool_that_runs_as_a_task_only_is_left_out_where_there_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed = {"name": "call", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}

    def respond(message: dict[str, Any]) -> bytes:
        if message.get("method") == "tools/list":
            return result(message, {"tools": [listed, {"name": "other", "inputSchema": {"type": "object"}}]})
        return behaving(lambda _: b"")(message)

    async with raw(respond) as url, opened(McpServer("raw", url=url)) as offered:
        assert offered.names == ["other"]
    assert "tool 'call' is omitted: the server lacks the tasks" in caplog.text


def whole(respond: Respond) -> Respond:
    """Corrects the length of answers that were changed."""

    def corrected(message: dict[str, Any]) -> bytes:
        head, end, body = respond(message).partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
        return b"\r\n".join([*lines, b"content-length: %d" % len(body)]) + end + body if end else head

    return corrected

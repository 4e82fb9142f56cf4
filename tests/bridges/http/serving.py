"""A bridge in a real server in a thread, the tools that are called through it, and raw sockets to it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import anyio
import uvicorn

from corral import ApprovalRequest, Corral, ExecutionContext, ToolError, define_tool, tool
from corral.audit import AuditEvent, AuditLog, CallbackSink
from corral.bridges import ASGIApp
from corral.calls import RemoteExecution
from tests.until import LIMIT_SECONDS

__all__ = [
    "CONTEXT",
    "NO_TLS",
    "PATIENCE_SECONDS",
    "Audited",
    "Clock",
    "Connection",
    "Served",
    "Server",
    "Waiting",
    "call",
    "request",
    "tools",
]

T = TypeVar("T")
CONTEXT = ExecutionContext(user_id="ada", organization_id="acme", session_id="s-1", scopes={"mail:read"})
PATIENCE_SECONDS = LIMIT_SECONDS
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""In place of httpx's own, which reads all certificates of the system for each client."""


class Waiting:
    """A tool that waits to be cancelled, and tells."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()

        @tool
        async def wait() -> None:
            """Waits for ever."""
            self.started.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()

        self.tool = wait

    def was_cancelled(self) -> bool:
        """Whether the call that was started is cancelled, now or soon; then it may be called again."""
        done = self.started.wait(PATIENCE_SECONDS) and self.cancelled.wait(PATIENCE_SECONDS)
        self.started.clear()
        self.cancelled.clear()
        return done


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool(scopes={"mail:read"})
async def inbox() -> list[str]:
    """Subjects of new mail."""
    return ["Lunch?"]


@tool(scopes={"mail:send"})
async def send(text: str) -> None:
    """Sends a mail."""


@tool(rate_limit="1/hour")
async def quote() -> int:
    """A quote."""
    return 1


@tool(needs_approval=True)
async def pay(euros: int) -> int:
    """Pays."""
    return euros


@tool
async def refuse() -> None:
    """Refuses, with a text for the program."""
    raise ToolError("größer\nnot today")


@tool
async def break_down() -> None:
    """Fails with an exception that nobody outside should see."""
    raise ValueError("password=hunter2")


@tool
async def much(bytes: int) -> str:
    """A long text."""
    return "x" * bytes


@tool
async def nap(seconds: float) -> float:
    """Waits a little."""
    await anyio.sleep(seconds)
    return seconds


def tools() -> list[Any]:
    """Those above, and `echo`, in a list of its own."""

    async def echo(input: Any) -> Any:
        return input

    return [add, inbox, send, quote, pay, refuse, break_down, much, nap, define_tool(name="echo", execute=echo)]


def approve(request: ApprovalRequest) -> bool:
    return request.input["euros"] < 10


class Clock:
    """The time by which tokens live."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead

    @contextmanager
    def ahead_by(self, seconds: float) -> Generator[None]:
        self._ahead = seconds
        yield
        self._ahead = 0.0


class Audited:
    """An audit log whose events can be read here."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.log = AuditLog(CallbackSink(self.events.extend), arguments="none")


class Server:
    """An app, served from a thread until the block ends. What belongs to its event loop is done by `do`."""

    def __init__(self, app: ASGIApp, http: str = "auto", ws: Literal["none", "wsproto"] = "none") -> None:
        # Without the name of its protocol asyncio would not set TCP_NODELAY.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        config = uvicorn.Config(
            app,
            http=http,  # pyright: ignore[reportArgumentType]
            ws=ws,
            lifespan="off",
            log_config=None,
            log_level="critical",
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))

    async def _serve(self) -> None:
        self._loop.set_result(asyncio.get_running_loop())
        await self._server.serve([self._socket])

    def do(self, what: Callable[[], T]) -> T:
        """Calls a function in the server's event loop."""

        async def done() -> T:
            return what()

        loop = self._loop.result(PATIENCE_SECONDS)
        return asyncio.run_coroutine_threadsafe(done(), loop).result(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop.result(PATIENCE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class Served(NamedTuple):
    """A Corral and the server that it is reached by."""

    corral: Corral
    server: Server
    audit: Audited
    waiting: Waiting
    clock: Clock

    def grant(self, **options: Any) -> RemoteExecution:
        """An execution that runs elsewhere."""
        return self.server.do(lambda: self.corral.remote.grant(CONTEXT, **options))

    def end(self, execution: RemoteExecution) -> None:
        self.server.do(execution.end)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Connection:
    """A raw connection: what is sent is what a test says, byte by byte."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self._read = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._read.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered and gone before it had all of it
            self._socket.sendall(data)

    def answer(self) -> Answer:
        """The next response."""
        status = int(self._read.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._read.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._read.readline(), 16):
                body += self._read.read(size + 2)[:-2]
            self._read.readline()
        else:
            body = self._read.read(int(headers.get("content-length", 0)))
        return Answer(status, headers, body)


def request(
    path: str = "/calls",
    body: bytes | str | None = b"",
    *lines: str,
    method: str = "POST",
    token: str | None = None,
    host: str | None = "127.0.0.1",
    kind: str | None = "application/json",
) -> bytes:
    """A request as bytes. `body` None sends neither a body nor its length."""
    head = [f"{method} {path} HTTP/1.1", *lines]
    head += [] if host is None else [f"host: {host}"]
    head += [] if kind is None else [f"content-type: {kind}"]
    head += [] if token is None else [f"authorization: Bearer {token}"]
    content = body.encode() if isinstance(body, str) else body
    head += [] if content is None else [f"content-length: {len(content)}"]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + (content or b"")


def call(tool: object = "add", input: object = None, sequence: object = 1, **more: object) -> dict[str, object]:
    """One call of a body."""
    return {"sequence": sequence, "tool": tool, "input": {"a": 1, "b": 2} if input is None else input, **more}

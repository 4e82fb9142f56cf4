"""`WebSocket` of programs in TypeScript, with a `Network`, against real servers on the loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import httpcore
import pytest
from anyio.abc import SocketAttribute, SocketStream
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage

from corral import Corral, ExecutionContext
from corral.audit import AuditEvent
from corral.egress import Header
from corral.egress.connections import BoundedStream, GuardedBackend
from corral.errors import ExecutionCancelled
from corral.sandboxes import DenoSandbox
from tests.egress.conftest import Run
from tests.egress.test_fetch import SECRET, network
from tests.egress.test_programs import ATTACKS
from tests.egress.wire import Attempts, Server

pytestmark = pytest.mark.anyio

OPENED = """
const opened = (path, ...rest) => new Promise((done, fail) => {
  const socket = new WebSocket("ORIGIN" + path, ...rest);
  socket.onopen = () => done(socket);
  socket.onerror = (event) => fail(new Error(event.message));
});
const ended = (socket) => new Promise((done) => socket.addEventListener("close", ({ code, reason, wasClean }) => done([code, reason, wasClean])));
const next = (socket) => new Promise((done) => socket.addEventListener("message", (event) => done(event.data), { once: true }));
"""


@dataclass
class Speaker:
    """A WebSocket server, and what it was asked."""

    host: str
    port: int
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    closed: list[tuple[int | None, str]] = field(default_factory=list[tuple[int | None, str]])
    left: anyio.Event = field(default_factory=anyio.Event)

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def program(self, code: str) -> str:
        return (OPENED + code).replace("ORIGIN", f"ws://{self.host}:{self.port}")

    async def speak(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.headers.append({name.lower(): value for name, value in socket.request.headers.raw_items()})
        try:
            match socket.request.path:
                case "/endless":
                    while True:
                        await socket.send(b"x" * 10_000)
                case "/big":
                    await socket.send("x" * 1_000_001)
                    await socket.recv()
                case "/parts":
                    await socket.send(["é", "n", "d"])
                    await socket.ping()
                case "/secret":
                    await socket.send(f"<{SECRET}> {SECRET[7:]}")
                    await socket.send(SECRET.encode())
                    await socket.close(4000, SECRET[7:])
                case "/close":
                    await socket.close(4321, "enough")
                case "/pings":
                    socket.transport.write(b"\x89\x00" * 1_000_000)
                    await socket.wait_closed()
                case "/compressed":
                    socket.transport.write(b"\xc1\x01x")
                    await socket.wait_closed()
                case "/silent":
                    await socket.wait_closed()
                case "/cut":
                    socket.transport.abort()
                case _:
                    async for message in socket:
                        await socket.send(message)
        except ConnectionClosed:
            pass
        finally:
            await socket.wait_closed()
            self.closed.append((socket.close_code, socket.close_reason or ""))
            self.left.set()


def choose(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return Subprotocol("v2") if "v2" in offered else None


@pytest.fixture
async def speaker() -> AsyncGenerator[Speaker]:
    made = Speaker("127.0.0.2", 0)
    async with serve(made.speak, made.host, 0, select_subprotocol=choose) as server:
        made.port = next(iter(server.sockets)).getsockname()[1]
        yield made


@asynccontextmanager
async def answering(answers: Sequence[bytes]) -> AsyncGenerator[str]:
    """A server of another kind: its origin. It has one answer at each path, which is a number."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.send(answers[int((await stream.receive()).split(b" ")[1][1:])])

    async with await anyio.create_tcp_listener(local_host="127.0.0.2") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"127.0.0.2:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - not Django
        tasks.cancel_scope.cancel()


async def test_texts_and_bytes_come_back_as_they_were_sent(run: Run, speaker: Speaker) -> None:
    program = """
      const socket = await opened("/echo?q=1", ["v2", "other"]);
      const states = [socket.readyState, socket.protocol, socket.url.endsWith("/echo?q=1"), socket.binaryType, socket.extensions];
      const back = [];
      const echo = async (data) => { const told = next(socket); socket.send(data); return await told; };
      back.push(await echo("héllo 😀"), await echo(""));
      back.push(await (await echo(new Blob(["blob"]))).text());
      socket.binaryType = "arraybuffer";
      back.push([...new Uint8Array(await echo(new Uint8Array([0, 1, 255]).subarray(1)))]);
      back.push((await echo(new Uint8Array(300_000).buffer)).byteLength);
      const buffered = [socket.bufferedAmount, (socket.send("12345"), socket.bufferedAmount)];
      const end = ended(socket);
      socket.close(4001, "done");
      return { states, back, buffered, closing: socket.readyState, end: await end, after: socket.readyState };
    """
    result = await run(network(speaker.origin), speaker.program(program))
    assert result.error is None
    assert result.value == {
        "states": [1, "v2", True, "blob", ""],
        "back": ["héllo 😀", "", "blob", [1, 255], 300_000],
        "buffered": [0, 5],
        "closing": 2,
        "end": [4001, "done", True],
        "after": 3,
    }
    await speaker.left.wait()
    assert speaker.closed == [(4001, "done")]
    assert result.tool_calls == ()


async def test_the_end_by_a_server_has_its_code(run: Run, speaker: Speaker) -> None:
    program = """
      const parts = await next(await opened("/parts"));
      const closed = await ended(await opened("/close"));
      const cut = await ended(await opened("/cut"));
      return [parts, closed, cut];
    """
    result = await run(network(speaker.origin), speaker.program(program))
    failed = "the WebSocket to '127.0.0.2' failed: "
    assert result.value[:2] == ["énd", [4321, "enough", True]]
    code, reason, clean = result.value[2]
    assert (code, reason.startswith(failed), clean) == (1006, True, False)


async def test_what_a_server_sends_is_bounded_and_the_program_continues(run: Run, speaker: Speaker) -> None:
    program = """
      const big = await ended(await opened("/big"));
      let count = 0;
      const endless = await opened("/endless");
      endless.onmessage = () => count++;
      return [big, await ended(endless), count];
    """
    result = await run(network(speaker.origin, response_bytes=2_000_000), speaker.program(program))
    assert result.error is None
    big, endless, count = result.value
    assert big == [1006, "egress to '127.0.0.2' blocked: a message is larger than 1000000 bytes", False]
    assert endless == [1006, "the program has received more than Network(response_bytes=2000000)", False]
    assert 80 < count < 200


async def test_frames_that_hold_nothing_cost_something_too(run: Run, speaker: Speaker) -> None:
    net = network(speaker.origin, response_bytes=100_000)
    result = await run(net, speaker.program('return await ended(await opened("/pings"))'))
    assert result.value == [1006, "the program has received more than Network(response_bytes=100000)", False]


async def test_a_server_that_breaks_the_protocol_or_is_silent_ends_the_socket(run: Run, speaker: Speaker) -> None:
    program = 'return [await ended(await opened("/compressed")), await ended(await opened("/silent"))]'
    result = await run(network(speaker.origin, seconds=0.5), speaker.program(program))
    assert result.value == [
        [
            1006,
            "the WebSocket to '127.0.0.2' failed: the server sent an invalid WebSocket message: Reserved bit set unexpectedly",
            False,
        ],
        [
            1006,
            "the WebSocket to '127.0.0.2' failed: the server was silent for longer than Network(seconds=0.5)",
            False,
        ],
    ]


ANSWERS: list[tuple[bytes, str]] = [
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered with status 404"),
    (b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", "answered with status 302"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "answered with status 200"),
    (b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n", "Bad accept token"),
    (b"HTTP/1.1 103 X\r\n\r\n" * 1000, "answered with status 103"),
    (b"HTTP/1.1 101 X\r\nX-Long: " + b"x" * 100_000, "violates the WebSocket protocol"),
    (b"\x00\xff" * 100, "violates the WebSocket protocol"),
    (b"", "failed"),
]  # fmt: skip


async def test_a_server_that_opens_none_is_told(run: Run) -> None:
    async with answering([answer for answer, _ in ANSWERS]) as place:
        program = f"""{OPENED}
          const told = (number) => opened(`/${{number}}`).then(() => "open", (error) => error.message);
          return await Promise.all([...Array({len(ANSWERS)}).keys()].map(told));
        """.replace("ORIGIN", f"ws://{place}")
        found = (await run(network(f"http://{place}", websockets=len(ANSWERS)), program)).value
    wrong = [(answer, told) for (answer, expected), told in zip(ANSWERS, found, strict=True) if expected not in told]
    assert wrong == []


async def test_credentials_are_the_hosts_and_never_reach_the_program(run: Run, speaker: Speaker) -> None:
    program = """
      const socket = new WebSocket("ORIGIN/secret", { protocols: ["chat"], headers: { AUTHORIZATION: "mine", "x-mine": "1", "sec-websocket-key": "k", host: "evil" } });
      const told = [];
      socket.onmessage = async ({ data }) => told.push(typeof data === "string" ? data : await data.text());
      return [...await ended(socket), ...told];
    """
    events: list[AuditEvent] = []
    net = network(speaker.origin, credentials={speaker.host: Header("Authorization", SECRET)})
    result = await run(net, speaker.program(program), audit=events.extend)
    assert result.value == [4000, "[redacted]", True, "<[redacted]> [redacted]", "[redacted]"]
    [headers] = speaker.headers
    assert (headers["authorization"], headers["x-mine"]) == (SECRET, "1")
    assert headers["host"] == f"{speaker.host}:{speaker.port}"
    assert headers["sec-websocket-key"] != "k"
    assert "s3cret" not in f"{result!r} {json.dumps(result.value)} {events!r}"


async def test_a_denial_names_host_and_option_and_is_on_record(run: Run, speaker: Speaker) -> None:
    events: list[AuditEvent] = []
    program = """
      const socket = new WebSocket("ws://evil.example/secret?q=1");
      const told = [];
      socket.onerror = (event) => told.push([event.type, event.message, event.error.code, socket.readyState]);
      told.push(await ended(socket));
      const echo = await opened("/echo?token=1");
      echo.close();
      await ended(echo);
      const quiet = new WebSocket("wss://quiet.example");
      while (quiet.readyState !== WebSocket.CLOSED) await new Promise((done) => setTimeout(done));
      return told;
    """
    result = await run(network(speaker.origin), speaker.program(program), audit=events.extend)
    told = "egress to '{}' blocked: it is not in Network(allow=[...])"
    evil = told.format("evil.example")
    assert result.value == [["error", evil, "egress_blocked", 3], [1006, evil, False]]
    assert any(told.format("quiet.example") in each.message for each in result.diagnostics)
    requests: list[Any] = [event for event in events if event.kind == "request"]
    assert sorted(
        (event.outcome, event.arguments["host"], event.arguments["path"], event.arguments["status"])
        for event in requests
    ) == [
        ("denied", "evil.example", "/secret", None),
        ("denied", "quiet.example", "/", None),
        ("succeeded", speaker.host, "/echo", 101),
    ]


@pytest.mark.parametrize(
    ("options", "program", "told"),
    [
        ({"requests": 2}, 'for (let i = 0; i < 3; i++) await opened("/echo")', "Network(requests=2)"),
        ({"websockets": 1}, 'await opened("/echo"); await opened("/echo")', "Network(websockets=1)"),
        ({"websockets": 0}, 'await opened("/echo")', "Network(websockets=0)"),
        ({"methods": ["POST"]}, 'await opened("/echo")', "the method GET is not in Network(methods=[...])"),
        ({"request_bytes": 10}, 'const s = await opened("/echo"); s.send("12345678901"); throw new Error((await ended(s))[1])', "request_bytes=10"),
        ({"request_bytes": 3_000_000}, 'const s = await opened("/echo"); s.send("x".repeat(1000001)); throw new Error((await ended(s))[1])', "1000000"),
    ],
)  # fmt: skip
async def test_budgets_hold_for_the_execution(
    run: Run, speaker: Speaker, options: Any, program: str, told: str
) -> None:
    result = await run(network(speaker.origin, **options), speaker.program(program))
    assert result.error is not None
    assert told in result.error.message


async def test_a_closed_one_gives_its_place_free(run: Run, speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    close = BoundedStream.aclose

    async def close_slowly(self: BoundedStream) -> None:
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        await close(self)

    monkeypatch.setattr(BoundedStream, "aclose", close_slowly)
    program = """
      for (let i = 0; i < 5; i++) { const socket = await opened("/echo"); const end = ended(socket); socket.close(); await end; }
      const early = new WebSocket("ORIGIN/echo");
      const end = ended(early);
      for (const start = Date.now(); Date.now() < start + 200;); // the host has opened it meanwhile
      early.close();
      return [await end, await next(await opened("/parts"))];
    """
    result = await run(network(speaker.origin, websockets=1), speaker.program(program))
    assert result.error is None
    assert (result.value[0][0], result.value[1]) == (1006, "énd")


async def test_one_that_is_dropped_as_something_comes_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(httpcore.AsyncNetworkStream):
        def __init__(self) -> None:
            self.server = WSConnection(ConnectionType.SERVER)
            self.came = anyio.Event()
            self.data = b""

        async def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self.server.receive_data(buffer)
            assert [type(each) for each in self.server.events()] == [Request]
            self.data = self.server.send(AcceptConnection())

        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            await self.came.wait()
            return self.data

        async def aclose(self) -> None: ...

    async def connect(*_: object) -> BoundedStream:
        return BoundedStream(stream, "example.com", net.policy)

    async def is_closed(call: object) -> None:
        with pytest.raises(ExecutionCancelled, match="the WebSocket was closed"):
            await socket(call)

    async def drop_as_it_comes(call: dict[str, object]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(is_closed, call)
            await anyio.wait_all_tasks_blocked()
            stream.came.set()
            await socket({"do": "drop", "id": call["id"]})

    monkeypatch.setattr(GuardedBackend, "connect_tcp", connect)
    net = network("http://example.com")
    caller: Any = SimpleNamespace(execution_id="", context=ExecutionContext())
    opening = {"do": "open", "url": "ws://example.com/", "protocols": list[str]()}
    async with net.serve(caller, None) as services:
        socket = services["$socket"]
        stream = Stream()
        await drop_as_it_comes({**opening, "id": 1})
        stream = Stream()
        stream.came.set()
        await socket({**opening, "id": 2})
        stream.came, stream.data = anyio.Event(), stream.server.send(TextMessage("hello"))
        await drop_as_it_comes({"do": "receive", "id": 2})


async def test_every_attack_ends_as_a_refusal_and_nothing_arrives_inside(
    server: Server, canary: Server, attempts: Attempts, warm_deno: DenoSandbox
) -> None:
    net = network(server.origin, f"http://public.example:{server.port}", seconds=0.2, requests=10)
    prelude = """
      void globalThis;
      const tools = { fetch: ({ url }) => new Promise((done, fail) => {
        const socket = new WebSocket(url);
        socket.onopen = () => done("open");
        socket.onerror = ({ error }) => fail(error);
      }) };
    """
    outcomes: dict[str, str | None] = {}
    async with Corral(network=net, sandbox=warm_deno, check=False) as corral:
        for attack in ATTACKS:
            result = await corral.execute(prelude + attack["code"].replace("${PORT}", str(canary.port)))
            outcomes[attack["id"]] = result.error and result.error.code
    assert len(outcomes) == 42
    assert set(outcomes.values()) <= {
        "egress_blocked", "call_budget_exceeded", "invalid_arguments", "program_failed", "tool_failed",
    }  # fmt: skip
    assert attempts.looked_up == []
    assert set(attempts.dialled) <= {"127.0.0.2"}


async def test_the_end_of_an_execution_ends_its_sockets(speaker: Speaker, warm_deno: DenoSandbox) -> None:
    async with Corral(network=network(speaker.origin), sandbox=warm_deno, check=False) as corral:
        result = await corral.execute(speaker.program('return (await opened("/silent")).readyState'))
        assert result.value == 1
        await speaker.left.wait()


async def test_a_program_without_a_value_lasts_as_long_as_its_sockets(run: Run, speaker: Speaker) -> None:
    program = """
      const socket = new WebSocket("ORIGIN/echo");
      socket.onopen = () => socket.send("hello");
      socket.onmessage = ({ data }) => { console.log(data); socket.close(); };
      socket.addEventListener("close", ({ code }) => console.log(code));
    """
    result = await run(network(speaker.origin), speaker.program(program))
    assert [entry.text for entry in result.logs] == ["hello", "1000"]


async def test_wrong_uses_are_the_errors_of_browsers(run: Run, speaker: Speaker) -> None:
    program = """
      const caught = (work) => { try { work(); } catch (error) { return error.name; } };
      const socket = new WebSocket("ORIGIN/echo");
      const found = [
        caught(() => socket.send("x")), caught(() => socket.close(1001)), caught(() => socket.close(1000, "x".repeat(124))),
        caught(() => new WebSocket("/relative")), caught(() => new WebSocket("ftp://a.example")), caught(() => new WebSocket("ws://a.example#x")),
        caught(() => new WebSocket("ws://a.example", ["a", "a"])), caught(() => new WebSocket("ws://a.example", "a b")),
        new WebSocket("http" + "ORIGIN/x".slice(2)).url.startsWith("ws://"), WebSocket.CLOSED,
      ];
      return found;
    """
    result = await run(network(speaker.origin), speaker.program(program))
    assert result.value == [
        "InvalidStateError", "InvalidAccessError", "SyntaxError", "TypeError", "SyntaxError", "SyntaxError", "SyntaxError",
        "SyntaxError", True, 3,
    ]  # fmt: skip

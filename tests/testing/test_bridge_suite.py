"""The suite of bridge protocols: Corral's own and one of a third party pass it, and broken ones do not."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import base64
import functools
import json
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import quote, unquote

import anyio
import deno
import grpc
import grpc.aio
import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from corral import ExecutionContext, Limits
from corral.bridges import ASGIApp, BridgeHost, BridgeProtocol, PipeBridge
from corral.bridges.base import Receive, Scope, Send
from corral.bridges.http import HttpBridge
from corral.bridges.web import Body, RequestHead, WebBridge, grant_of, load_of, watch_request
from corral.bridges.web.request_watch import ended
from corral.calls import Call, Grant
from corral.errors import ConfigError, CorralError
from corral.guest import client_runtime, decode_value, encode_value
from corral.guest.python.client import Transport
from corral.guest.python.failures import CorralError as GuestError
from corral.guest.python.transports import http as http_transport
from corral.guest.python.values import UnencodableValue
from corral.guest.python.values import encode as guest_value
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.grpc.bridge import GrpcBridge
from corral.protocols.grpc.methods import CallMessage, CallReply
from corral.protocols.guests import connect as connect_transport
from corral.protocols.guests import graphql as graphql_transport
from corral.protocols.guests import grpc as grpc_transport
from corral.protocols.guests import trpc as trpc_transport
from corral.protocols.trpc import TrpcBridge
from corral.testing import BridgeMessageSuite, BridgeStreamSuite, BridgeSuite, CallTool, SendMessage
from corral.types import CallError, CallRequest, EncodedValue, Endpoint, HttpEndpoint, Language, PipeEndpoint, Reply
from tests.bridges.http.serving import NO_TLS
from tests.testing.slow_senders import call_slowly, post_slowly
from tests.testing.wire import SERVED, WIRE, Both, cases_of, renewals, rest_in_matrix
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio


def as_sent(reply: Reply) -> Reply:
    """A reply as a guest decodes it."""
    if reply.error is not None:
        return reply
    value = reply.encoded or encode_value(reply.value)
    return Reply(decode_value(value.text, tagged=value.tagged))


def encoded(input: object) -> EncodedValue | Reply:
    """An input as it leaves a guest, or the guest's own refusal."""
    try:
        return encode_value(input)
    except UnencodableValue as error:
        return Reply(error=CallError(code="invalid_arguments", name="InvalidArguments", message=str(error)))


@asynccontextmanager
async def served(app: ASGIApp, port: int = 0) -> AsyncGenerator[int]:
    """A server in this event loop; yields its port. `uvicorn.Server` would look ten times a second if it should end."""
    state = ServerState()
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
    config.load()

    def protocol() -> asyncio.Protocol:
        made: Any = config.http_protocol_class
        return made(config=config, server_state=state, app_state={})

    async with await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port) as server:
        yield server.sockets[0].getsockname()[1]
        # A connection that asyncio accepted is lost, unclosed, if its server closes before its protocol is made.
        asyncio.get_running_loop().remove_reader(server.sockets[0])
        for _ in range(2):  # the protocol is made in one turn, and starts in the next
            await asyncio.sleep(0)
        server.close()
        for connection in [*state.connections]:
            connection.shutdown()
        if state.tasks:
            await asyncio.wait([*state.tasks], timeout=LIMIT_SECONDS)
        for connection in [*state.connections]:  # whose clients do not read what was written to them
            connection.transport.abort()
        await until(lambda: not state.connections)


FEW_CONNECTIONS = httpx.Limits(max_connections=16)
"""With each answer httpx compares all requests that wait with all connections."""


@asynccontextmanager
async def client_of(app: ASGIApp, token: str) -> AsyncGenerator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {token}"}
    async with (
        served(app) as port,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30, verify=NO_TLS, limits=FEW_CONNECTIONS
        ) as http,
    ):
        yield http


class PipeItems:
    """The guest's end of a stream over a pipe: holds as many items as a program's buffer does, and asks for more."""

    def __init__(self, left: Callable[[], object]) -> None:
        self.left = left
        self.items: deque[EncodedValue] = deque()
        self.changed = anyio.Event()
        self.ended = False

    def put(self, item: EncodedValue) -> bool:
        self.items.append(item)
        self._change()
        return self.ended

    async def room(self) -> None:
        while self.items and not self.ended:
            await self.changed.wait()

    async def next(self) -> EncodedValue | None:
        while not self.items and not self.ended:
            await self.changed.wait()
        if not self.items:
            return None
        item = self.items.popleft()
        self._change()
        return item

    def end(self) -> None:
        self.ended = True
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class TestPipe(BridgeStreamSuite):
    def protocol(self) -> BridgeProtocol:
        return PipeBridge()

    @asynccontextmanager
    async def connect(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[CallTool]:
        assert isinstance(endpoint, PipeEndpoint)
        numbers = iter(range(1, 1000))

        async def call(tool: str, input: object) -> Reply:
            sent = encoded(input)
            if isinstance(sent, Reply):
                return sent
            arrived = decode_value(sent.text, tagged=sent.tagged)
            return as_sent(await endpoint.handler(CallRequest(tool, arrived, next(numbers), len(sent.text))))

        yield call

    @asynccontextmanager
    async def stream(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint, tool: str, input: object
    ) -> AsyncGenerator[AsyncIterator[Reply]]:
        assert isinstance(endpoint, PipeEndpoint)
        opened: list[PipeItems] = []
        opening = anyio.Event()
        last: list[Reply] = []

        def open(left: Callable[[], object]) -> PipeItems:
            opened.append(PipeItems(left))
            opening.set()
            return opened[0]

        async def make() -> None:
            last.append(as_sent(await endpoint.handler(CallRequest(tool, input, 1, 2, open_stream=open))))
            opening.set()
            for each in opened:
                each.end()

        async def items() -> AsyncGenerator[Reply]:
            await opening.wait()
            for each in opened:
                while (item := await each.next()) is not None:
                    yield Reply(decode_value(item.text, tagged=item.tagged))
            if last[0].error is not None:
                yield last[0]

        async with anyio.create_task_group() as tasks, aclosing(items()) as iterator:
            tasks.start_soon(make)
            yield iterator
            for each in opened:
                each.left()
                each.end()


def failure_of(error: GuestError) -> Reply:
    name, after = type(error).__name__, error.retry_after_seconds
    return Reply(error=CallError(code=error.code, name=name, message=str(error), retry_after_seconds=after))


class RuntimeSuite(BridgeStreamSuite, BridgeMessageSuite):
    """The suites by corral's own runtime for programs in Python elsewhere."""

    bridge: type[BridgeProtocol]
    runtime: Any
    path: str = ""
    """Path at which the app serves."""
    transport: Transport

    @asynccontextmanager
    async def url(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[str]:
        async with served(protocol.asgi_app(host)) as port:
            yield f"http://127.0.0.1:{port}{self.path}"

    @asynccontextmanager
    async def stream(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint, tool: str, input: object
    ) -> AsyncGenerator[AsyncIterator[Reply]]:
        assert isinstance(endpoint, HttpEndpoint)

        async def replies(read: Any) -> AsyncGenerator[Reply]:
            try:
                async for item in read:
                    yield Reply(item)
            except GuestError as error:
                yield failure_of(error)

        async with (
            self.url(protocol, host, endpoint) as url,
            self.runtime.connect(url, endpoint.token) as connection,
            aclosing(aiter(connection.tools[tool](input))) as read,
            aclosing(replies(read)) as found,
        ):
            yield found

    async def test_a_guest_renews_its_token_as_long_as_it_is_connected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("corral.guest.python.client._MAX_RENEWAL_SECONDS", 0.02)
        with renewals() as used:
            async with self._world() as world, self._guest(world) as call:
                await until(lambda: used)
                assert (await call("double", {"number": 1})).value == 2

    @asynccontextmanager
    async def raw(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[SendMessage]:
        assert isinstance(endpoint, HttpEndpoint)
        request = self.transport.request([])
        async with client_of(protocol.asgi_app(host), endpoint.token) as http:

            async def send(message: bytes, pause: Callable[[], Awaitable[object]] | None = None, /) -> str | None:
                path, headers = f"{self.path}{request.path}", {"content-type": request.content_type}
                if pause is None:
                    answer = await http.post(path, content=message, headers=headers)
                    status, content = answer.status_code, answer.content
                else:
                    sent = [*headers.items(), ("authorization", http.headers["authorization"])]
                    status, content = await post_slowly(http.base_url.port or 0, path, sent, message, pause)
                if status != 200:
                    return self.transport.refusal(content)[0]
                reader = self.transport.reader([1], 1_000_000)
                [(_, failure, _)] = [*reader.feed(content), *reader.end()]
                return failure[0] if failure else None

            yield send

    def message(self, tool: str, input: object) -> bytes:
        return self.transport.request(
            [self.transport.encode(1, json.dumps(tool), guest_value(input, "input", 1_000, plain=True))]
        ).body

    def protocol(self) -> BridgeProtocol:
        made: Any = self.bridge
        return made("http://127.0.0.1")

    @asynccontextmanager
    async def connect(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[CallTool]:
        assert isinstance(endpoint, HttpEndpoint)
        async with self.url(protocol, host, endpoint) as url, AsyncExitStack() as stack:

            async def connected() -> Any:
                return await stack.enter_async_context(self.runtime.connect(url, endpoint.token))

            connection, running = await connected(), 0

            async def call(tool: str, input: object) -> Reply:
                nonlocal connection, running
                running += 1
                try:
                    return Reply(await connection._calls.start(tool, json.dumps(tool), input, None))
                except GuestError as error:
                    return failure_of(error)
                except anyio.get_cancelled_exc_class():
                    if running == 1:  # else the others need their connection
                        connection.close()
                        connection = await connected()
                    raise
                finally:
                    running -= 1

            yield call


class TestHttp(RuntimeSuite):
    bridge, runtime, transport = HttpBridge, http_transport, http_transport._HttpTransport()


@rest_in_matrix
class TestGraphql(RuntimeSuite):
    bridge, runtime, transport = GraphqlBridge, graphql_transport, graphql_transport._GraphqlTransport()
    path = "/graphql"


@rest_in_matrix
class TestTrpc(RuntimeSuite):
    bridge, runtime, transport = TrpcBridge, trpc_transport, trpc_transport._TrpcTransport()


@rest_in_matrix
class TestConnect(RuntimeSuite):
    bridge, runtime, transport = ConnectBridge, connect_transport, connect_transport._ConnectTransport()


class OneLoop:
    """Keeps the event loop from test to test: gRPC hands the next one what comes late for one that is closed, and fails."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    async def _loop(cls, anyio_backend: object) -> AsyncGenerator[None]:
        yield  # noqa: PT022 - as long as it waits, the loop lives


@rest_in_matrix
class TestGrpc(OneLoop, RuntimeSuite):
    bridge, runtime, transport = GrpcBridge, grpc_transport, grpc_transport._GrpcTransport()

    def protocol(self) -> BridgeProtocol:
        return GrpcBridge()

    @asynccontextmanager
    async def url(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[str]:
        assert isinstance(endpoint, HttpEndpoint)
        yield endpoint.url

    @asynccontextmanager
    async def raw(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[SendMessage]:
        assert isinstance(endpoint, HttpEndpoint)
        async with grpc.aio.insecure_channel(endpoint.url.removeprefix("http://")) as channel:
            methods: Any = [channel.unary_unary(f"/corral.v1.Bridge/{name}") for name in ("Call", "Calls")]

            async def sent(method: Any, message: bytes) -> str | None:
                try:
                    reply = CallReply.FromString(await method(message, metadata=metadata))
                except grpc.aio.AioRpcError as refused:
                    trailers: dict[str, str] = dict(cast("Any", refused.trailing_metadata()) or ())
                    return trailers.get("corral-error-code", refused.code().name)
                return reply.error.code if reply.HasField("error") else None

            metadata = (("authorization", f"Bearer {endpoint.token}"),)

            async def send(message: bytes, pause: Callable[[], Awaitable[object]] | None = None, /) -> str | None:
                if pause is not None:
                    port = int(endpoint.url.rpartition(":")[2])
                    trailers, reply = await call_slowly(port, "/corral.v1.Bridge/Call", [*metadata], message, pause)
                    if trailers["grpc-status"] != "0":
                        return trailers.get("corral-error-code", trailers["grpc-status"])
                    found = CallReply.FromString(reply)
                    return found.error.code if found.HasField("error") else None
                codes = {await sent(method, message) for method in methods}
                return None if None in codes else codes.pop()

            yield send

    def message(self, tool: str, input: object) -> bytes:
        value = encode_value(input)
        return CallMessage(tool=tool, input=value.text, tagged=value.tagged).SerializeToString()


class NoteBridge(WebBridge):
    """A third party's protocol: the tool is the path, a letter before the JSON tells of tags, errors are plain text."""

    name: ClassVar[str] = "note"

    def routes(self, host: BridgeHost) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            head = RequestHead(scope)
            grant = await grant_of(host, head, self.name)
            reply = await self._reply(host, head, grant, receive) if isinstance(grant, Grant) else Reply(error=grant)
            if reply is None:
                return
            if reply.error is not None:
                await self.refusal(head, reply.error, 500)(scope, receive, send)
            else:
                value = reply.encoded or encode_value(reply.value)
                await respond(send, 200, marked(value))

        return app

    async def _reply(self, host: BridgeHost, head: RequestHead, grant: Grant, receive: Receive) -> Reply | None:
        try:
            async with (
                watch_request(grant, receive, anyio.lowlevel.checkpoint) as watch,
                Body(head, receive, grant.limits.tool_input_bytes + 1, grant) as body,
            ):
                input = decode_value(body[1:], tagged=body[:1] == b"T")
                number = load_of(grant).count(1)
                watch.body_received()
                tool = unquote(head.scope["raw_path"].decode().removeprefix("/"))
                return await host.handle(
                    Call(CallRequest(tool, input, number, len(body) - 1), grant, protocol=self.name)
                )
        except CorralError as error:
            return Reply(error=CallError.of(error))
        return Reply(error=ended()) if grant.ended else None

    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            seconds = error.retry_after_seconds
            text = "\n".join([error.code, error.name, "" if seconds is None else str(seconds), error.message])
            await respond(send, status, text.encode())

        return refuse

    def guest_runtime(self, language: Language) -> str:
        return client_runtime(language, TRANSPORTS[language])


TRANSPORTS: dict[Language, str] = {
    "typescript": """
import { bridgeTransport, type Reply, type Transport } from "./client.ts";
import { decodeValue, revive } from "./values.ts";

const transport: Transport = {
  batchCalls: 1,
  renewalPath: "/token",
  encode: (_sequence, path, { text, tagged }) => `${JSON.parse(path)}\\n${tagged ? "T" : "P"}${text}`,
  request([call]) {
    const end = call!.indexOf("\\n");
    return { path: `/${call!.slice(0, end)}`, type: "text/plain", body: call!.slice(end + 1) };
  },
  reader([sequence]) {
    const decoder = new TextDecoder();
    let text = "";
    return {
      feed(part) {
        text += decoder.decode(part, { stream: true });
        return [];
      },
      end(): Reply[] {
        const value = decodeValue(text.slice(1), false);
        return [[sequence!, true, text[0] === "T" ? revive(value) : value]];
      },
    };
  },
  refusal(body) {
    const [code, name, seconds, ...message] = body.split("\\n");
    return [code!, name!, message.join("\\n"), seconds === "" ? undefined : Number(seconds)];
  },
};

export const { connect, connectFromEnvironment } = bridgeTransport(transport);
""",
    "python": """
import json
from corral.guest.python.client import BridgeRequest, bridge_transport
from corral.guest.python.values import revive

class _Note:
    batch_calls = 1
    renewal_path = "/token"

    def encode(self, sequence, path, input):
        return json.loads(path).encode() + b"\\n" + (b"T" if input.tagged else b"P") + input.text

    def request(self, calls):
        [call] = calls
        tool, _, body = call.partition(b"\\n")
        return BridgeRequest("/" + tool.decode(), body, "text/plain")

    def reader(self, sequences, max_bytes):
        return _NoteReader(*sequences)

    def refusal(self, body):
        code, name, seconds, message = body.decode().split("\\n", 3)
        return code, name, message, float(seconds) if seconds else None

class _NoteReader:
    def __init__(self, sequence):
        self._sequence = sequence
        self._text = b""

    def feed(self, chunk):
        self._text += chunk
        return ()

    def end(self):
        value = json.loads(self._text[1:])
        return [(self._sequence, None, revive(value) if self._text[:1] == b"T" else value)]

connect, connect_from_environment = bridge_transport(_Note())
""",
}
PROGRAMS: dict[Language, str] = {
    "typescript": """
import { connectFromEnvironment } from "./runtime.mjs";
const { tools } = connectFromEnvironment();
const echoed = await tools.echo({ value: [1n << 70n, new Uint8Array([1, 2]), NaN] });
console.log(echoed[0] === 1n << 70n, echoed[1].join(), Number.isNaN(echoed[2]));
console.log((await Promise.all([1, 2, 3].map((number) => tools.double({ number })))).join());
try {
  await tools.refuse();
} catch (error) {
  console.log(error.name, error.code, error.message);
}
""",
    "python": """
import asyncio
from runtime import ToolError, connect_from_environment

async def main():
    async with connect_from_environment() as connection:
        tools = connection.tools
        echoed = await tools.echo({"value": [1 << 70, b"\\x01\\x02", float("nan")]})
        print(str(echoed[0] == 1 << 70).lower(), ",".join(map(str, echoed[1])), str(echoed[2] != echoed[2]).lower())
        print(*await asyncio.gather(*(tools.double(number=number) for number in (1, 2, 3))), sep=",")
        try:
            await tools.refuse()
        except ToolError as error:
            print(type(error).__name__, error.code, error)

asyncio.run(main())
""",
}


def marked(value: EncodedValue) -> bytes:
    return (b"T" if value.tagged else b"P") + value.text


async def respond(send: Send, status: int, body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


WITHOUT_BATCHES = (WIRE | SERVED) - {"test_more_calls_at_once_than_a_batch_holds_have_their_own_answers"}


@functools.partial(rest_in_matrix, gate=WITHOUT_BATCHES)
class TestThirdParty(BridgeSuite):
    def protocol(self) -> BridgeProtocol:
        return NoteBridge("http://127.0.0.1")

    @asynccontextmanager
    async def connect(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[CallTool]:
        assert isinstance(endpoint, HttpEndpoint)
        assert endpoint.protocol == "note"
        async with client_of(protocol.asgi_app(host), endpoint.token) as http:

            async def call(tool: str, input: object) -> Reply:
                sent = encoded(input)
                if isinstance(sent, Reply):
                    return sent
                answer = await http.post(f"/{quote(tool, safe='')}", content=marked(sent))
                if answer.status_code == 200:
                    return Reply(decode_value(answer.content[1:], tagged=answer.content[:1] == b"T"))
                code, name, seconds, message = answer.text.split("\n", 3)
                after = float(seconds) if seconds else None
                return Reply(error=CallError(code=code, name=name, message=message, retry_after_seconds=after))

            yield call


async def test_a_third_party_writes_its_own_refusals() -> None:
    class Nothing(BridgeSuite):
        protocol = TestThirdParty.protocol

    async with Nothing()._world() as world:
        transport = httpx.ASGITransport(cast("Any", world.protocol.asgi_app(world.host)))
        async with httpx.AsyncClient(transport=transport, base_url="http://attacker.example") as http:
            answer = await http.post("/whoami")
    assert (answer.status_code, answer.text.split("\n")[:2]) == (421, ["access_denied", "AccessDenied"])
    assert answer.text.endswith("add it to NoteBridge(allowed_hosts=[...])")


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_third_party_brings_only_a_transport_for_programs_elsewhere(language: Language, tmp_path: Path) -> None:
    runtime, program = ("runtime.mjs", "program.mjs") if language == "typescript" else ("runtime.py", "program.py")
    (tmp_path / runtime).write_text(NoteBridge().guest_runtime(language), encoding="utf-8")
    (tmp_path / program).write_text(PROGRAMS[language], encoding="utf-8")
    deno_run = [deno.find_deno_bin(), "run", "--quiet", "--no-config", "--allow-env", "--allow-net=127.0.0.1"]
    command = deno_run if language == "typescript" else [sys.executable]
    suite = TestThirdParty()
    async with suite._world() as world, served(world.protocol.asgi_app(world.host)) as port:
        grant = Grant(context=ExecutionContext(), limits=Limits(), tools=world.tools)
        with world.grants.live(grant):
            environment = {
                "CORRAL_URL": f"http://127.0.0.1:{port}",
                "CORRAL_TOKEN": world.host.issue(grant),
                "DENO_DIR": str(tmp_path),
            }
            done = await anyio.run_process([*command, program], cwd=tmp_path, env=environment, check=False)
    assert done.stderr == b""
    assert done.stdout.decode().splitlines() == [
        "true 1,2 true",
        "2,4,6",
        "ToolError tool_error not today, größer",
    ]


def test_a_transport_cannot_replace_names_of_the_runtime_unseen() -> None:
    with pytest.raises(ConfigError, match="the transport defines 'Reading', which the runtime also defines"):
        client_runtime("python", "class Reading:\n    pass\nconnect = 1\n")


def test_a_protocol_without_a_runtime_says_so() -> None:
    with pytest.raises(ConfigError, match="bridge 'pipe' has no runtime for programs elsewhere"):
        PipeBridge().guest_runtime("python")


# --- which cases run, and that they can fail


def test_each_case_is_known_to_be_of_the_wire_or_not() -> None:
    """Fails for a new case: say in tests/testing/wire.py if a transport or a server decides it."""
    cases = cases_of(Both)
    assert cases >= WIRE | SERVED
    assert not WIRE & SERVED
    assert (len(WIRE), len(SERVED), len(cases - WIRE - SERVED)) == (15, 29, 25)


def changed(change: Callable[[Call], Call]) -> type[BridgeSuite]:
    """The suite of pipes whose calls are changed on their way."""

    class Changing(PipeBridge):
        @asynccontextmanager
        async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
            yield PipeEndpoint(handler=lambda request: host.handle(change(Call(request, grant))))

    class Suite(TestPipe):
        def protocol(self) -> BridgeProtocol:
            return Changing()

    return Suite


def without_bytes(call: Call) -> Call:
    match call.request.input:
        case {"value": bytes(data)}:
            text = base64.b64encode(data).decode()
            return Call(call.request._replace(input={"value": text}), call.grant)
        case _:
            return call


NUMBERS = "test_calls_are_numbered_in_order_and_carry_the_name_of_the_protocol"
BROKEN: dict[str, tuple[Callable[[Call], Call], str]] = {
    "loses bytes": (without_bytes, "test_values_of_all_kinds_come_back_as_they_went"),
    "has another name": (lambda call: Call(call.request, call.grant, protocol="other"), NUMBERS),
    "does not number": (lambda call: Call(call.request._replace(sequence=1), call.grant), NUMBERS),
    "does not measure": (
        lambda call: Call(call.request._replace(size=0), call.grant),
        "test_an_input_over_its_bound_is_refused",
    ),
    "runs under another grant": (
        lambda call: Call(call.request, Grant(context=ExecutionContext(), limits=Limits(), tools=call.grant.tools)),
        "test_executions_at_the_same_time_have_their_own_callers",
    ),
}


async def test_a_protocol_that_breaks_a_promise_fails() -> None:
    passed: list[str] = []
    for name, (change, test) in BROKEN.items():
        try:
            await getattr(changed(change)(), test)()
        except AssertionError:
            continue
        passed.append(name)
    assert passed == []

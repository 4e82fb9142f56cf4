"""The suites of bridge protocols by corral's own runtime for programs in TypeScript elsewhere, in a plain Deno."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

from corral.bridges import BridgeHost, BridgeProtocol
from corral.bridges.http import HttpBridge
from corral.guest import decode_value
from corral.plugins import load_by_name
from corral.programs import strip_types
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.grpc.bridge import GrpcBridge
from corral.protocols.trpc import TrpcBridge
from corral.testing import BridgeStreamSuite, CallTool
from corral.types import CallError, EncodedValue, Endpoint, HttpEndpoint, Reply
from tests.bridges.http.engines import ENGINES
from tests.testing.test_bridge_suite import OneLoop, encoded, served
from tests.testing.wire import renewals, rest_in_matrix, wire_only
from tests.until import until

pytestmark = pytest.mark.anyio

DRIVER = """
import { connect as usual } from "./runtime.mjs";
import { connect as hasty } from "./hasty.mjs";
import { decodeValue, encodeValue } from "./values.mjs";

const connections = new Map();
const streams = new Map();
const answer = (id, rest) => console.log(JSON.stringify({ id, ...rest }));
const value = (found) => found === undefined ? { text: "null", tagged: false } : encodeValue(found, "value", Infinity);

async function act({ id, act, connection, url, token, renewing, tool, text, tagged, stream }) {
  if (act === "connect") return void connections.set(connection, (renewing ? hasty : usual)({ url, token }));
  if (act === "close") return connections.get(connection).close();
  if (act === "leave") return streams.get(stream).return().catch(() => {}); // fails where the call had failed
  try {
    if (act === "call") return answer(id, value(await connections.get(connection).tools[tool](decodeValue(text, tagged))));
    if (act === "stream") {
      const { tools } = connections.get(connection);
      return void streams.set(stream, tools[tool](decodeValue(text, tagged))[Symbol.asyncIterator]());
    }
    const { done, value: item } = await streams.get(stream).next();
    answer(id, done ? { end: true } : value(item));
  } catch ({ code = "", name, message, retryAfterSeconds = null }) {
    answer(id, { error: { code, name, message, retry_after_seconds: retryAfterSeconds } });
  }
}

let rest = "";
for await (const part of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + part).split("\\n");
  rest = lines.pop();
  for (const line of lines) act(JSON.parse(line));
}
"""


class DriverEnded(Exception):
    """The driver ended while tests needed it. The message has its exit status and the end of what it printed."""


class Driver:
    """A process with a program that calls what it is told to. Replies find their callers by number."""

    ended: DriverEnded | None = None

    def __init__(self, protocol: str, folder: Path) -> None:
        runtime = load_by_name("corral.bridges", protocol).guest_runtime("typescript")
        sources = {
            "runtime.mjs": runtime,
            "hasty.mjs": re.sub(r"MAX_RENEWAL_SECONDS = [\d_]+", "MAX_RENEWAL_SECONDS = 0.02", runtime),
            "values.mjs": strip_types((files("corral.guest") / "typescript" / "values.ts").read_text("utf-8")),
            "driver.mjs": DRIVER,
        }
        for name, source in sources.items():
            (folder / name).write_text(source, encoding="utf-8")
        self._errors = folder / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*ENGINES["deno"], "driver.mjs"],
                cwd=folder,
                env={"DENO_DIR": str(folder), "NO_COLOR": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def tell(self, act: str, **arguments: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"act": act, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._reader.join()
            assert self.ended is not None
            raise self.ended from None

    async def ask(self, act: str, **arguments: object) -> dict[str, Any]:
        number = next(self.numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self.tell(act, id=number, **arguments)
            if self.ended is not None:
                raise self.ended
            return await self._waiting[number]
        finally:
            del self._waiting[number]

    def end(self) -> int:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a line that it did not read before it ended
            self._process.stdin.close()
        self._reader.join()
        return self._process.wait(30)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                reply = json.loads(line)
                future = self._waiting.get(reply["id"])
                if future is not None:
                    future.get_loop().call_soon_threadsafe(_settle, future, reply)
        status, printed = self._process.wait(), self._errors.read_text("utf-8", "replace")
        self.ended = DriverEnded(f"the driver ended with status {status}: {printed[-2_000:] or 'it printed nothing'}")
        for future in list(self._waiting.values()):
            future.get_loop().call_soon_threadsafe(_settle, future, self.ended)


def _settle(future: asyncio.Future[dict[str, Any]], reply: dict[str, Any] | DriverEnded) -> None:
    if future.done():
        return
    if isinstance(reply, DriverEnded):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def read(reply: dict[str, Any]) -> Reply:
    if "error" in reply:
        return Reply(error=CallError(**reply["error"]))
    return Reply(decode_value(reply["text"].encode(), tagged=reply["tagged"]))


class TypeScriptSuite(BridgeStreamSuite):
    bridge: type[BridgeProtocol]
    name: str
    path: str = ""
    driver: ClassVar[Driver]
    renewing: bool = False
    """Guests renew their tokens again and again."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _driver(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.driver = Driver(cls.name, tmp_path_factory.mktemp(cls.name))
        yield
        assert cls.driver.end() == 0

    @pytest.fixture(autouse=True)
    def _living_driver(self, _driver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        """Fails a test during which the driver ended. Those after it have a new one."""
        yield
        ended = self.driver.ended
        if ended is not None:
            self.driver.end()
            type(self).driver = Driver(self.name, tmp_path_factory.mktemp(self.name))
            raise ended

    def protocol(self) -> BridgeProtocol:
        made: Any = self.bridge
        return made("http://127.0.0.1")

    async def test_a_guest_renews_its_token_as_long_as_it_is_connected(self) -> None:
        self.renewing = True
        with renewals() as used:
            async with self._world() as world, self._guest(world) as call:
                assert (await call("double", {"number": 1})).value == 2
                await until(lambda: used)
                assert (await call("double", {"number": 2})).value == 4

    @asynccontextmanager
    async def connect(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[CallTool]:
        async with self._served(protocol, host, endpoint) as (url, token):
            connection, running = self._connected(url, token), 0

            async def call(tool: str, input: object) -> Reply:
                nonlocal connection, running
                sent = encoded(input)
                if isinstance(sent, Reply):
                    return sent
                running += 1
                try:
                    return read(await self.driver.ask("call", connection=connection, tool=tool, **fields(sent)))
                except anyio.get_cancelled_exc_class():
                    if running == 1:  # else the others need their connection
                        self.driver.tell("close", connection=connection)
                        connection = self._connected(url, token)
                    raise
                finally:
                    running -= 1

            yield call
            self.driver.tell("close", connection=connection)

    @asynccontextmanager
    async def stream(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint, tool: str, input: object
    ) -> AsyncGenerator[AsyncIterator[Reply]]:
        sent = encoded(input)
        assert not isinstance(sent, Reply)
        async with self._served(protocol, host, endpoint) as (url, token):
            connection, stream = self._connected(url, token), next(self.driver.numbers)
            self.driver.tell("stream", connection=connection, stream=stream, tool=tool, **fields(sent))

            async def replies() -> AsyncGenerator[Reply]:
                while True:
                    reply = await self.driver.ask("next", stream=stream)
                    if reply.get("end"):
                        return
                    yield read(reply)
                    if "error" in reply:
                        return

            async with aclosing(replies()) as found:
                yield found
            self.driver.tell("leave", stream=stream)
            self.driver.tell("close", connection=connection)

    @asynccontextmanager
    async def _served(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint
    ) -> AsyncGenerator[tuple[str, str]]:
        assert isinstance(endpoint, HttpEndpoint)
        async with served(protocol.asgi_app(host)) as port:
            yield f"http://127.0.0.1:{port}{self.path}", endpoint.token

    def _connected(self, url: str, token: str) -> int:
        connection = next(self.driver.numbers)
        self.driver.tell("connect", connection=connection, url=url, token=token, renewing=self.renewing)
        return connection


def fields(value: EncodedValue) -> dict[str, object]:
    return {"text": value.text.decode(), "tagged": value.tagged}


async def test_a_driver_that_ends_says_why(tmp_path: Path) -> None:
    driver = Driver("http", tmp_path)
    with pytest.raises(DriverEnded, match=r"status 1: .*Uncaught \(in promise\) TypeError"):
        await driver.ask("close", connection=0)  # a connection that does not exist
    with pytest.raises(DriverEnded, match="status 1"):
        await driver.ask("next", stream=0)
    assert driver.end() == 1


@rest_in_matrix
class TestHttp(TypeScriptSuite):
    bridge, name = HttpBridge, "http"


@wire_only
class TestGraphql(TypeScriptSuite):
    bridge, name, path = GraphqlBridge, "graphql", "/graphql"


@wire_only
class TestTrpc(TypeScriptSuite):
    bridge, name = TrpcBridge, "trpc"


@wire_only
class TestConnect(TypeScriptSuite):
    bridge, name = ConnectBridge, "connect"


@wire_only
class TestGrpc(OneLoop, TypeScriptSuite):
    bridge, name = GrpcBridge, "grpc"

    def protocol(self) -> BridgeProtocol:
        return GrpcBridge()

    @asynccontextmanager
    async def _served(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint
    ) -> AsyncGenerator[tuple[str, str]]:
        assert isinstance(endpoint, HttpEndpoint)
        yield endpoint.url, endpoint.token

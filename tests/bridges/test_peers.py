"""Several hosts behind one address: a request goes to the host of its execution, in one hop, and nowhere else."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.routing import Mount

from corral import Corral, ExecutionContext
from corral.bridges import ASGIApp, BridgeHost, BridgeProtocol, peers_redis
from corral.bridges.peers import Peers
from corral.bridges.peers_redis import RedisPeers
from corral.bridges.web.request_filter import FORWARDED
from corral.calls.tokens import ExecutionTokens, Key, KeyRing
from corral.errors import ConfigError
from corral.types import Endpoint
from tests.bridges.http.serving import NO_TLS
from tests.bridges.peer_host import SECRET
from tests.ports import held_port
from tests.testing import test_bridge_suite
from tests.testing.test_bridge_suite import served
from tests.testing.wire import WIRE, rest_in_matrix
from tests.until import until_sync

pytestmark = pytest.mark.anyio
HEADER = FORWARDED.decode()
LEASE_SECONDS = 1.0
in_matrix = pytest.mark.matrix(
    "over HTTP the gate forwards the same calls; over this protocol the same code forwards them"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Host:
    """A host in a process of its own."""

    def __init__(self, name: str, port: int, **settings: Any) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        settings = {"lease_seconds": LEASE_SECONDS, **settings, "name": name, "port": port, "url": f"{self.url}/bridge"}
        command = [sys.executable, "-m", "tests.bridges.peer_host", json.dumps(settings)]
        self.process = subprocess.Popen(command, env={**os.environ, "TOOL_BRIDGE_SECRET": SECRET})
        self._http = httpx.Client(base_url=self.url, trust_env=False, verify=NO_TLS, timeout=60)

    def listens(self) -> bool:
        assert self.process.poll() is None
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def make(self, user: str = "ada") -> dict[str, str]:
        """Opens an execution; returns its `id` and `token`."""
        return self._http.get(f"/make/{user}").raise_for_status().json()

    def run(self, source: str, user: str = "ada") -> tuple[int, Any]:
        """Runs a program in Python in the user's session."""
        answer = self._http.post(f"/run/{user}", content=source)
        return answer.status_code, answer.json()

    def end(self, execution: str) -> None:
        self._http.get(f"/end/{execution}").raise_for_status()

    def call(self, token: str | None, tool: str = "where", **headers: str) -> httpx.Response:
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return self._http.post(f"/bridge/tools/{tool}", json={}, headers=headers)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._http.close()


@contextmanager
def hosts(*names: str, **settings: Any) -> Generator[list[Host]]:
    """Hosts with these names, once they listen."""
    with ExitStack() as stack:
        ports = [stack.enter_context(held_port()) for _ in names]
        running: list[Host] = []
        for name, port in zip(names, ports, strict=True):
            running.append(Host(name, port, **settings))
            stack.callback(running[-1].close)
        for host in running:
            until_sync(host.listens)
        yield running


@pytest.fixture(scope="module")
def trio(redis_url: str) -> Iterator[list[Host]]:
    with hosts("a", "b", "c", redis=redis_url) as running:
        yield running


@pytest.fixture
def pair(trio: list[Host]) -> list[Host]:
    return trio[:2]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# --- two hosts that find each other


def test_a_token_works_at_every_host_and_its_call_runs_where_it_was_issued(pair: list[Host]) -> None:
    for issuer, name in zip(pair, "ab", strict=True):
        execution = issuer.make()
        for host in pair:
            answer = host.call(execution["token"])
            assert (answer.status_code, answer.json()) == (200, name)


def test_forged_foreign_and_expired_tokens_are_refused_where_they_arrive(pair: list[Host]) -> None:
    context = ExecutionContext(user_id="ada")
    behind = KeyRing(Key("environment", SECRET), clock=lambda: time.time() - 10)
    expired = ExecutionTokens(behind).issue("execution-1", context, ttl_seconds=1, host="a")
    foreign = ExecutionTokens(KeyRing(Key("environment", "x" * 32))).issue("execution-1", context, host="a")
    unknown = ExecutionTokens(KeyRing(Key("environment", SECRET))).issue("execution-1", context, host="nobody")
    token = pair[0].make()["token"]
    signed, signature = token.rsplit(".", 1)
    for wrong in (None, "x", f"{signed}.{signature[::-1]}", expired, foreign, unknown):
        assert code_of(pair[1].call(wrong)) == (401, "invalid_token")


def test_an_execution_that_has_ended_is_refused_by_every_host_at_once(pair: list[Host]) -> None:
    execution = pair[0].make()
    assert pair[1].call(execution["token"]).status_code == 200
    pair[0].end(execution["id"])
    assert [code_of(host.call(execution["token"])) for host in pair] == [(401, "invalid_token")] * 2


def test_a_client_that_sends_the_forwarding_header_itself_is_refused(pair: list[Host]) -> None:
    token = pair[0].make()["token"]
    now = int(time.time() * 1000)
    for proof in ("1", "", f"1 b {now} {'0' * 64}", f"1 a {now} {'f' * 64}", "1 b 99999999999999999999 " + "0" * 64):
        for host in pair:
            assert code_of(host.call(token, **{HEADER: proof})) == (403, "access_denied")


def test_a_forwarded_request_is_not_forwarded_again_and_its_proof_fits_no_other_request(pair: list[Host]) -> None:
    a, b = pair
    token, other = a.make()["token"], a.make()["token"]

    def proof_of(sender: str, receiver: str, token: str, path: str = "/tools/where") -> str:
        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope: dict[str, Any] = {"method": "POST", "path": path, "headers": headers}
        return dict(Peers(sender, {receiver: a.url}, secret=SECRET)._headers(receiver, scope))[FORWARDED].decode()

    assert a.call(token, **{HEADER: proof_of("b", "a", token)}).json() == "a"
    # The execution is a's, and b was told that a peer has forwarded the request already.
    assert code_of(b.call(token, **{HEADER: proof_of("a", "b", token)})) == (401, "invalid_token")
    for wrong in (proof_of("b", "a", other), proof_of("b", "a", token, "/tools/wait"), proof_of("a", "b", token)):
        assert code_of(a.call(token, **{HEADER: wrong})) == (403, "access_denied")


def test_a_killed_host_is_lost_at_once_and_unknown_after_its_lease(trio: list[Host]) -> None:
    _, other, lost = trio
    token = lost.make()["token"]
    assert other.call(token).json() == "c"
    lost.kill()
    assert code_of(other.call(token)) == (502, "host_lost")
    until_sync(lambda: other.call(token).status_code != 502)
    assert code_of(other.call(token)) == (401, "invalid_token")


@pytest.mark.matrix("test_a_lease_ends_with_its_last_use_and_is_lost_with_the_data_of_redis: here its host is killed")
def test_the_session_of_a_killed_host_is_taken_over_once_its_lease_has_ended(redis_url: str, tmp_path: Path) -> None:
    waits = tmp_path / "waits"
    settings = {"redis": redis_url, "store": str(tmp_path / "files"), "waits": str(waits), "bridge": "pipe"}
    settings |= {"lease_seconds": 5.0}
    with hosts("first", "second", **settings) as [first, second], ThreadPoolExecutor(1) as thread:
        assert first.run("open('a.txt', 'w').write('stored')") == (200, 6)
        assert second.run("open('a.txt').read()") == (409, "session_elsewhere")
        assert second.run("1", "bob") == (200, 1), "another session"
        unfinished = thread.submit(first.run, "open('b.txt', 'w').write('x'); await tools.wait()")
        until_sync(waits.exists)
        first.kill()
        with pytest.raises(httpx.TransportError):
            unfinished.result()
        assert second.run("open('a.txt').read()") == (409, "session_elsewhere"), "it may still write"
        until_sync(lambda: second.run("1") == (200, 1))
        assert second.run("import os\n[open('a.txt').read(), sorted(os.listdir())]") == (200, ["stored", ["a.txt"]])


# --- fixed peers


async def test_a_peer_that_leads_back_to_the_same_host_ends_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", SECRET)
    token = ExecutionTokens().issue("execution-1", ExecutionContext(user_id="ada"), host="b")
    apps: list[ASGIApp] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[0](scope, receive, send)

    async with served(app) as port, httpx.AsyncClient(verify=NO_TLS) as http:
        corral = Corral(bridge="http", peers=Peers("a", {"b": f"http://127.0.0.1:{port}"}), check=False)
        apps.append(corral.remote.asgi_app())
        url, headers = f"http://127.0.0.1:{port}/tools/where", {"authorization": f"Bearer {token}"}
        assert code_of(await http.post(url, json={}, headers=headers)) == (403, "access_denied")
        await corral.aclose()


async def test_a_request_goes_to_no_address_but_that_of_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", SECRET)
    seen: list[dict[str, str]] = []

    async def peer(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen.append({"path": scope["path"], "query": scope["query_string"].decode(), **headers})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})

    async with served(peer) as port:
        corral = Corral(bridge="http", peers=Peers("a", {"b": f"http://127.0.0.1:{port}/mount"}), check=False)
        token = ExecutionTokens().issue("execution-1", ExecutionContext(user_id="ada"), host="b")
        async with served(corral.remote.asgi_app()) as own, httpx.AsyncClient(verify=NO_TLS) as http:
            hostile = {
                "host": "localhost:1",
                "x-forwarded-host": "evil.example",
                "connection": "x-secret",
                "x-secret": "1",
                "authorization": f"Bearer {token}",
            }
            url = f"http://127.0.0.1:{own}/tools/%2e%2e@evil.example:1?to=http://evil.example"
            assert (await http.post(url, json={}, headers=hostile)).json() == 1
        await corral.aclose()
    [request] = seen
    assert request["host"] == f"127.0.0.1:{port}"
    assert request["path"] == "/mount/tools/..@evil.example:1"
    assert request["query"] == "to=http://evil.example"
    assert "x-secret" not in request
    assert request[HEADER].startswith("1 a ")


async def test_a_client_that_leaves_ends_the_forwarded_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", SECRET)
    came, left = anyio.Event(), anyio.Event()

    async def peer(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        came.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async with served(peer) as port:
        corral = Corral(bridge="http", peers=Peers("a", {"b": f"http://127.0.0.1:{port}"}), check=False)
        token = ExecutionTokens().issue("execution-1", ExecutionContext(user_id="ada"), host="b")
        async with served(corral.remote.asgi_app()) as own, httpx.AsyncClient(verify=NO_TLS) as http:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    url, headers = f"http://127.0.0.1:{own}/tools/where", {"authorization": f"Bearer {token}"}
                    tasks.start_soon(lambda: http.post(url, json={}, headers=headers, timeout=60))
                    await came.wait()
                    tasks.cancel_scope.cancel()
                await left.wait()
        await corral.aclose()


async def test_a_client_that_leaves_before_the_answer_to_a_get_ends_the_forwarded_request() -> None:
    came, left = anyio.Event(), anyio.Event()

    async def peer(scope: Any, receive: Any, send: Any) -> None:
        came.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    received = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        await came.wait()
        return next(received)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    async with served(peer) as port:
        peers = Peers("a", {"b": f"http://127.0.0.1:{port}"}, secret=SECRET)
        with anyio.fail_after(60):
            await peers.forward("b", {"method": "GET", "path": "/document", "headers": []}, receive, send)
            await left.wait()
        await peers.aclose()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "a b"}, "the host name 'a b' must have"),
        ({"urls": {"b": "ftp://x"}}, "the URL of the host 'b' must be like"),
        ({"urls": {"b": "http://user@x"}}, "the URL of the host 'b' must be like"),
        ({"urls": {"b": "http://x:99999"}}, "the URL of the host 'b' must be like"),
        ({"secret": "short"}, "under 32 bytes"),
        ({"secret": None}, "is missing"),
    ],
)
def test_wrong_peers_are_refused_with_a_reason(
    options: Mapping[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOL_BRIDGE_SECRET", raising=False)
    with pytest.raises(ConfigError, match=reason):
        Peers(**cast("Any", {"name": "a", "urls": {}, "secret": SECRET, **options}))


def test_peers_without_a_key_that_they_share_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOL_BRIDGE_SECRET", raising=False)
    for tokens in (None, ExecutionTokens(), ExecutionTokens(KeyRing.generate())):
        with pytest.raises(ConfigError, match="needs a token key that all hosts share"):
            Corral(peers=Peers("a", {}, secret=SECRET), tokens=tokens)
    Corral(peers=Peers("a", {}, secret=SECRET), tokens=ExecutionTokens(KeyRing(Key("one", SECRET))))


async def test_two_processes_cannot_be_the_same_host(redis_url: str) -> None:
    urls = "http://127.0.0.1:1", "http://127.0.0.1:2"
    first, second = (RedisPeers("same", url, redis_url, secret=SECRET, lease_seconds=0.5) for url in urls)
    await first.open()
    try:
        with pytest.raises(ConfigError, match="another process is the host 'same', at http://"):
            await second.open()
    finally:
        await first.aclose()
    await second.aclose()
    await second.open()
    await second.aclose()


async def test_one_of_many_requests_looks_for_an_unknown_host_while_redis_does_not_answer(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link = Path(redis_url.removeprefix("unix://")).with_name("link")
    link.symlink_to("valkey.sock")
    client = Redis.from_url(f"unix://{link}")  # pyright: ignore[reportUnknownMemberType]
    peers = RedisPeers("cut", "http://127.0.0.1:1", client, secret=SECRET, lease_seconds=0.5)
    await peers.open()
    link.unlink()
    await client.connection_pool.disconnect()
    monkeypatch.setattr(peers_redis, "_LOOK_SECONDS", 60.0)
    peers._looked = 0.0
    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await peers.knows("nobody"))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    await peers.aclose()
    await client.aclose()
    assert answers == [False] * 10
    assert len([each for each in caplog.messages if "the host 'nobody' is not known" in each]) == 1


# --- the suites of bridges, behind a balancer with two hosts: this process, and one that forwards to it


@asynccontextmanager
async def balanced(*ports: int) -> AsyncGenerator[int]:
    """A balancer that gives each connection to the next port."""
    turns = cycle(ports)
    tasks = set[asyncio.Task[None]]()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        tasks.add(own)
        to_host = await asyncio.open_connection("127.0.0.1", next(turns))
        try:
            await asyncio.gather(relay(reader, to_host[1]), relay(to_host[0], writer))
        except asyncio.CancelledError:
            pass  # the end of the balancer
        finally:
            to_host[1].close()
            writer.close()
            tasks.discard(own)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Behind:
    """Each connection of a guest arrives at another host than the one before; the first, at the one that forwards."""

    bridge: type[BridgeProtocol]
    path: str
    peers = Peers("world", {}, secret=SECRET)
    token_key = SECRET.encode()
    port: int
    """Port at which the other host expects this one."""
    others_port: int
    serving: BridgeHost | None = None

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _other(cls) -> Generator[None]:
        with held_port() as port:
            cls.port = port
            urls = {"world": f"http://127.0.0.1:{port}/bridge"}
            with hosts("other", bridge=cls.bridge.name, urls=urls) as [other]:
                cls.others_port = other.port
                yield

    @asynccontextmanager
    async def url(self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint) -> AsyncGenerator[str]:
        async with AsyncExitStack() as stack:
            if self.serving is not host:  # else a second guest of the same world
                app = Starlette(routes=[Mount("/bridge", protocol.asgi_app(host))])
                await stack.enter_async_context(served(app, self.port))
                stack.callback(setattr, self, "serving", None)
                self.serving = host
            port = await stack.enter_async_context(balanced(self.others_port, self.port))
            yield f"http://127.0.0.1:{port}/bridge{self.path}"

    test_a_token_opens_nothing_after_its_time_and_a_renewed_one_does = None
    """It moves the clock of one host only, by more than two hosts' clocks may differ."""


class TestHttpBehindABalancer(Behind, test_bridge_suite.TestHttp):
    pass


BYTES = {
    "test_values_of_all_kinds_come_back_as_they_went",
    "test_a_message_of_any_characters_arrives_as_it_is",
    "test_items_of_all_kinds_arrive_as_they_are",
    "test_a_stream_that_is_not_read_keeps_its_tool_waiting_and_nobody_else",
}
"""Cases about what a balancer passes on as it is."""
MOVES_A_CLOCK = "test_a_token_opens_nothing_after_its_time_and_a_renewed_one_does"
rest_in_matrix(TestHttpBehindABalancer, gate=(WIRE - BYTES) | {MOVES_A_CLOCK})


@in_matrix
class TestGraphqlBehindABalancer(Behind, test_bridge_suite.TestGraphql):
    pass


@in_matrix
class TestTrpcBehindABalancer(Behind, test_bridge_suite.TestTrpc):
    pass


@in_matrix
class TestConnectBehindABalancer(Behind, test_bridge_suite.TestConnect):
    pass

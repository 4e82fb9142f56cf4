"""What several hosts behind one address do for each other: sessions by name, and decisions on calls that wait."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import httpx
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.routing import Mount

from corral import Approved, Corral, Denied, ExecutionContext, Later, tool
from corral.bridges import ASGIApp
from corral.bridges.peers import Peers, parse_url
from corral.bridges.peers_redis import RedisPeers
from corral.bridges.web.request_filter import FORWARDED, PEER_PATH
from corral.chat import MemoryChats, chat_app
from corral.errors import DecisionDenied, HostLost, SessionElsewhere, StartFailed
from corral.integrations.mcp import ask_client, mcp_server
from corral.running import peer_decisions
from corral.running.recorded import pack_request
from corral.sandboxes.selection import Sandboxes
from corral.sessions import DirectoryStore, Scratch, Sessions
from corral.sessions import Mount as Files
from corral.types import ApprovalRequest
from tests.bridges.http.serving import NO_TLS
from tests.bridges.peer_host import SECRET
from tests.bridges.test_peers import balanced
from tests.chat.conftest import ProgramAgent, parts_of
from tests.ports import held_port
from tests.testing.test_bridge_suite import served
from tests.until import until

pytestmark = pytest.mark.anyio
ADA = ExecutionContext(user_id="ada", organization_id="acme", session_id="report")
WRITE = "open('a.txt', 'w').write('x')"
LIST = "import os\nreturn sorted(os.listdir())"
LEASE_SECONDS = 30.0
"""Longer than the event loop of both hosts can stand still."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", SECRET)


@tool(needs_approval=True)
async def pay(euros: int) -> str:
    """Pays."""
    return f"paid {euros}"


def later(_: ApprovalRequest) -> Later:
    return Later()


@asynccontextmanager
async def hosts(
    redis_url: str,
    *names: str,
    mounted: Callable[[Corral], ASGIApp] | None = None,
    lease_seconds: float = LEASE_SECONDS,
    **options: Any,
) -> AsyncGenerator[list[Corral]]:
    """Hosts in this process, at ports of their own, each with an app beside its bridge."""
    async with AsyncExitStack() as stack:
        corrals: list[Corral] = []
        for name in names:
            port = stack.enter_context(held_port())
            url = f"http://127.0.0.1:{port}/bridge"
            peers = RedisPeers(name, url, redis_url, lease_seconds=lease_seconds, prefix=f"{id(stack)}:")
            settings: dict[str, Any] = {"approve": later, **options}
            corral = Corral([pay], peers=peers, check=False, **settings)
            routes = [Mount("/bridge", corral.remote.asgi_app())]
            app = None if mounted is None else mounted(corral)
            await stack.enter_async_context(
                served(Starlette(routes=routes if app is None else [*routes, Mount("/", app)]), port)
            )
            corrals.append(await stack.enter_async_context(corral))
            if isinstance(app, Starlette):
                await stack.enter_async_context(app.router.lifespan_context(app))
        yield corrals


def peers_of(corral: Corral) -> RedisPeers:
    assert isinstance(corral.peers, RedisPeers)
    return corral.peers


def port_of(corral: Corral) -> int:
    port = urlsplit(peers_of(corral)._own_url).port
    assert port is not None
    return port


def forwarded_by(corral: Corral) -> list[str]:
    """The paths of requests that this host forwards from now on."""
    peers, paths = peers_of(corral), list[str]()
    forward = peers.forward

    async def noted(host: str, scope: Any, receive: Any, send: Any, *, app: str | None = None) -> None:
        paths.append(f"{scope['method']} {scope['path']}")
        await forward(host, scope, receive, send, app=app)

    peers.forward = noted
    return paths


async def run(corral: Corral, source: str, context: ExecutionContext = ADA) -> Any:
    result = await corral.execute(source, language="python", context=context)
    result.raise_for_error()
    return result.value


# --- sessions by name


@pytest.mark.matrix(
    "test_a_lease_ends_with_its_last_use_and_is_lost_with_the_data_of_redis: here with sessions and files"
)
async def test_a_session_is_open_at_one_host_at_a_time(redis_url: str, warm: Sandboxes) -> None:
    async with hosts(redis_url, "a", "b", sandbox=warm, sessions=Sessions()) as [a, b]:
        await run(a, WRITE)
        with pytest.raises(SessionElsewhere, match="the host 'a' has this session open") as caught:
            await run(b, LIST)
        assert (caught.value.code, caught.value.host) == ("session_elsewhere", "a")
        with pytest.raises(SessionElsewhere):
            async with b.session_files(ADA):
                pass
        assert b.unready() is None
        assert await run(b, LIST, ADA.model_copy(update={"user_id": "bob"})) == []
        await a.aclose()
        assert await run(b, LIST) == []


@pytest.mark.matrix(
    "test_a_lease_ends_with_its_last_use_and_is_lost_with_the_data_of_redis: here the host does not renew its lease"
)
async def test_a_host_whose_lease_ends_loses_its_sessions_and_stores_nothing_of_them(
    redis_url: str, warm: Sandboxes, tmp_path: Path
) -> None:
    sessions = Sessions(files=(Files("/workspace", Scratch(store=DirectoryStore(tmp_path))),))
    async with hosts(redis_url, "a", "b", sandbox=warm, sessions=sessions, lease_seconds=2.0) as [a, b]:
        await run(a, WRITE)
        lease = await peers_of(a).hold(ADA, lambda: None)
        async with a.start(
            "open('b.txt', 'w').write('x'); await tools.pay(euros=1)", language="python", context=ADA
        ) as late:
            await until(lambda: a._runtime.parked.requests())
            await stop_renewing(a)
            assert a._kept_sessions is not None
            [kept] = a._kept_sessions._kept.values()
            session = kept.value
            assert session is not None
            await until(lambda: not peers_of(a).is_joined)
            assert not lease.is_held
            peers_of(a)._lose_claims()
            assert (await late.result()).status == "cancelled"
            await until(lambda: session.closed)

        async def opened() -> list[str] | None:
            try:
                return await run(b, LIST)
            except SessionElsewhere:
                return None

        while (files := await opened()) is None:
            await anyio.lowlevel.checkpoint()
        assert files == ["a.txt"], "b.txt was written after the lease"
        with pytest.raises(SessionElsewhere, match="the host 'b' has"):
            await run(a, LIST)
        with pytest.raises(StartFailed, match="lease has ended"):
            await run(a, LIST, ADA.model_copy(update={"session_id": "other"}))
        await lease.release()


async def stop_renewing(corral: Corral) -> None:
    renewing = peers_of(corral)._renewing
    assert renewing is not None
    renewing.cancel()
    await asyncio.wait([renewing])


async def test_a_lease_ends_with_its_last_use_and_is_lost_with_the_data_of_redis(redis_url: str) -> None:
    async with hosts(redis_url, "a", "b") as [a, b]:
        lost: list[str] = []
        one, other = [await peers_of(a).hold(ADA, lambda: lost.append("one")) for _ in range(2)]
        assert await peers_of(b).holder(ADA) == "a"
        assert await peers_of(a).holder(ADA) is None
        await one.release()
        await one.release()
        assert not one.is_held
        assert other.is_held
        with pytest.raises(SessionElsewhere):
            await peers_of(b).hold(ADA, lambda: None)
        client = peers_of(a)._client
        assert client is not None
        await client.delete(*peers_of(a)._keys)
        await peers_of(a)._renew()
        assert lost == ["one"]
        assert not other.is_held
        await other.release()
        [name] = peers_of(a)._unreleased
        await peers_of(a)._free(name)
        assert not peers_of(a)._unreleased
        await peers_of(b)._renew()  # the data of Redis had its lease too
        await (await peers_of(b).hold(ADA, lambda: None)).release()
        assert await peers_of(a).holder(ADA) is None


async def test_what_a_cancelled_release_leaves_is_freed_with_the_next_renewal(redis_url: str) -> None:
    async with hosts(redis_url, "a", "b") as [a, b]:
        peers = peers_of(a)
        evaluate = peers._eval
        asks = asyncio.Event()

        async def hang(script: str, *arguments: str) -> Any:
            asks.set()
            await asyncio.sleep(math.inf)

        async def cancel(call: Coroutine[Any, Any, object]) -> None:
            asks.clear()
            task = asyncio.create_task(call)
            await asks.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        lease = await peers.hold(ADA, lambda: None)
        peers._eval = hang
        await cancel(lease.release())
        [name] = peers._unreleased
        await cancel(peers._free(name))
        await cancel(peers.hold(ADA.model_copy(update={"session_id": "other"}), lambda: None))
        assert not peers._claims
        assert len(peers._unreleased) == 2
        peers._lease_seconds = 0.1
        with anyio.fail_after(60):  # a release that hangs does not delay the next renewal for longer than a moment
            await peers._free_unreleased()
        assert len(peers._unreleased) == 2
        peers._lease_seconds, peers._eval = LEASE_SECONDS, evaluate
        await peers._free_unreleased()
        assert not peers._unreleased
        await (await peers_of(b).hold(ADA, lambda: None)).release()


async def test_a_hold_that_is_cancelled_behind_the_last_release_leaves_nothing_held(redis_url: str) -> None:
    async with hosts(redis_url, "a", "b") as [a, b]:
        peers = peers_of(a)
        lease = await peers.hold(ADA, lambda: None)
        [claim] = peers._claims.values()
        await claim.changing.acquire()
        releasing = asyncio.create_task(lease.release())
        await anyio.lowlevel.checkpoint()
        holding = asyncio.create_task(peers.hold(ADA, lambda: None))
        await anyio.lowlevel.checkpoint()
        claim.changing.release()
        holding.cancel()
        await releasing
        with pytest.raises(asyncio.CancelledError):
            await holding
        await peers._free_unreleased()
        await (await peers_of(b).hold(ADA, lambda: None)).release()


@pytest.mark.matrix("test_a_session_is_open_at_one_host_at_a_time: here closing it fails")
async def test_a_session_that_cannot_be_closed_is_free_for_other_hosts(redis_url: str, warm: Sandboxes) -> None:
    async def fail() -> None:
        raise OSError("the disk is gone")

    async with hosts(redis_url, "a", "b", sandbox=warm, sessions=Sessions()) as [a, b]:
        async with a.session_files(ADA):
            pass
        assert a._kept_sessions is not None
        [kept] = a._kept_sessions._kept.values()
        session = kept.value
        assert session is not None
        session.on_close.append(fail)
        with pytest.raises(OSError, match="the disk is gone"):
            await a._kept_sessions.close_of(ADA)
        assert await peers_of(b).holder(ADA) is None
        await session._space.aclose()


@pytest.mark.matrix(
    "test_a_token_works_at_every_host_and_its_call_runs_where_it_was_issued: here many renewals at once"
)
async def test_no_older_answer_of_redis_follows_a_newer_one(redis_url: str) -> None:
    async with hosts(redis_url, "a", "b") as [a, _]:
        peers = peers_of(a)
        running, most = 0, 0
        evaluate = peers._eval

        async def counted(script: str, *arguments: str) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await evaluate(script, *arguments)
            finally:
                running -= 1

        peers._eval = counted
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                peers._looked = 0.0
                tasks.start_soon(peers.knows, f"nobody-{number}")
                tasks.start_soon(peers._renew)
        assert most == 1
        assert await peers.knows("b")


# --- decisions


@asynccontextmanager
async def waiting_at(corral: Corral, user: str = "ada") -> AsyncGenerator[tuple[str, Callable[[], Any]]]:
    """A call that waits for a decision at this host. Yields its execution and a function that returns its answer."""
    context = ExecutionContext(user_id=user, organization_id="acme", metadata={"x": 1}, scopes={"s"})
    with corral.remote.grant(context) as execution:
        url, headers = peers_of(corral)._own_url, {"authorization": f"Bearer {execution.token()}"}
        answers: list[Any] = []

        async def call() -> None:
            async with httpx.AsyncClient(verify=NO_TLS, timeout=60) as http:
                answers.append((await http.post(f"{url}/tools/pay", json={"euros": 5}, headers=headers)).json())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(
                lambda: execution.execution_id in {each.execution_id for each in corral._runtime.parked.requests()}
            )

            async def answer() -> Any:
                await until(lambda: answers)
                return answers[0]

            yield execution.execution_id, answer


async def test_a_call_is_decided_at_any_host(redis_url: str) -> None:
    async with hosts(redis_url, "a", "b", "c") as [a, b, _], waiting_at(a) as (name, answer):
        [pending] = await b.executions.waiting(user_id="ada")
        [call] = pending.calls
        assert (pending.execution_id, pending.context.metadata, call.tool, call.input) == (
            name,
            {"x": 1},
            "pay",
            {"euros": 5},
        )
        assert await b.executions.waiting(user_id="bob") == ()
        assert await b.executions.settle(name, {call.sequence + 1: Approved()}) == frozenset()
        other = {call.sequence: "0" * len(call.digest)}
        assert await b.executions.settle(name, {call.sequence: Approved()}, digests=other) == frozenset()
        digests = {call.sequence: call.digest}
        assert await b.executions.settle(name, {call.sequence: Approved()}, by="bob", digests=digests) == {1}
        assert await answer() == "paid 5"
        assert await b.executions.settle(name, {call.sequence: Denied("late")}) == frozenset()
        assert await b.executions.waiting() == ()


@pytest.mark.matrix("test_a_call_is_decided_at_any_host: here with more calls than one answer holds")
async def test_calls_of_others_do_not_hide_those_of_a_user_at_another_host(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hosts(redis_url, "a", "b") as [a, b], waiting_at(a, "ada") as (_, ada), waiting_at(a, "bob") as (_, bob):
        first, _ = a._runtime.parked.requests()
        monkeypatch.setattr(peer_decisions, "_MOST_BYTES", 1.5 * len(pack_request(first, b"")))
        assert [each.context.user_id for each in await b.executions.waiting()] == ["ada"]
        for user in ("bob", "ada"):
            [pending] = await b.executions.waiting(user_id=user, organization_id="acme")
            assert await b.executions.settle(pending.execution_id, {1: Approved()}) == {1}
        assert [await ada(), await bob()] == ["paid 5", "paid 5"]


@pytest.mark.matrix("test_a_call_is_decided_at_any_host: here with a rule of who may decide")
async def test_the_host_of_a_call_says_who_may_decide(redis_url: str) -> None:
    def may_decide(call: ApprovalRequest, person: ExecutionContext) -> bool:
        return person.user_id != call.context.user_id and "approve" in person.scopes

    async with hosts(redis_url, "a", "b", may_decide=may_decide) as [a, b], waiting_at(a) as (name, answer):
        for person in (ADA, ExecutionContext(user_id="bob")):
            with pytest.raises(DecisionDenied, match="may not decide"):
                await b.executions.settle(name, {1: Approved()}, by=person)
        bob = ExecutionContext(user_id="bob", scopes={"approve"})
        assert await b.executions.settle(name, {1: Denied("too much")}, by=bob) == {1}
        assert "too much" in str(await answer())


async def test_a_decision_says_when_a_host_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with held_port() as port:
        corral = Corral(peers=Peers("a", {"b": f"http://127.0.0.1:{port}"}), check=False)
        with pytest.raises(HostLost, match="the host 'b' does not answer"):
            await corral.executions.settle("execution-1", {1: Approved()})
        assert await corral.executions.waiting() == ()
        await corral.aclose()
    assert "calls that wait at another host are not listed: the host 'b' does not answer" in caplog.text


@pytest.mark.matrix("test_a_client_that_sends_the_forwarding_header_itself_is_refused: here for messages among hosts")
async def test_messages_among_hosts_need_the_proof_of_a_peer_and_their_own_body(redis_url: str) -> None:
    async with (
        hosts(redis_url, "a", "b") as [a, b],
        waiting_at(a) as (name, answer),
        httpx.AsyncClient(verify=NO_TLS) as http,
    ):
        path, everyone = f"{PEER_PATH}messages/decisions/waiting", b"[null, null]"
        url, token = peers_of(a)._own_url, a.remote.token(ADA)

        async def status(headers: Mapping[str, str], body: bytes = everyone, path: str = path) -> int:
            return (await http.post(url + path, headers=headers, content=body)).status_code

        def proof(digest: str, path: str = path) -> dict[str, str]:
            scope = {"method": "POST", "path": path, "headers": [(b"authorization", digest.encode())]}
            return {
                "authorization": digest,
                FORWARDED.decode(): dict(peers_of(b)._headers("a", scope))[FORWARDED].decode(),
            }

        digest = f"Digest {sha256(everyone).hexdigest()}"
        assert await status(proof(digest)) == 200
        assert await status({"authorization": f"Bearer {token}"}) == 404
        assert await status({"authorization": digest}) == 404
        assert await status(proof(digest), b"{}") == 403
        assert await status(proof(f"Digest {sha256(b'{}').hexdigest()}"), b"{}") == 400
        assert await status(proof(f"Bearer {token}")) == 403
        for other in ("messages/decisions/nothing", "messages/nothing/waiting", "nothing/waiting"):
            assert await status(proof(digest, PEER_PATH + other), path=PEER_PATH + other) in (404, 502)
        await b.executions.settle(name, {1: Approved()})
        assert await answer() == "paid 5"


# --- MCP


async def agree(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"approve": True})


def mcp_app(corral: Corral) -> ASGIApp:
    return mcp_server(corral).streamable_http_app()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.matrix("test_a_call_is_decided_at_any_host: here requests of MCP are forwarded")
async def test_mcp_clients_need_no_particular_host(redis_url: str, warm: Sandboxes, mode: str) -> None:
    async with (
        hosts(redis_url, "a", "b", sandbox=warm, approve=ask_client, mounted=mcp_app) as [a, b],
        balanced(port_of(a), port_of(b)) as port,
        httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0), timeout=60) as http,
    ):
        paths = forwarded_by(a), forwarded_by(b)
        url = f"http://127.0.0.1:{port}/mcp"
        async with Client(
            streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=agree
        ) as client:
            assert len((await client.list_tools()).tools) == 3
            for number in range(3):
                result: Any = await client.call_tool(
                    "execute_code", {"code": f"return await tools.pay({{ euros: {number} }})"}
                )
                assert result.structured_content["value"] == f"paid {number}"
        assert paths[0] or paths[1], "each request of the client arrived at the host of its session"


@pytest.mark.matrix("test_a_killed_host_is_lost_at_once_and_unknown_after_its_lease: here sessions of MCP")
async def test_mcp_sessions_of_no_host_are_unknown_and_those_of_a_lost_host_fail(redis_url: str) -> None:
    async with hosts(redis_url, "a", "b", mounted=mcp_app) as [a, b], httpx.AsyncClient(verify=NO_TLS) as http:
        url = f"http://127.0.0.1:{port_of(b)}/mcp"
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for session in ("a.0", "b.0", "nobody.0", "0", "a.", "."):
            answer = await http.post(url, json=request, headers={**headers, "mcp-session-id": session})
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Session not found"), session
        peers_of(b)._urls["a"] = parse_url("a", "http://127.0.0.1:1/bridge")
        answer = await http.post(url, json=request, headers={**headers, "mcp-session-id": "a.0"})
        assert (answer.status_code, answer.json()["jsonrpc"]) == (502, "2.0")
        assert "the host 'a' of this execution does not answer" in answer.json()["error"]["message"]
        assert await a.executions.waiting() == ()


# --- the chat


@pytest.mark.matrix("test_a_call_is_decided_at_any_host: here requests of the chat page are forwarded")
async def test_a_chat_needs_no_particular_host(redis_url: str, warm: Sandboxes) -> None:
    store, agents = MemoryChats(), list[ProgramAgent]()

    def chat(corral: Corral) -> ASGIApp:
        agents.append(ProgramAgent(corral))

        def authenticate(request: Any) -> ExecutionContext | None:
            user = request.headers.get("x-user")
            return None if user is None else ExecutionContext(user_id=user)

        return chat_app(corral, agents[-1], authenticate=authenticate, store=store)

    async with (
        hosts(redis_url, "a", "b", sandbox=warm, sessions=Sessions(), mounted=chat) as [a, b],
        AsyncExitStack() as stack,
    ):
        one, other = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{port_of(each)}", headers={"x-user": "ann"}, verify=NO_TLS, timeout=60
                )
            )
            for each in (a, b)
        ]
        answers: list[httpx.Response] = []

        def message(text: str, number: int) -> dict[str, Any]:
            parts = [{"type": "text", "text": text}]
            return {"id": "talk", "messages": [{"id": f"m{number}", "role": "user", "parts": parts}]}

        async def follow() -> None:
            answers.append(await other.get("/api/chat/talk/stream"))

        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                source = "return await tools.pay({ euros: 5 })"
                answers.append(await one.post("/api/chat", json=message(source, 1)))

            tasks.start_soon(send)
            await until(a._runtime.parked.requests)
            [call] = a._runtime.parked.requests()
            tasks.start_soon(follow)
            assert (await other.get("/api/conversations/talk")).json()["running"]
            assert (await other.post("/api/chat", json=message("return 1", 2))).status_code == 409
            assert (await other.get(f"/api/executions/{call.execution_id}")).json()["status"] == "waiting"
            [listed] = (await other.get("/api/conversations")).json()
            assert listed["waiting"]
            path = f"/api/approvals/{call.execution_id}/{call.sequence}"
            bob = {"x-user": "bob"}
            assert (await other.post(path, json={"approved": True}, headers=bob)).status_code == 409
            assert (await other.get(f"/api/executions/{call.execution_id}", headers=bob)).status_code == 404
            decision = {"approved": True, "digest": call.digest}
            assert (await other.post(path, json=decision)).status_code == 200
        for answer in answers:
            last = [part["data"] for part in parts_of(answer) if part["type"] == "data-execution"][-1]
            assert (last["status"], last["value"]) == ("succeeded", "paid 5")
        # The session of the conversation is open at a, so its programs go there: they share files.
        paths = forwarded_by(b)
        source = "import { writeFileSync } from 'node:fs'; writeFileSync('a.txt', 'text')"
        wrote = parts_of(await one.post("/api/chat", json=message(source, 2)))
        [*_, execution] = [part["data"]["id"] for part in wrote if part["type"] == "data-execution"]
        file = await other.get(f"/api/executions/{execution}/file", params={"path": "/workspace/a.txt"})
        assert (file.status_code, file.text) == (200, "text")
        assert paths == [f"GET /api/executions/{execution}/file"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: other.post("/api/chat", json=message("wait", 3)))
            await agents[0].waits.wait()
            assert (await other.post("/api/chat/talk/stop", json={})).json() == {"stopped": True}
        assert not agents[1].waits.is_set()
        assert (await other.get("/api/chat/talk/stream")).status_code == 204

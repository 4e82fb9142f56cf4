"""The chat server: its stream, approvals, bounds, and who sees what."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from typing_extensions import override

from corral import Corral, ExecutionContext
from corral.calls.rates import MemoryRates
from corral.chat import ChatBounds, ChatTurn, Conversation, MemoryChats, OneTimeLogin, Part, chat_app
from corral.chat import app as chat
from corral.chat.runs import Owner
from corral.errors import ConfigError
from corral.sandboxes import DenoSandbox
from corral.sessions import Sessions
from tests.chat.conftest import HTML, Browser, ProgramAgent, parts_of

pytestmark = pytest.mark.anyio


async def waiting(corral: Corral) -> tuple[str, int]:
    """Returns the call that waits for an approval, as soon as there is one."""
    while not (executions := await corral.executions.waiting()):
        await anyio.lowlevel.checkpoint()
    [request] = executions[0].calls
    return request.execution_id, request.sequence


async def test_a_program_reaches_the_page_as_one_part_with_its_calls(ann: Browser) -> None:
    response = await ann.send('console.log("hi"); return await tools.greet({ name: "Ann" })')
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    parts = parts_of(response)
    assert [parts[0]["type"], parts[-1]["type"]] == ["start", "finish"]
    executions = [part for part in parts if part["type"] == "data-execution"]
    assert len({part["id"] for part in executions}) == 1
    last = executions[-1]["data"]
    assert last["status"] == "succeeded"
    assert last["toolCallId"] == "call-1"
    assert last["value"] == f"Hello Ann{HTML}"
    assert [log[:2] for log in last["logs"]] == [["log", "hi"]]
    [call] = last["calls"]
    assert (call["tool"], call["input"], call["output"]) == ("greet", {"name": "Ann"}, f"Hello Ann{HTML}")
    whole = await ann.get(f"/api/executions/{last['id']}")
    assert whole["calls"][0]["output"] == f"Hello Ann{HTML}"


async def test_a_failure_names_its_line(ann: Browser) -> None:
    parts = parts_of(await ann.send('\nthrow new Error("no such order")'))
    last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
    assert (last["status"], last["error"]["line"], last["error"]["message"]) == ("failed", 2, "no such order")


async def test_calls_of_a_tool_that_was_called_often_are_counted_beside_the_latest(ann: Browser) -> None:
    program = "for (let n = 0; n < 120; n++) await tools.greet({ name: `${n}` }); await tools.greet({}).catch(() => 0)"
    parts = parts_of(await ann.send(program))
    last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
    [group] = last["groups"]
    assert (group["tool"], group["count"], group["failed"], len(last["calls"])) == ("greet", 121, 1, 100)
    assert (sum(group["density"]), len(group["density"])) == (121, 40)
    assert 0 <= group["shortest"] <= group["longest"]
    assert last["calls"][-1]["started"] < group["seconds"] * 40
    assert last["question"] == program[:300]


@pytest.mark.parametrize(("approved", "outcome"), [(True, "succeeded"), (False, "failed")])
async def test_an_approval_waits_for_one_click(
    ann: Browser, bob: Browser, corral: Corral, approved: bool, outcome: str
) -> None:
    answered: list[httpx.Response] = []
    execution = ""

    async def send() -> None:
        answered.append(await ann.send('return await tools.pay({ euros: 3, password: "hunter2" })'))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        execution, sequence = await waiting(corral)
        url = f"/api/approvals/{execution}/{sequence}"
        decision = {"approved": approved, "reason": "" if approved else "too much"}
        assert (await bob.client.post(url, json=decision)).status_code == 409
        assert await bob.get("/api/conversations") == []
        assert (await bob.client.get(f"/api/executions/{execution}")).status_code == 404
        [listed] = await ann.get("/api/conversations")
        assert (listed["running"], listed["waiting"]) == (True, True)
        refused = await ann.send("return 1", id="other")
        assert (refused.status_code, refused.json()["error"].partition(";")[0]) == (
            429,
            "1 conversation waits for your approval",
        )
        asked = (await ann.get(f"/api/executions/{execution}"))["calls"][0]["approval"]
        assert (asked["state"], asked["input"]["euros"]) == ("waiting", 3)
        as_text = {"content-type": "text/plain"}
        assert (await ann.client.post(url, content='{"approved": true}', headers=as_text)).status_code == 415
        for digest, status in ((None, 422 if approved else 200), ("0" * 16, 409), (asked["digest"], 200)):
            if digest is not None or approved:
                assert (await ann.client.post(url, json={**decision, "digest": digest})).status_code == status
        assert (await ann.client.post(url, json={**decision, "digest": asked["digest"]})).status_code == 409
    last = [part["data"] for part in parts_of(answered[0]) if part["type"] == "data-execution"][-1]
    assert last["status"] == outcome
    assert last["calls"][0]["approval"]["by"] == "ann"
    assert last["calls"][0]["approval"]["state"] == ("approved" if approved else "denied")
    stored = await ann.client.get(f"/api/executions/{execution}")
    assert "hunter2" not in str(stored.json()["calls"])


async def test_a_reply_outlives_its_connection_and_is_resumed(ann: Browser, bob: Browser, corral: Corral) -> None:
    assert (await ann.client.get("/api/chat/talk/stream")).status_code == 204
    execution, sequence = "", 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ann.send, "return await tools.pay({ euros: 5 })")
        execution, sequence = await waiting(corral)
        tasks.cancel_scope.cancel()  # the connection is gone
    about = await ann.get("/api/conversations/talk")
    assert about["running"]
    assert [each["role"] for each in about["messages"]] == ["user"]
    assert (await bob.client.get("/api/chat/talk/stream")).status_code == 204
    assert (await bob.client.get("/api/conversations/talk")).status_code == 404
    assert await bob.get("/api/conversations") == []
    resumed: list[httpx.Response] = []

    async def resume(joined: anyio.Event) -> None:
        async def tell(scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                joined.set()
                await send(message)

            await ann.app(scope, receive, sent)

        resumed.append(await Browser(tell, "ann").client.get("/api/chat/talk/stream"))

    async with anyio.create_task_group() as tasks:
        joined = anyio.Event()
        tasks.start_soon(resume, joined)
        await joined.wait()
        [call] = (await ann.get(f"/api/executions/{execution}"))["calls"]
        decision = {"approved": True, "digest": call["approval"]["digest"]}
        await ann.client.post(f"/api/approvals/{execution}/{sequence}", json=decision)
    kinds = [part["type"] for part in parts_of(resumed[0])]
    assert kinds[0] == "start"
    assert {"tool-input-available", "data-execution", "tool-output-available"} <= {*kinds}
    about = await ann.get("/api/conversations/talk")
    assert [each["role"] for each in about["messages"]] == ["user", "assistant"]


async def test_stop_and_edit_and_bounds(ann: Browser, agent: ProgramAgent) -> None:
    answered: list[httpx.Response] = []

    async def send() -> None:
        answered.append(await ann.send("wait"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await agent.waits.wait()
        assert (await ann.send("return 1")).status_code == 409
        assert (await ann.send("return 1", id="other")).status_code == 429
        assert (await ann.client.delete("/api/conversations/talk")).status_code == 409
        assert (await ann.client.post("/api/chat/talk/stop")).json() == {"stopped": True}
    assert parts_of(answered[0])[-1]["type"] == "abort"
    assert (await ann.get("/api/conversations/talk"))["messages"][-1]["parts"][0]["text"] == "waiting"
    parts_of(await ann.send("return 2"))  # the same message, edited
    [asked, answer] = (await ann.get("/api/conversations/talk"))["messages"]
    assert asked["parts"] == [{"type": "text", "text": "return 2"}]
    assert answer["parts"][-1]["data"]["value"] == 2
    parts_of(await ann.send("return 3", message="m2"))
    assert (await ann.send("return 4", message="m3")).status_code == 422
    assert (await ann.send("x" * 1_001, id="new")).status_code == 413
    assert (await ann.send("x" * 6_000, id="new")).status_code == 413
    assert (await ann.send(" ", id="new")).status_code == 422
    assert (await ann.send("return 1", id="../etc")).status_code == 422
    assert (await ann.client.delete("/api/conversations/talk")).status_code == 204
    assert await ann.get("/api/conversations") == []


class SlowChats(MemoryChats):
    """Answers the first load when told to, and carries out the first save last, as threads or connections may."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded, self.answers = anyio.Event(), anyio.Event()
        self._saves = 0
        self.holds = False

    @override
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        found = await super().load(owner, conversation_id)
        if self.holds:
            self.holds = False
            self.loaded.set()
            await self.answers.wait()
        return found

    @override
    async def save(self, owner: Owner, conversation: Conversation) -> None:
        self._saves += 1
        given = replace(conversation, messages=[*conversation.messages])
        if self._saves == 1:
            for _ in range(100):  # turns of the loop, in which a second save would be through
                await anyio.lowlevel.checkpoint()
        await super().save(owner, given)


async def test_a_reply_is_stored_once_it_is_over_and_who_loads_meanwhile_sees_it(
    corral: Corral, agent: ProgramAgent
) -> None:
    store = SlowChats()
    ann = Browser(chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"), store=store), "ann")
    parts_of(await ann.send("fail"))  # at once
    assert [each["role"] for each in (await ann.get("/api/conversations/talk"))["messages"]] == ["user", "assistant"]
    seen: list[Any] = []

    async def look() -> None:
        seen.append(await ann.get("/api/conversations/talk"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ann.send, "wait")
        await agent.waits.wait()
        store.holds = True
        tasks.start_soon(look)
        await store.loaded.wait()
        await ann.client.post("/api/chat/talk/stop")
        while (await ann.get("/api/conversations/talk"))["running"]:
            await anyio.lowlevel.checkpoint()
        store.answers.set()
    assert (seen[0]["running"], [each["role"] for each in seen[0]["messages"]]) == (False, ["user", "assistant"])


class HeldChats(MemoryChats):
    """Holds up loads and saves while told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on, self.held = anyio.Event(), anyio.Event()
        self.goes_on.set()

    @override
    async def load(self, owner: Owner, conversation_id: str) -> Conversation | None:
        await self._go_on()
        return await super().load(owner, conversation_id)

    @override
    async def save(self, owner: Owner, conversation: Conversation) -> None:
        await self._go_on()
        await super().save(owner, replace(conversation, messages=[*conversation.messages]))

    async def _go_on(self) -> None:
        self.held.set()
        await self.goes_on.wait()

    def hold(self) -> None:
        self.goes_on, self.held = anyio.Event(), anyio.Event()


OWNER = Owner(None, "ann")


class Turns:
    """Replies of one user that end when told to."""

    def __init__(self) -> None:
        self.begun, self.ends = anyio.Event(), anyio.Event()

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        self.begun.set()
        await self.ends.wait()
        yield {"type": "text-start", "id": "0"}
        yield {"type": "text-delta", "id": "0", "delta": "said"}


async def roles(store: MemoryChats) -> list[str]:
    found = await store.load(OWNER, "talk")
    assert found is not None
    return [each["role"] for each in found.messages]


async def test_who_stops_a_reply_that_is_being_stored_does_not_lose_it(corral: Corral) -> None:
    store, turns = HeldChats(), Turns()
    ann = Browser(chat_app(corral, turns, authenticate=lambda _: ExecutionContext(user_id="ann"), store=store), "ann")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ann.send, "say something")
        await turns.begun.wait()
        store.hold()
        turns.ends.set()
        await store.held.wait()
        for _ in range(2):  # the second finds that it is still in progress
            assert (await ann.client.post("/api/chat/talk/stop")).json() == {"stopped": True}
            await anyio.wait_all_tasks_blocked()
        store.goes_on.set()
    assert await roles(store) == ["user", "assistant"]


async def test_the_end_of_the_server_waits_for_a_reply_that_is_being_stored(corral: Corral) -> None:
    store, turns = HeldChats(), Turns()
    app: Any = chat_app(corral, turns, authenticate=lambda _: ExecutionContext(user_id="ann"), store=store)
    ann = Browser(app, "ann")
    inbox, sent = anyio.create_memory_object_stream[dict[str, str]](2)
    started = anyio.Event()

    async def send(_message: object) -> None:
        started.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, {"type": "lifespan", "asgi": {"version": "3.0"}}, sent.receive, send)
        await inbox.send({"type": "lifespan.startup"})
        await started.wait()
        tasks.start_soon(ann.send, "say something")
        await turns.begun.wait()
        store.hold()
        turns.ends.set()
        await store.held.wait()
        ends = started = anyio.Event()
        await inbox.send({"type": "lifespan.shutdown"})
        await anyio.wait_all_tasks_blocked()
        assert not ends.is_set()
        store.goes_on.set()
    assert await roles(store) == ["user", "assistant"]
    inbox.close()
    sent.close()


async def test_messages_that_come_at_once_begin_no_more_replies_than_there_may_be(corral: Corral) -> None:
    store, turns = HeldChats(), Turns()
    bounds = ChatBounds(replies=1)
    app = chat_app(corral, turns, authenticate=lambda _: ExecutionContext(user_id="ann"), store=store, bounds=bounds)
    ann = Browser(app, "ann")
    answers: list[int] = []

    async def send(conversation: str) -> None:
        answers.append((await ann.send("say something", id=conversation)).status_code)

    store.hold()
    async with anyio.create_task_group() as tasks:
        for conversation in ("one", "two"):
            tasks.start_soon(send, conversation)
        await anyio.wait_all_tasks_blocked()
        store.goes_on.set()
        turns.ends.set()
    assert sorted(answers) == [200, 429]


async def test_a_conversation_has_so_many_bytes(corral: Corral, agent: ProgramAgent) -> None:
    bounds = ChatBounds(conversation_bytes=1_000)
    app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"), bounds=bounds)
    ann = Browser(app, "ann")
    assert (await ann.send("say " + "a" * 1_000)).status_code == 200
    refused = await ann.send("say something", message="m2")
    assert (refused.status_code, refused.json()["error"]) == (
        422,
        "the conversation has more than 1000 bytes, the maximum; start a new one",
    )
    assert (await ann.send("say something", id="another")).status_code == 200


async def test_executions_in_memory_go_of_the_user_who_has_the_most() -> None:
    store, ann, bob = MemoryChats(executions=4), Owner("acme", "ann"), Owner("acme", "bob")
    await store.save_execution(ann, {"id": "a"})
    for number in range(10):
        await store.save_execution(bob, {"id": f"b{number}"})
    assert await store.execution(ann, "a") == {"id": "a"}
    assert [await store.execution(bob, f"b{number}") is not None for number in range(10)] == [False] * 7 + [True] * 3


async def test_a_user_sends_so_many_messages_a_minute(
    corral: Corral, agent: ProgramAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "MemoryRates", partial(MemoryRates, clock=lambda: 0))

    def authenticate(request: Any) -> ExecutionContext:
        return ExecutionContext(user_id=request.headers["x-user"])

    app = chat_app(corral, agent, authenticate=authenticate, bounds=ChatBounds(messages_per_minute=2))
    ann, bob = Browser(app, "ann"), Browser(app, "bob")
    for number in range(2):
        parts_of(await ann.send("return 1", message=f"m{number}"))
    refused = await ann.send("return 1", message="m2")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    assert "you may send 2 messages a minute" in refused.json()["error"]
    parts_of(await bob.send("return 1"))


async def test_an_agents_error_is_for_the_log(ann: Browser, caplog: pytest.LogCaptureFixture) -> None:
    response = await ann.send("fail")
    [*_, error] = parts_of(response)
    assert error["type"] == "error"
    assert error["errorText"].startswith("the agent failed (")
    assert "detail" not in response.text
    assert "a detail that is for the log" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"host": "evil.example"}, 421),
        ({"x-user": None}, 401),
        ({}, 200),
    ],
)
async def test_requests_of_others_are_refused_and_every_response_is_bound(
    ann: Browser, headers: dict[str, Any], status: int
) -> None:
    own = {**ann.client.headers, **headers}
    request = httpx.Request(
        "GET", "http://localhost/api/about", headers={name: value for name, value in own.items() if value is not None}
    )
    response = await ann.client.send(request)
    assert response.status_code == status
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


NAME = '/workspace/<b>ein "Bericht"\n x: größer.html'
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
WRITES = f"""
import fs from "node:fs";
fs.writeFileSync("/workspace/dot.html", Buffer.from("{PIXEL}", "base64"));
fs.writeFileSync("/workspace/drawing.png", "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>");
fs.writeFileSync("/workspace/empty.gif", "");
fs.writeFileSync({json.dumps(NAME)}, "<script>alert(1)</script>");
fs.writeFileSync("/workspace/large.bin", "x".repeat(2_000));
fs.writeFileSync("/workspace/passing.txt", "x");
"""


async def test_files_of_a_program_are_downloads_and_images_for_its_user_alone(warm_deno: DenoSandbox) -> None:
    def authenticate(request: Any) -> ExecutionContext:
        return ExecutionContext(user_id=request.headers["x-user"])

    async with Corral([], sandbox=warm_deno, sessions=Sessions(), check=False) as corral:
        bounds = ChatBounds(file_bytes=1_000)
        app = chat_app(corral, ProgramAgent(corral), authenticate=authenticate, bounds=bounds)
        ann, bob = Browser(app, "ann"), Browser(app, "bob")
        parts = parts_of(await ann.send(WRITES))
        last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
        others = ["dot.html", "drawing.png", "empty.gif", "large.bin", "passing.txt"]
        assert sorted(last["files"]["created"]) == sorted([NAME, *(f"/workspace/{each}" for each in others)])
        address = f"/api/executions/{last['id']}/file"
        found = await ann.client.get(address, params={"path": NAME})
        assert (found.status_code, found.text) == (200, "<script>alert(1)</script>")
        assert found.headers["content-type"] == "application/octet-stream"
        assert found.headers["x-content-type-options"] == "nosniff"
        named = "%3Cb%3Eein%20%22Bericht%22%0A%20x%3A%20gr%C3%B6%C3%9Fer.html"
        assert found.headers["content-disposition"] == f"attachment; filename*=UTF-8''{named}"
        image = await ann.client.get(address, params={"path": "/workspace/dot.html", "image": "1"})
        assert (image.status_code, image.content) == (200, base64.b64decode(PIXEL))
        assert image.headers["content-type"] == "image/png"  # by its bytes, not by its name
        assert image.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in image.headers["content-security-policy"]
        for path in (NAME, "/workspace/drawing.png", "/workspace/empty.gif"):
            refused = await ann.client.get(address, params={"path": path, "image": "1"})
            assert (refused.status_code, refused.headers["content-type"]) == (415, "application/json"), path
        assert (await bob.client.get(address, params={"path": NAME})).status_code == 404
        for path in ("", "/etc/passwd", "/workspace/../etc/passwd", "/workspace", "/workspace/other.txt"):
            assert (await ann.client.get(address, params={"path": path})).status_code == 404, path
        large = await ann.client.get(address, params={"path": "/workspace/large.bin"})
        assert (large.status_code, large.json()) == (
            413,
            {"error": "the file has 2,000 bytes, over the limit of 1,000"},
        )
        later = (
            'import fs from "node:fs"; fs.unlinkSync("/workspace/passing.txt"); fs.mkdirSync("/workspace/passing.txt")'
        )
        parts_of(await ann.send(later, message="m2"))
        assert (await ann.client.get(address, params={"path": "/workspace/passing.txt"})).status_code == 404


async def test_a_corral_without_sessions_has_no_files_of_them(corral: Corral, warm_deno: DenoSandbox) -> None:
    with pytest.raises(ConfigError, match="keeps no sessions"):
        async with corral.session_files(ExecutionContext(session_id="talk")):
            pass
    async with Corral([], sandbox=warm_deno, sessions=Sessions(), check=False) as keeping:
        with pytest.raises(ConfigError, match="no session_id"):
            async with keeping.session_files(ExecutionContext()):
                pass


async def test_scripts_and_styles_are_compressed_and_sent_once(ann: Browser) -> None:
    page = (await ann.client.get("/")).text
    names = re.findall(r"assets/[a-z.]+", page)
    assert len(names) >= 2
    sent = 0
    for name in [*names, "assets/highlighter.js"]:
        found = await ann.client.get(f"/{name}")
        assert (found.status_code, found.headers["content-encoding"]) == (200, "gzip")
        assert found.headers["content-type"].startswith(("text/javascript", "text/css"))
        sent += int(found.headers["content-length"]) if name in names else 0
        again = await ann.client.get(f"/{name}", headers={"if-none-match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        plain = await ann.client.get(f"/{name}", headers={"accept-encoding": "identity"})
        assert (plain.content, "content-encoding" in plain.headers) == (found.content, False)
    assert sent < 300_000  # before the first paint
    for name in ("", "..%2findex.html", "%2e%2e/index.html", "index.html"):
        assert (await ann.client.get(f"/assets/{name}")).status_code == 404


async def test_the_code_of_the_address_works_once_and_becomes_a_cookie_for_this_port() -> None:
    login = OneTimeLogin(ExecutionContext(user_id="ann"), 8788)

    async def page(scope: Any, receive: Any, send: Any) -> None:
        found = login.authenticate(Request(scope))
        await JSONResponse(found and found.user_id)(scope, receive, send)

    transport = httpx.ASGITransport(login.guard(page))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8788") as http:
        assert (await http.get("/", params={"code": "wrong"})).status_code == 403
        assert (await http.get("/")).json() is None
        entered = await http.get("/", params={"code": login.code})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        name, *attributes = entered.headers["set-cookie"].split("; ")
        assert name.startswith("corral_chat_8788=")
        assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
        assert (await http.get("/")).json() == "ann"
        assert (await http.get("/", params={"code": login.code})).status_code == 403
        http.cookies.clear()
        forged = {"cookie": "corral_chat_8788=" + "x" * 43}
        assert (await http.get("/", headers=forged)).json() is None

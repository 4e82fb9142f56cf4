"""The chat server: its stream, approvals, bounds, and who sees what."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest

from corral import Corral, ExecutionContext
from corral.chat import ChatBounds, chat_app
from corral.errors import ConfigError
from corral.sessions import Sessions
from tests.chat.conftest import HTML, Browser, ProgramAgent, parts_of

pytestmark = pytest.mark.anyio


async def waiting(corral: Corral) -> tuple[str, int]:
    """Returns the call that waits for an approval, as soon as there is one."""
    while not corral.pending():
        await anyio.lowlevel.checkpoint()
    [request] = corral.pending()
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
        assert (await bob.client.get(f"/api/executions/{execution}")).status_code == 404
        asked = (await ann.get(f"/api/executions/{execution}"))["calls"][0]["approval"]
        assert (asked["state"], asked["input"]["euros"]) == ("waiting", 3)
        as_text = {"content-type": "text/plain"}
        assert (await ann.client.post(url, content='{"approved": true}', headers=as_text)).status_code == 415
        assert (await ann.client.post(url, json=decision)).status_code == 200
        assert (await ann.client.post(url, json=decision)).status_code == 409
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
        await ann.client.post(f"/api/approvals/{execution}/{sequence}", json={"approved": True})
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


async def test_a_user_sends_so_many_messages_a_minute(corral: Corral, agent: ProgramAgent) -> None:
    def authenticate(request: Any) -> ExecutionContext:
        return ExecutionContext(user_id=request.headers["x-user"])

    app = chat_app(corral, agent, authenticate=authenticate, bounds=ChatBounds(messages_per_minute=2))
    ann, bob = Browser(app, "ann"), Browser(app, "bob")
    for number in range(2):
        parts_of(await ann.send("return 1", message=f"m{number}"))
    refused = await ann.send("return 1", message="m2")
    assert (refused.status_code, 20 <= int(refused.headers["retry-after"]) <= 30) == (429, True)
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
WRITES = f"""
import fs from "node:fs";
fs.writeFileSync({json.dumps(NAME)}, "<script>alert(1)</script>");
fs.writeFileSync("/workspace/large.bin", "x".repeat(2_000));
fs.writeFileSync("/workspace/passing.txt", "x");
"""


async def test_files_of_a_program_are_downloads_for_its_user_alone() -> None:
    def authenticate(request: Any) -> ExecutionContext:
        return ExecutionContext(user_id=request.headers["x-user"])

    async with Corral([], sessions=Sessions(), check=False) as corral:
        bounds = ChatBounds(file_bytes=1_000)
        app = chat_app(corral, ProgramAgent(corral), authenticate=authenticate, bounds=bounds)
        ann, bob = Browser(app, "ann"), Browser(app, "bob")
        parts = parts_of(await ann.send(WRITES))
        last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
        assert sorted(last["files"]["created"]) == sorted([NAME, "/workspace/large.bin", "/workspace/passing.txt"])
        address = f"/api/executions/{last['id']}/file"
        found = await ann.client.get(address, params={"path": NAME})
        assert (found.status_code, found.text) == (200, "<script>alert(1)</script>")
        assert found.headers["content-type"] == "application/octet-stream"
        assert found.headers["x-content-type-options"] == "nosniff"
        named = "%3Cb%3Eein%20%22Bericht%22%0A%20x%3A%20gr%C3%B6%C3%9Fer.html"
        assert found.headers["content-disposition"] == f"attachment; filename*=UTF-8''{named}"
        assert (await bob.client.get(address, params={"path": NAME})).status_code == 404
        for path in ("", "/etc/passwd", "/workspace/../etc/passwd", "/workspace", "/workspace/other.txt"):
            assert (await ann.client.get(address, params={"path": path})).status_code == 404, path
        large = await ann.client.get(address, params={"path": "/workspace/large.bin"})
        assert (large.status_code, large.json()) == (
            413,
            {"error": "the file has 2,000 bytes, over the bound of 1,000"},
        )
        later = (
            'import fs from "node:fs"; fs.unlinkSync("/workspace/passing.txt"); fs.mkdirSync("/workspace/passing.txt")'
        )
        parts_of(await ann.send(later, message="m2"))
        assert (await ann.client.get(address, params={"path": "/workspace/passing.txt"})).status_code == 404


async def test_a_corral_without_sessions_has_no_files_of_them(corral: Corral) -> None:
    with pytest.raises(ConfigError, match="keeps no sessions"):
        async with corral.session_files(ExecutionContext(session_id="talk")):
            pass
    async with Corral([], sessions=Sessions()) as keeping:
        with pytest.raises(ConfigError, match="no session_id of its own"):
            async with keeping.session_files(ExecutionContext()):
                pass

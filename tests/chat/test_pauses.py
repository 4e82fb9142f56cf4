"""Conversations whose programs pause in a ledger, and go on after a decision, also on another server."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from corral import ApprovalRequest, Approved, Corral, ExecutionContext, ExecutionResult, Later, tool
from corral.chat import ChatBounds, ChatStore, ChatTurn, Part, SqliteChats, chat_app
from corral.chat.agents import chat_agent_of
from corral.integrations.pydantic_ai import CodeMode
from corral.ledger import SqliteLedger
from corral.running.executions import Executions
from corral.sandboxes import DenoSandbox
from corral.types import MayDecide
from tests.chat.conftest import Browser, parts_of
from tests.until import until

pytestmark = pytest.mark.anyio

SOURCE = """
console.log("begun");
const noted = await tools.note({ text: "a" });
const paid = await Promise.all([tools.pay({ euros: 1 }), tools.pay({ euros: 2 })]);
console.log("paid");
return [noted, ...paid];
"""


class Host:
    """Starts servers over the same ledger and the same conversations, one after the other."""

    def __init__(self, folder: Path, sandbox: DenoSandbox) -> None:
        self._folder = folder
        self._sandbox = sandbox
        self.done: list[object] = []

    @property
    def tools(self) -> list[Any]:
        async def forget(input: dict[str, str], output: int) -> None:
            self.done.append((f"not {input['text']}", output))

        @tool(undo=forget)
        async def note(text: str) -> int:
            """Notes a text."""
            self.done.append(text)
            return 7

        @tool(needs_approval=True)
        async def pay(euros: int) -> int:
            """Pays."""
            self.done.append(euros)
            return euros * 10

        return [note, pay]

    @asynccontextmanager
    async def server(
        self, replies: int = 3, may_decide: MayDecide | None = None, messages: int = 200
    ) -> AsyncGenerator[tuple[Browser, Corral]]:
        ledger = SqliteLedger(self._folder / "runs.db", keys={})
        async with Corral(
            self.tools,
            sandbox=self._sandbox,
            ledger=ledger,
            approve=lambda _: Later(),
            may_decide=may_decide,
            check=False,
        ) as corral:
            store: ChatStore = SqliteChats(self._folder / "chats.db")
            self.agent = Durable(corral)
            bounds = ChatBounds(replies=replies, messages=messages)
            app: Any = chat_app(corral, self.agent, authenticate=_user, store=store, bounds=bounds)
            yield Browser(app, "ann"), corral
            await store.aclose()


class Plain:
    """Runs the user's message as a program that is not durable."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        await self._corral.execute(turn.text, context=turn.context)
        yield {"type": "text-start", "id": "0"}
        yield {"type": "text-end", "id": "0"}


def _user(request: Any) -> ExecutionContext:
    return ExecutionContext(user_id=request.headers["x-user"])


class Durable:
    """Runs the user's message as a durable program, and says what the model is told."""

    def __init__(self, corral: Corral) -> None:
        self.corral = corral
        self.waits, self.go_on = anyio.Event(), anyio.Event()

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        if turn.result is None and turn.text.startswith("say"):
            text = turn.text
            if turn.text == "say wait":
                self.waits.set()
                await self.go_on.wait()
        elif turn.result is None:
            yield {"type": "tool-input-available", "toolCallId": "1", "toolName": "run", "input": {"code": turn.text}}
            result = await self.corral.execute(turn.text, context=turn.context, tool_call_id="1", durable=True)
            yield {"type": "tool-output-available", "toolCallId": "1", "output": result.model_text()}
            text = f"It is {result.status}."
        else:
            text = f"It {turn.result.status}: {turn.result.value}. {turn.text}"
        yield {"type": "text-start", "id": "0"}
        yield {"type": "text-delta", "id": "0", "delta": text}
        yield {"type": "text-end", "id": "0"}


@pytest.fixture
def host(tmp_path: Path, warm_deno: DenoSandbox) -> Host:
    return Host(tmp_path, warm_deno)


def program_of(message: dict[str, Any]) -> dict[str, Any]:
    [data] = [part["data"] for part in message["parts"] if part["type"] == "data-execution"]
    return data


def states(data: dict[str, Any]) -> list[str | None]:
    return [call.get("approval", {}).get("state") for call in data["calls"]]


async def decide(ann: Browser, execution: str, number: int, approved: bool = True) -> httpx.Response:
    shown = (await ann.client.get(f"/api/executions/{execution}")).json().get("calls", [])
    digests = [call.get("approval", {}).get("digest") for call in shown if call["n"] == number]
    decision = {"approved": approved, "digest": (digests and digests[0]) or "0" * 16}
    return await ann.client.post(f"/api/approvals/{execution}/{number}", json=decision)


async def ended(ann: Browser, talk: str = "talk") -> dict[str, Any]:
    """Waits for the end of the reply in progress, and returns the conversation."""
    await ann.client.get(f"/api/chat/{talk}/stream")
    conversation = await ann.get(f"/api/conversations/{talk}")
    assert not conversation["running"]
    return conversation


async def test_an_approval_survives_the_server_and_its_result_reaches_the_conversation(host: Host) -> None:
    async with host.server() as (ann, _):
        parts = parts_of(await ann.send(SOURCE))
        assert [each["delta"] for each in parts if each["type"] == "text-delta"] == ["It is paused."]
        [listed] = await ann.get("/api/conversations")
        assert (listed["running"], listed["waiting"]) == (False, True)
    async with host.server() as (ann, _):
        [listed] = await ann.get("/api/conversations")
        assert (listed["running"], listed["waiting"]) == (False, True)
        conversation = await ann.get("/api/conversations/talk")
        paused = program_of(conversation["messages"][1])
        assert (paused["status"], states(paused)) == ("paused", [None, "waiting", "waiting"])
        assert [call["approval"]["input"] for call in paused["calls"][1:]] == [{"euros": 1}, {"euros": 2}]
        assert (await decide(Browser(ann.app, "bob"), paused["id"], 2)).status_code == 409
        assert (await decide(ann, paused["id"], 2)).status_code == 200
        assert (await decide(ann, paused["id"], 2)).status_code == 409
        half = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        assert (half["status"], states(half), host.done) == ("paused", [None, "decided", "waiting"], ["a"])
        assert (await decide(ann, paused["id"], 3)).status_code == 200
        conversation = await ended(ann)
        assert [each["role"] for each in conversation["messages"]] == ["user", "assistant"]
        message = conversation["messages"][1]
        data = program_of(message)
        assert (data["status"], data["value"], data["callCount"]) == ("succeeded", [7, 10, 20], 3)
        assert [text for _, text, _ in data["logs"]] == ["begun", "paid"]
        assert states(data) == [None, "approved", "approved"]
        texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
        assert texts[0] == "It is paused."
        assert texts[1].startswith("It succeeded: [7, 10, 20]. The program that was paused has ended:")
        [output] = [part["output"] for part in message["parts"] if part["type"].startswith("tool-")]
        assert "[7,10,20]" in output
        assert host.done == ["a", 1, 2]
        [listed] = await ann.get("/api/conversations")
        assert (listed["running"], listed["waiting"]) == (False, False)


async def test_an_agent_of_pydantic_ai_takes_further_messages_after_a_pause(host: Host) -> None:
    async def script(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        prompts = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
        if prompts == ["pay"]:
            code = json.dumps({"code": "return await tools.pay({ euros: 2 })"})
            yield {0: DeltaToolCall(name="execute_code", json_args=code, tool_call_id="call-1")}
        else:
            yield f"I read: {prompts[-1]}"

    async with host.server() as (_, corral):
        agent = Agent(
            FunctionModel(stream_function=script),
            capabilities=[CodeMode(corral)],
            output_type=[str, DeferredToolRequests],
        )
        ann = Browser(chat_app(corral, chat_agent_of(agent), authenticate=_user), "ann")
        await ann.send("pay")
        paused = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        assert (paused["status"], host.done) == ("paused", [])
        assert (await decide(ann, paused["id"], 1)).status_code == 200
        message = (await ended(ann))["messages"][1]
        [call] = [part for part in message["parts"] if part["type"].startswith("tool-")]
        assert (call["state"], call["output"], call.get("errorText")) == ("output-available", "Result: 20", None)
        assert host.done == [2]
        further = parts_of(await ann.send("thanks", message="m2"))
        assert [part["delta"] for part in further if part["type"] == "text-delta"] == ["I read: thanks"]


async def test_a_decision_after_other_messages_continues_at_the_end(host: Host) -> None:
    async with host.server() as (ann, _):
        await ann.send("return await tools.pay({ euros: 1 })")
        await ann.send("say hello", message="m2")
        paused = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        await decide(ann, paused["id"], 1, approved=False)
        messages = (await ended(ann))["messages"]
        assert [each["role"] for each in messages] == ["user", "assistant", "user", "assistant", "assistant"]
        assert [program_of(messages[at])["status"] for at in (1, 4)] == ["failed", "failed"]
        assert host.done == []


async def test_a_decision_during_another_reply_continues_after_it(host: Host) -> None:
    async with host.server(replies=1) as (ann, _), anyio.create_task_group() as tasks:
        await ann.send("return await tools.pay({ euros: 1 })")
        paused = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        tasks.start_soon(partial(ann.send, "say wait", id="other", message="m2"))
        await host.agent.waits.wait()
        assert (await decide(ann, paused["id"], 1)).status_code == 200
        waiting = await ann.get("/api/conversations/talk")
        assert (waiting["running"], program_of(waiting["messages"][1])["status"]) == (False, "paused")
        assert host.done == []
        host.agent.go_on.set()
        await until(lambda: host.done == [1])
        assert program_of((await ended(ann))["messages"][1])["status"] == "succeeded"


async def test_what_was_decided_elsewhere_continues_when_its_conversation_is_opened(host: Host) -> None:
    async with host.server() as (ann, _):
        await ann.send("return await tools.pay({ euros: 1 })")
    async with host.server() as (ann, corral):
        [waiting] = await corral.executions.waiting()
        await corral.executions.settle(waiting.execution_id, {1: Approved(by="bob")})
        await ann.get("/api/conversations/talk")
        await until(lambda: host.done == [1])
        data = program_of((await ended(ann))["messages"][1])
        assert (data["status"], data["calls"][0]["approval"]["by"]) == ("succeeded", "bob")


async def test_a_paused_program_that_is_gone_from_the_ledger_is_interrupted(host: Host, tmp_path: Path) -> None:
    async with host.server() as (ann, _):
        await ann.send("return await tools.pay({ euros: 1 })")
    (tmp_path / "runs.db").unlink()
    async with host.server() as (ann, _):
        data = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        assert (data["status"], states(data)) == ("interrupted", ["expired"])
        assert (await decide(ann, data["id"], 1)).status_code == 409


async def test_who_may_decide_is_asked_on_the_page(host: Host) -> None:
    def by_another(call: ApprovalRequest, person: ExecutionContext) -> bool:
        return call.input["euros"] < 2

    async with host.server(may_decide=by_another) as (ann, _):
        await ann.send(SOURCE)
        paused = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        refused = await decide(ann, paused["id"], 3)
        assert (refused.status_code, refused.json()["error"]) == (
            403,
            f"ann may not decide on call 3, pay, of {paused['id']}: Corral(may_decide=...) refused it",
        )
        assert (await decide(ann, paused["id"], 2)).status_code == 200
        again = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        assert (states(again), host.done) == ([None, "decided", "waiting"], ["a"])


LONG = """
console.log("one");
const a = await tools.note({ text: "a" });
console.log("two");
return [a, await tools.note({ text: "b" })];
"""


async def test_a_time_line_a_fork_and_an_undo_are_for_the_owner_of_the_execution(host: Host) -> None:
    async with host.server() as (ann, _):
        await ann.send(LONG)
        bob = Browser(ann.app, "bob")
        first = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        address = f"/api/executions/{first['id']}"
        assert (await ann.get(address))["recorded"] is True
        timeline = await ann.get(f"{address}/timeline")
        assert [(step["n"], step["logs"], step["waiting"]) for step in timeline["steps"]] == [
            (1, 1, [1]),
            (2, 2, [2]),
            (0, 2, []),
        ]
        assert timeline["calls"][1] == [2, "note", '{"text":"b"}', "7"]
        for path, body in (("fork", {"at": 2}), ("rollback", {})):
            assert (await bob.client.post(f"{address}/{path}", json=body)).status_code == 404
            assert (await ann.client.post(f"{address}/{path}", json={"at": 0, "until": 0})).status_code == 422
        assert (await bob.client.get(f"{address}/timeline")).status_code == 404
        forked = await ann.client.post(f"{address}/fork", json={"at": 2})
        assert forked.json() == {"conversation": "talk"}
        messages = (await ended(ann))["messages"]
        second = program_of(messages[2])
        assert (second["status"], second["value"], host.done) == ("succeeded", [7, 7], ["a", "b", "b"])
        assert "The program that was run again has ended" in messages[2]["parts"][-1]["text"]
        undone = (await ann.client.post(f"{address}/rollback", json={"until": 2})).json()
        assert undone == [{"n": 2, "tool": "note", "outcome": "undone", "reason": None}]
        assert (host.done[3:], (await ann.get(address))["status"]) == ([("not b", 7)], "rolled_back")
        refused = await ann.client.post(f"{address}/fork", json={"at": 3})
        assert refused.status_code == 200  # the conversation tells why
        told = (await ended(ann))["messages"][-1]["parts"][-1]["text"]
        assert told.startswith("The program could not be run again: fork(at=3): call 2 was rolled back")


async def test_a_fork_that_is_stopped_before_it_begins_makes_no_call(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.server() as (ann, _):
        await ann.send(LONG)
        first = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        called, go_on = anyio.Event(), anyio.Event()
        fork = Executions.fork

        async def late(*arguments: Any, **options: Any) -> ExecutionResult:
            called.set()
            await go_on.wait()
            return await fork(*arguments, **options)

        monkeypatch.setattr(Executions, "fork", late)
        await ann.client.post(f"/api/executions/{first['id']}/fork", json={"at": 1})
        await called.wait()
        assert (await ann.client.post("/api/chat/talk/stop")).json() == {"stopped": True}
        go_on.set()
        await ended(ann)
        assert host.done == ["a", "b"]


async def test_a_ledger_that_cannot_be_read_leaves_the_page_of_an_execution(host: Host, tmp_path: Path) -> None:
    async with host.server() as (ann, _):
        await ann.send("return await tools.note({ text: 'a' })")
        data = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
            database.execute("UPDATE executions SET head = x'00'")
        seen = await ann.get(f"/api/executions/{data['id']}")
        assert (seen["status"], "recorded" in seen) == ("succeeded", False)
        timeline = await ann.client.get(f"/api/executions/{data['id']}/timeline")
        assert (timeline.status_code, "cannot be read" in timeline.json()["error"]) == (409, True)


async def test_a_conversation_that_is_full_takes_no_fork(host: Host) -> None:
    async with host.server(messages=3) as (ann, _):
        await ann.send("return await tools.note({ text: 'a' })")
        data = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        refused = await ann.client.post(f"/api/executions/{data['id']}/fork", json={"at": 1})
        assert (refused.status_code, refused.json()) == (
            422,
            {"error": "the conversation has 2 messages; start a new one"},
        )
        assert host.done == ["a"]


async def test_an_execution_without_a_ledger_has_no_time_line(warm_deno: DenoSandbox) -> None:
    async with Corral(sandbox=warm_deno, check=False) as corral:
        ann = Browser(chat_app(corral, Plain(corral), authenticate=_user), "ann")
        await ann.send("return 1")
        data = program_of((await ann.get("/api/conversations/talk"))["messages"][1])
        assert "recorded" not in await ann.get(f"/api/executions/{data['id']}")
        missing = await ann.client.get(f"/api/executions/{data['id']}/timeline")
        assert (missing.status_code, missing.json()) == (404, {"error": "the execution is not in a ledger"})

"""The chat app over real programs, in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest

from corral import Corral, ExecutionContext, Later, tool
from corral.chat import ChatBounds, ChatTurn, MemoryChats, Part, chat_app
from corral.sandboxes import DenoSandbox
from tests.audit.conftest import own_server as own_server
from tests.audit.conftest import postgres_server as postgres_server

HTML = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@tool
async def greet(name: str) -> str:
    """Greets."""
    return f"Hello {name}{HTML}"


@tool(needs_approval=True)
async def pay(euros: float, password: str = "") -> str:
    """Pays."""
    return f"paid {euros:g}"


class ProgramAgent:
    """Runs the user's message as a program, and tells what came of it."""

    def __init__(self, corral: Corral) -> None:
        self._tool = corral.model.tools()[0]
        self.waits = anyio.Event()

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        if turn.text == "fail":
            raise RuntimeError("a detail that is for the log")
        if turn.text == "wait":
            yield {"type": "text-start", "id": "0"}
            yield {"type": "text-delta", "id": "0", "delta": "waiting"}
            self.waits.set()
            await anyio.sleep_forever()
        call = {"toolCallId": "call-1", "toolName": "execute_code"}
        yield {"type": "tool-input-available", **call, "input": {"code": turn.text}}
        result = await self._tool.run({"code": turn.text}, turn.context, tool_call_id="call-1")
        yield {"type": "tool-output-available", "toolCallId": "call-1", "output": result.model_text()}


class Browser:
    """Client of one user."""

    def __init__(self, app: Any, user: str) -> None:
        self.app = app
        transport = httpx.ASGITransport(app)
        headers = {"x-user": user, "origin": "http://localhost"}
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)

    async def send(self, text: str, *, id: str = "talk", message: str = "m1") -> httpx.Response:
        parts = [{"type": "text", "text": text}]
        body = {"id": id, "messages": [{"id": message, "role": "user", "parts": parts}], "trigger": "submit-message"}
        return await self.client.post("/api/chat", json=body)

    async def get(self, path: str) -> Any:
        response = await self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()


def parts_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def one_program(parts: list[dict[str, Any]], code: dict[str, Any]) -> Any:
    """Checks that a reply ran one program, in the place of the model's only call, and returns the call's output."""
    last = [part["data"] for part in parts if part["type"] == "data-execution"][-1]
    assert (last["status"], len(last["calls"])) == ("succeeded", 1)
    [made] = [part for part in parts if part["type"] == "tool-input-available"]
    assert (made["toolCallId"], made["input"]) == (last["toolCallId"], code)
    [given] = [part for part in parts if part["type"] == "tool-output-available"]
    assert given["toolCallId"] == last["toolCallId"]
    return given["output"]


@pytest.fixture(scope="module")
async def corral(warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with Corral([greet, pay], sandbox=warm_deno, approve=lambda _: Later(), check=False) as corral:
        yield corral


@pytest.fixture
async def agent(corral: Corral) -> ProgramAgent:
    return ProgramAgent(corral)


@pytest.fixture
def app(corral: Corral, agent: ProgramAgent) -> Any:
    def authenticate(request: Any) -> ExecutionContext | None:
        user = request.headers.get("x-user")
        return None if user is None else ExecutionContext(user_id=user)

    return chat_app(
        corral,
        agent,
        authenticate=authenticate,
        store=MemoryChats(),
        bounds=ChatBounds(message_chars=1_000, messages=4, replies=1, request_bytes=5_000),
    )


@pytest.fixture
def ann(app: Any) -> Browser:
    return Browser(app, "ann")


@pytest.fixture
def bob(app: Any) -> Browser:
    return Browser(app, "bob")

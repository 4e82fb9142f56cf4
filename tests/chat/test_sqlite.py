"""Conversations and executions in SQLite."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from corral import Corral, ExecutionContext
from corral.chat import Conversation, SqliteChats, chat_app
from corral.chat.records import Owner
from tests.chat.conftest import Browser, ProgramAgent, parts_of

pytestmark = pytest.mark.anyio

ANN, BOB = Owner("acme", "ann"), Owner("other", "ann")


async def test_what_is_stored_is_found_by_its_owner_only_and_the_oldest_goes(tmp_path: Path) -> None:
    store = SqliteChats(tmp_path / "chats.db", conversations=2, executions=2)
    for number in range(3):
        messages = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "é\ud83d\ude00"[:1]}]}]
        await store.save(ANN, Conversation(id=f"c{number}", title="t", updated=number, messages=messages))
        await store.save_execution(ANN, {"id": f"e{number}", "status": "succeeded", "calls": []})
    await store.aclose()
    assert [each.id for each in await store.conversations(ANN)] == ["c2", "c1"]
    assert (await store.load(ANN, "c0"), await store.load(BOB, "c2")) == (None, None)
    found = await store.load(ANN, "c2")
    assert found is not None
    assert found.messages[0]["parts"][0]["text"] == "é"
    assert await store.execution(ANN, "e0") is None
    assert await store.execution(BOB, "e2") is None
    assert await store.execution(ANN, "e2") == {"id": "e2", "status": "succeeded", "calls": []}
    assert await store.conversations(BOB) == []
    await store.delete(BOB, "c2")
    await store.delete(ANN, "c1")
    assert [each.id for each in await store.conversations(ANN)] == ["c2"]
    await store.aclose()
    assert (tmp_path / "chats.db").stat().st_mode & 0o777 == 0o600


async def test_an_approval_that_waited_when_the_server_ended_is_expired(corral: Corral, tmp_path: Path) -> None:
    def server() -> Browser:
        store = SqliteChats(tmp_path / "chats.db")
        return Browser(
            chat_app(corral, ProgramAgent(corral), authenticate=lambda _: ExecutionContext(user_id="ann"), store=store),
            "ann",
        )

    first, second = server(), server()  # the second has what the first has stored, and none of its replies
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.send, "return await tools.pay({ euros: 5 })")
        while True:
            stored = await second.client.get("/api/conversations/talk")
            if stored.status_code == 200 and len(stored.json()["messages"]) == 2:
                break
        data = next(each["data"] for each in stored.json()["messages"][1]["parts"] if each["type"] == "data-execution")
        assert data["status"] == "interrupted"
        assert data["calls"][0]["approval"]["state"] == "expired"
        [request] = corral.pending()
        url = f"/api/approvals/{request.execution_id}/{request.sequence}"
        assert (await first.client.post(url, json={"approved": False})).status_code == 200
    stored = await second.get("/api/conversations/talk")
    assert stored["messages"][1]["parts"][-1]["data"]["status"] == "failed"
    parts_of(await second.send("return 1", message="m2"))

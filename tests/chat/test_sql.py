"""Conversations and executions in SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import asyncpg
import httpx
import pytest

from corral import Corral, ExecutionContext
from corral.chat import ChatStore, Conversation, PostgresChats, SqliteChats, chat_app
from corral.chat.runs import Owner
from tests.chat.conftest import Browser, ProgramAgent, parts_of
from tests.chat.test_page import serving

pytestmark = pytest.mark.anyio

ANN, BOB = Owner("acme", "ann"), Owner("other", "ann")


Open = Callable[..., ChatStore]
"""Opens the same database each time."""


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    return f"postgresql://corral@/postgres?host={postgres_server}"


@pytest.fixture(params=["sqlite", "postgres"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return partial(SqliteChats, tmp_path / "chats.db")
    url: str = request.getfixturevalue("postgres_url")
    connection: Any = await cast("Any", asyncpg).connect(url)
    await connection.execute("DROP TABLE IF EXISTS conversations, executions")
    await connection.close()
    return partial(PostgresChats, url)


async def test_what_is_stored_is_found_by_its_owner_only_and_the_oldest_goes(opened: Open) -> None:
    store = opened(conversations=2, executions=2)
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


async def test_aged_executions_go_and_texts_that_databases_do_not_take_are_stored_all_the_same(opened: Open) -> None:
    store = opened()
    text = "a\0b\ud800"
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]}
    await store.save(ANN, Conversation(id="c", title=text, messages=[message]))
    found = await store.load(ANN, "c")
    assert found is not None
    assert (found.title, found.messages) == ("a?b?", [message])
    await store.save_execution(ANN, {"id": "e1", "output": text})
    assert await store.execution(ANN, "e1") == {"id": "e1", "output": text}
    assert (await store.execution(ANN, text), await store.load(ANN, text)) == (None, None)
    await store.delete(ANN, text)
    later = opened(keep_days=0.0)
    await later.save_execution(BOB, {"id": "e2"})
    assert await store.execution(ANN, "e1") is None
    await store.aclose()
    await later.aclose()


async def test_servers_that_write_at_once_lose_nothing(opened: Open) -> None:
    stores = [opened(executions=3) for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(stores[number % 3].save_execution, ANN, {"id": f"e{number}"})
            tasks.start_soon(stores[number % 3].save, BOB, Conversation(id=f"c{number}"))
    assert len(await stores[0].conversations(BOB)) == 30
    kept = [await stores[0].execution(ANN, f"e{number}") for number in range(30)]
    assert len([each for each in kept if each is not None]) == 3
    for store in stores:
        await store.aclose()


async def test_a_file_is_its_owners_only(tmp_path: Path) -> None:
    store = SqliteChats(tmp_path / "chats.db")
    assert await store.conversations(ANN) == []
    await store.aclose()
    assert (tmp_path / "chats.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.matrix("the gate writes conversations to PostgreSQL; by the command")
def test_the_command_keeps_conversations_in_postgres(postgres_url: str, tmp_path: Path) -> None:
    with serving("--demo", "--store", postgres_url, folder=tmp_path) as address, httpx.Client(timeout=30) as http:
        assert http.get(address, follow_redirects=True).status_code == 200
        assert http.get(f"{address.partition('?')[0]}api/conversations").json() == []
    assert not list(tmp_path.iterdir())


async def test_an_approval_that_waited_when_the_server_ended_is_expired(corral: Corral, opened: Open) -> None:
    stores = [opened(), opened()]

    def server(store: ChatStore) -> Browser:
        return Browser(
            chat_app(corral, ProgramAgent(corral), authenticate=lambda _: ExecutionContext(user_id="ann"), store=store),
            "ann",
        )

    first, second = map(server, stores)  # the second has what the first has stored, and none of its replies
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.send, "return await tools.pay({ euros: 5 })")
        while True:
            stored = await second.client.get("/api/conversations/talk")
            if stored.status_code == 200 and len(stored.json()["messages"]) == 2:
                break
        data = next(each["data"] for each in stored.json()["messages"][1]["parts"] if each["type"] == "data-execution")
        assert data["status"] == "interrupted"
        assert data["calls"][0]["approval"]["state"] == "expired"
        [execution] = await corral.executions.waiting()
        [request] = execution.calls
        url = f"/api/approvals/{request.execution_id}/{request.sequence}"
        assert (await first.client.post(url, json={"approved": False})).status_code == 200
    stored = await second.get("/api/conversations/talk")
    assert stored["messages"][1]["parts"][-1]["data"]["status"] == "failed"
    parts_of(await second.send("return 1", message="m2"))
    for store in stores:
        await store.aclose()

"""Set-ups that `corral chat` refuses, in one line; and the model that the environment chooses."""

from __future__ import annotations

import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import anyio
import anyio.lowlevel
import pytest
import uvicorn
from pydantic_ai.models import KnownModelName

from corral import Corral, ExecutionContext
from corral.chat import MemoryChats, chat_app
from corral.chat import command as chat
from corral.chat.agents.environment import MODELS, chat_agent_by_environment, model_by_environment
from corral.chat.runs import Owner
from corral.cli.dispatch import run
from corral.cli.http_server import Drainable, http_server, listening
from corral.errors import MissingExtra
from tests.chat.conftest import Browser, ProgramAgent, one_program, parts_of
from tests.integrations.stubs import Call, calling, stub

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY")
CODE = {"code": 'return await tools.greet({ name: "Ann" })'}


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def test_the_corral_is_that_of_the_agents_code_mode_if_the_module_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app_with_an_agent.py").write_text(
        "from pydantic_ai import Agent\n"
        "from corral.integrations.pydantic_ai import CodeMode\n"
        "mode = CodeMode()\n"
        "agent = Agent('test', capabilities=[mode])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    corral, _ = chat._found("app_with_an_agent:agent")  # pyright: ignore[reportPrivateUsage]
    assert corral is sys.modules["app_with_an_agent"].mode.corrals


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_GENERATIVE_AI_API_KEY, or use --demo"),
        ("app:corral", "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_GENERATIVE_AI_API_KEY, or use --demo"),
        ("app:agent --demo", "name the agent, module:name, or use --demo, not both"),
        ("app:agnet", "app_of_the_chat has no 'agnet'; did you mean app_of_the_chat:agent?"),
        ("app_of_the_chat.py:agent", "there is no module 'app_of_the_chat.py'; write app_of_the_chat:agent"),
        ("away:agent", "there is no module 'away'; start it in the folder of away"),
        ("imports:agent", "imports cannot be imported: there is no module 'away'; install away"),
        ("app_of_the_chat.py", "'app_of_the_chat.py' does not name an agent; write module:name, such as app:agent"),
        ("--demo --host 0.0.0.0", "is not a loopback address"),
        ("--demo --store postgresql://ann:hunter2@127.0.0.1:1/chats", "cannot be kept in PostgreSQL: "),
        ("--demo --store postgresql://ann:hunter2@127.0.0.1:hunter2/chats", "PostgreSQL: the URL is not valid"),
        ("--demo --store no/such/folder/chats.db", "no/such/folder/chats.db: No such file or directory"),
        ("--demo --store app_of_the_chat.py", "app_of_the_chat.py: file is not a database"),
    ],
)
def test_it_refuses_in_one_line_and_tells_no_password(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app_of_the_chat.py").write_text("from corral import Corral\n\ncorral = agent = Corral([])\n")
    (tmp_path / "imports.py").write_text("import away\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert run(["chat", "--port", "0", *arguments.replace("app:", "app_of_the_chat:").split()]) == 2
    printed, error = capsys.readouterr()
    assert (printed, error.count("\n"), said in error, "hunter2" in error) == ("", 1, True, False)


def test_the_first_key_chooses_a_model_that_pydantic_ai_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_by_environment() is None
    for name in KEYS[1:]:
        monkeypatch.setenv(name, "a-key")
    model = model_by_environment()
    assert model is not None
    assert f"{model.system}:{model.model_name}" == MODELS["OPENAI_API_KEY"]
    assert tuple(MODELS) == KEYS
    assert {*MODELS.values()} <= {*get_args(KnownModelName.__value__)}


def test_a_key_whose_sdk_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    with pytest.raises(MissingExtra, match=r"OPENAI_API_KEY chooses .* pip install 'pydantic-ai-slim\[openai\]'"):
        model_by_environment()


@pytest.mark.anyio
async def test_its_programs_run_with_the_tools_of_the_corral(corral: Corral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with stub(calling(Call("execute_code", CODE))) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        agent = chat_agent_by_environment(corral)
        app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"))
        parts = parts_of(await Browser(app, "ann").send("greet Ann"))
    assert "Hello Ann" in str(one_program(parts, CODE))


@pytest.mark.anyio
async def test_its_end_stores_the_reply_in_progress(corral: Corral, agent: ProgramAgent) -> None:
    store = MemoryChats()
    app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"), store=store)
    printed: list[str] = []
    view: Any = SimpleNamespace(out=printed.append, err=printed.append)
    with listening("127.0.0.1", 0) as listener:
        server = http_server(uvicorn, app, lifespan="on")

        async def interrupt() -> None:
            await agent.waits.wait()
            signal.raise_signal(signal.SIGINT)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Browser(app, "ann").send, "wait")
            tasks.start_soon(interrupt)
            await chat._serve(nullcontext(), store, server, listener, "", view)  # pyright: ignore[reportPrivateUsage]
            tasks.cancel_scope.cancel()
    conversation = await store.load(Owner(None, "ann"), "talk")
    assert conversation is not None
    assert [each["role"] for each in conversation.messages] == ["user", "assistant"]


@pytest.mark.anyio
async def test_it_takes_no_message_while_it_drains(corral: Corral, agent: ProgramAgent) -> None:
    chats = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"))
    app = Drainable(chats, chat._is_message, corral.unready)  # pyright: ignore[reportPrivateUsage]
    browser = Browser(app, "ann")
    assert await browser.get("/readyz") == {"status": "ok"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(browser.send, "wait")
        await agent.waits.wait()
        tasks.start_soon(app.drain, 60)
        await anyio.lowlevel.checkpoint()
        assert (await browser.client.get("/readyz")).status_code == 503
        assert (await browser.send("1", id="another")).status_code == 503
        assert (await browser.client.post("/api/chat/talk/stop")).json() == {"stopped": True}

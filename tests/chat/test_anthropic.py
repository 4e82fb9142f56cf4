"""A model of the Messages API behind the chat page, against a stub of its provider on loopback."""

from __future__ import annotations

import pytest
from anthropic import AsyncAnthropic
from anthropic.lib.tools import beta_async_tool

from corral import Corral, ExecutionContext
from corral.chat import chat_app, turn_context
from corral.chat.agents.anthropic import from_anthropic
from corral.errors import ConfigError
from corral.integrations.anthropic import CodeMode
from tests.chat.conftest import Browser, parts_of
from tests.integrations.stubs import Call, calling, stub

pytestmark = pytest.mark.anyio

CODE = {"code": 'return await tools.greet({ name: "Ann" })'}


@beta_async_tool
async def whoami() -> str:
    """Names the caller."""
    return turn_context().user_id


@beta_async_tool
async def lend(euros: int) -> str:
    """Lends money."""
    raise LookupError(f"password=hunter2 for {euros}")


async def test_its_words_and_programs_come_in_one_stream(corral: Corral) -> None:
    read: list[str] = []
    script = calling(Call("execute_code", CODE), Call("whoami", {}), Call("nonsense", {}), read=read)
    with stub(script) as provider:
        async with AsyncAnthropic(base_url=provider.url, api_key="none", max_retries=0) as client:
            parts = CodeMode(corral, context=turn_context).kwargs(tools=[whoami])
            agent = from_anthropic(client, "scripted", parts, steps=2)
            caller = ExecutionContext(user_id="ann", organization_id="acme")
            app = chat_app(corral, agent, authenticate=lambda _: caller)
            found = parts_of(await Browser(app, "ann").send("greet Ann"))
    last = [part["data"] for part in found if part["type"] == "data-execution"][-1]
    assert (last["status"], len(last["calls"])) == ("succeeded", 1)
    made = [part for part in found if part["type"] == "tool-input-available"]
    assert (made[0]["toolCallId"], made[0]["input"]) == (last["toolCallId"], CODE)
    given = {part["toolCallId"]: part["output"] for part in found if part["type"] == "tool-output-available"}
    program, name, nonsense = given.values()
    assert list(given) == [part["toolCallId"] for part in made]
    assert "Hello Ann" in program
    assert (name, nonsense) == ("ann", "there is no tool 'nonsense'")
    assert read[2] == "is_error: there is no tool 'nonsense'"
    texts = [part for part in found if part["type"].startswith("text-")]
    assert (texts[0]["type"], texts[-1]["type"]) == ("text-start", "text-end")
    assert "".join(part.get("delta", "") for part in texts) == "Done."
    assert [request["tool_choice"]["type"] for request in provider.requests] == ["auto", "none"]


async def test_a_program_that_fails_is_told_to_the_model_as_an_error(corral: Corral) -> None:
    read: list[str] = []
    with stub(calling(Call("execute_code", {"code": "throw new Error('no')"}), read=read)) as provider:
        async with AsyncAnthropic(base_url=provider.url, api_key="none", max_retries=0) as client:
            agent = from_anthropic(client, "scripted", CodeMode(corral, context=turn_context).kwargs())
            app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"))
            parts = parts_of(await Browser(app, "ann").send("fail"))
    assert read[0].startswith("is_error: ")
    assert [part["data"] for part in parts if part["type"] == "data-execution"][-1]["status"] == "failed"


async def test_a_tool_of_the_hosts_that_fails_ends_no_reply_and_tells_no_details(corral: Corral) -> None:
    read: list[str] = []
    calls = Call("lend", {"euros": "many"}), Call("lend", {"euros": 5})
    with stub(calling(*calls, read=read)) as provider:
        async with AsyncAnthropic(base_url=provider.url, api_key="none", max_retries=0) as client:
            agent = from_anthropic(client, "scripted", CodeMode(corral, context=turn_context).kwargs(tools=[lend]))
            app = chat_app(corral, agent, authenticate=lambda _: ExecutionContext(user_id="ann"))
            parts = parts_of(await Browser(app, "ann").send("lend"))
    assert read == ["is_error: Invalid arguments for function lend", "is_error: lend failed"]
    assert parts[-1]["type"] == "finish"


def test_outside_of_a_reply_there_is_no_caller() -> None:
    with pytest.raises(ConfigError, match="while an agent replies on a chat page"):
        turn_context()

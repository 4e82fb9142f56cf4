"""`on_event` with async functions: in order, within bounds, and never in the way of the execution."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import FrozenInstanceError
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, tool
from corral.events import Event, ExecutionFinished, ExecutionStarted, ToolCallFinished, ToolCallStarted
from corral.sandboxes import DenoSandbox
from tests.conftest import both_loops

pytestmark = pytest.mark.anyio


@tool
async def double(n: int) -> int:
    return 2 * n


PROGRAM = "console.log('here'); return await tools.double({ n: 21 })"
TYPES = ["execution_started", "console_output", "tool_call_started", "tool_call_finished", "execution_finished"]


@both_loops
async def test_an_async_function_hears_all_events_in_order_before_the_execution_returns() -> None:
    heard: list[str] = []

    async def hear(event: Event) -> None:
        for _ in range(3 if event.type == "execution_started" else 1):
            await anyio.lowlevel.checkpoint()
        heard.append(event.type)

    result = await Corral([double], check=False).execute(PROGRAM, on_event=hear)
    assert (result.value, heard) == (42, TYPES)


async def test_a_function_that_gives_something_to_await_is_awaited_too(warm_deno: DenoSandbox) -> None:
    send, receive = anyio.create_memory_object_stream[str](10)
    with receive:
        async with Corral([double], sandbox=warm_deno, check=False) as corral:
            await corral.execute(PROGRAM, on_event=lambda event: send.send(event.type))
        send.close()
        assert [each async for each in receive] == TYPES


async def test_what_an_async_function_raises_is_logged_and_it_hears_the_next_event(
    caplog: pytest.LogCaptureFixture,
    warm_deno: DenoSandbox,
) -> None:
    heard: list[str] = []

    async def hear(event: Event) -> None:
        heard.append(event.type)
        raise ValueError(event.type)

    with caplog.at_level(logging.WARNING, "corral"):
        result = await Corral([double], sandbox=warm_deno, check=False).execute(PROGRAM, on_event=hear)
    assert (result.value, heard) == (42, TYPES)
    assert [record.getMessage().rpartition("on ")[2] for record in caplog.records] == [repr(each) for each in TYPES]


def test_it_hears_what_comes_in_callbacks_of_a_loop_that_is_not_anyios(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    heard: list[str] = []

    async def hear(event: Event) -> None:
        heard.append(event.type)

    with caplog.at_level(logging.WARNING, "corral"):
        asyncio.run(Corral([double], sandbox=warm_deno, check=False).execute(PROGRAM, on_event=hear))
    assert (heard, caplog.records) == (TYPES, [])


@both_loops
async def test_one_that_never_returns_is_cancelled_when_the_execution_has_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("corral.events._FINISH_SECONDS", 0.01)
    ended: list[str] = []

    async def hear(event: Event) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(event.type)

    with caplog.at_level(logging.WARNING, "corral"):
        result = await Corral([double], check=False).execute(PROGRAM, on_event=hear)
    assert (result.value, ended) == (42, ["execution_started"])
    assert f"on_event of {result.execution_id} did not end in time; 5 events were dropped" in caplog.text


async def test_it_holds_up_no_call_of_the_program(warm_deno: DenoSandbox) -> None:
    """The tool is called although nobody has heard yet that it is."""
    called = anyio.Event()

    @tool
    async def call() -> None:
        called.set()

    async def hear(event: Event) -> None:
        if isinstance(event, ExecutionStarted):
            await called.wait()

    result = await Corral([call], sandbox=warm_deno, check=False).execute("await tools.call()", on_event=hear)
    assert result.success


async def test_a_cancelled_execution_is_heard_to_its_end(warm_deno: DenoSandbox) -> None:
    heard: list[str] = []

    async def hear(event: Event) -> None:
        heard.append(event.type)
        if isinstance(event, ToolCallStarted):
            scope.cancel()

    @tool
    async def wait() -> None:
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await Corral([wait], sandbox=warm_deno, check=False).execute("await tools.wait()", on_event=hear)
    assert scope.cancelled_caught
    assert heard == ["execution_started", "tool_call_started", "tool_call_finished", "execution_finished"]


async def test_an_error_of_the_start_is_raised_as_it_is() -> None:
    async def hear(event: Event) -> None: ...

    corral = Corral([double], check="required", containment="namespaces", sandbox={"python": "monty"})
    with pytest.raises(Exception, match="Monty is an interpreter"):
        await corral.execute("1", language="python", check=False, on_event=hear)


async def test_events_and_results_are_plain_data_on_demand(warm_deno: DenoSandbox) -> None:
    events: list[Event] = []
    context = ExecutionContext(user_id="ann", session_id="s", organization_id="acme", local={"live": object()})
    result = await Corral([double], sandbox=warm_deno, check=False).execute(
        PROGRAM, context=context, tool_call_id="call-7", on_event=events.append
    )
    shown = result.to_dict()
    assert shown == json.loads(result.to_json())
    assert (shown["value"], shown["success"], shown["console"], shown["tool_calls"][0]["output"]) == (
        42,
        True,
        "here\n",
        42,
    )
    plain: list[Any] = [event.to_dict() for event in events]
    assert [each["type"] for each in plain] == TYPES
    assert plain[1]["entry"]["text"] == "here"
    assert plain[3]["call"]["name"] == "double"
    assert plain[4]["result"] == shown
    assert plain == [json.loads(event.to_json()) for event in events]
    for number, each in enumerate(plain, 1):
        assert each["number"] == number
        assert each["execution_id"] == result.execution_id
        assert (each["user_id"], each["session_id"], each["organization_id"]) == ("ann", "s", "acme")
        assert each["tool_call_id"] == "call-7"
    times = [each["time"] for each in plain]
    assert times == sorted(times)
    assert (plain[0]["language"], plain[0]["source"]) == ("typescript", PROGRAM)
    with pytest.raises(FrozenInstanceError):
        events[0].number = 2  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_repr_is_short_and_says_what_matters(warm_deno: DenoSandbox) -> None:
    @tool
    def much() -> list[str]:
        """A megabyte."""
        return ["x" * 1000] * 900

    events: list[Event] = []
    corral = Corral([double, much], sandbox=warm_deno, check=False)
    assert repr(corral) == "<Corral of 2 tools, not open>"
    result = await corral.execute("console.log('y'.repeat(9999)); return await tools.much()", on_event=events.append)
    assert repr(result).startswith("ExecutionResult(execution_id='execution-")
    assert "status='succeeded'" in repr(result)
    assert max(len(repr(each)) for each in (result, *result.tool_calls, *result.logs, *events)) < 1_000
    finished = events[-1]
    assert isinstance(finished, ExecutionFinished)
    assert isinstance(events[-2], ToolCallFinished)
    assert (repr(double), repr(corral.model.tools()[0])) == ("<Tool double(n)>", "<ModelTool execute_code, TypeScript>")
    async with corral, corral.start("return 1") as run:
        assert repr(run) == f"<Run of {run.execution_id}, running>"
        await run.result()
        assert repr(run).endswith("ended>")
        assert repr(corral).endswith("open>")
    assert repr(corral) == "<Corral of 2 tools, closed>"

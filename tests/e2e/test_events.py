"""Whoever watches an execution sees everything, in order, and cannot disturb it."""

from __future__ import annotations

import pytest

from corral import Corral, define_tool, tool
from corral.events import ConsoleOutput, Event, ExecutionFinished, ToolCallFinished
from corral.sandboxes import DenoSandbox

pytestmark = pytest.mark.anyio

PROGRAM = """
await tools.add({a: 1, b: 2});
try { await tools.fail({message: "no"}) } catch (e) { console.log(e.message) }
return "done";
"""


async def test_events_come_in_order_with_durations(corral: Corral) -> None:  # ev-order
    events: list[Event] = []
    result = await corral.execute(PROGRAM, on_event=events.append)
    assert [event.type for event in events] == [
        "execution_started", "tool_call_started", "tool_call_finished", "tool_call_started", "tool_call_finished", "console_output", "execution_finished",
    ]  # fmt: skip
    finished = [event.call for event in events if isinstance(event, ToolCallFinished)]
    assert [(call.name, call.output, call.error and call.error.message) for call in finished] == [
        ("add", 3, None),
        ("fail", None, "no"),
    ]
    assert all(call.duration_ms is not None and call.duration_ms >= 0 for call in finished)
    assert isinstance(events[-1], ExecutionFinished)
    assert events[-1].result is result


async def test_a_handle_gives_the_same_events_and_the_result(corral: Corral) -> None:
    async with corral.start(PROGRAM) as run:
        types = [event.type async for event in run]
        result = await run.result()
    assert types == [
        "execution_started",
        "tool_call_started",
        "tool_call_finished",
        "tool_call_started",
        "tool_call_finished",
        "console_output",
        "execution_finished",
    ]
    assert result.value == "done"
    assert run.execution_id == result.execution_id


async def test_console_output_arrives_while_the_program_runs(corral: Corral) -> None:
    async with corral.start("console.log('first'); await tools.wait({seconds: 30}); console.log('never')") as run:
        async for event in run:
            if isinstance(event, ConsoleOutput):
                assert event.entry.text == "first"
                run.cancel()
    assert (await run.result()).console == "first\n"


async def test_an_observer_that_raises_does_not_disturb_the_run(
    corral: Corral, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(event: Event) -> None:
        raise RuntimeError(f"observer broke on {event.type}")

    result = await corral.execute(PROGRAM, on_event=observe)
    assert result.value == "done"
    assert "observer broke on console_output" in caplog.text


async def test_a_rejected_program_has_its_events_too(corral: Corral) -> None:
    events: list[Event] = []
    await corral.execute("}", on_event=events.append)
    assert [event.type for event in events] == ["execution_started", "execution_finished"]


async def test_a_result_raises_the_error_it_stands_for(corral: Corral) -> None:
    result = await corral.execute("await tools.add({a: 'x', b: 1})")
    with pytest.raises(Exception, match=r"InvalidArguments.*line 1") as raised:
        result.raise_for_error()
    assert type(raised.value).__name__ == "InvalidArguments"
    fine = await corral.execute("return 1")
    assert fine.raise_for_error() is fine


async def test_calls_are_logged_for_those_who_want_it_and_programs_only_if_asked(
    warm_deno: DenoSandbox, corral: Corral, caplog: pytest.LogCaptureFixture
) -> None:
    await corral.execute("return 'quiet'")
    caplog.set_level("DEBUG", logger="corral")
    result = await corral.execute("await tools.add({a: 20, b: 22}); // quiet")
    assert "quiet" not in caplog.text
    caplog.set_level("INFO", logger="corral.programs")
    await Corral(sandbox=warm_deno, check=False).execute("return 1 // loud")
    assert "// loud" in caplog.text
    assert f"in execution {result.execution_id}" in caplog.text
    assert "tools.add answered in" in caplog.text


async def test_a_forgotten_await_is_named(corral: Corral) -> None:
    for use in (
        "return r + 1",
        "return `${r}`",
        "return JSON.stringify({r})",
        "for (const x of r) {}",
        "return [...r]",
    ):
        result = await corral.execute(f"const r = [tools.add({{a: 1, b: 2}})][0];\n{use}")
        assert result.error is not None
        assert "used without await" in result.error.message, use
        assert "await tools.add" in result.error.message
        assert result.error.line == 2


async def test_a_host_is_warned_once_of_tools_that_say_too_little(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def login(user: str, api_key: str) -> str:
        return user

    async def execute(value: object) -> object:
        return value

    first = define_tool(name="first", execute=execute)
    second = define_tool(name="second", execute=execute)
    corral = Corral([login, first, second], check=False)
    corral.model.declarations()
    corral.model.declarations()
    assert caplog.text.count("do not declare a return type") == 1
    assert "first, second" in caplog.text
    assert "login(api_key)" in caplog.text

"""`Corral.observe`: receives the events of all executions, or of one session's, and disturbs none of them."""

from __future__ import annotations

import logging
from collections import defaultdict

import anyio
import pytest

from corral import Corral, ExecutionContext, tool
from corral.events import Event, ExecutionStarted
from corral.sandboxes import DenoSandbox
from tests.conftest import both_loops

pytestmark = pytest.mark.anyio

PROGRAM = "console.log('here'); return await tools.double({ n: 21 })"
TYPES = ["execution_started", "console_output", "tool_call_started", "tool_call_finished", "execution_finished"]
ANN = ExecutionContext(user_id="ann", session_id="of-ann")
BOB = ExecutionContext(user_id="bob", session_id="of-bob")


@tool
async def double(n: int) -> int:
    return 2 * n


@pytest.fixture
def corral() -> Corral:
    return Corral([double], check=False)


async def test_executions_at_the_same_time_are_told_apart_and_numbered_without_gaps(corral: Corral) -> None:
    seen: dict[str, list[Event]] = defaultdict(list)
    with corral.observe(lambda event: seen[event.execution_id].append(event)):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(corral.execute, PROGRAM)
    assert len(seen) == 3
    for events in seen.values():
        assert [each.type for each in events] == TYPES
        assert [each.number for each in events] == [1, 2, 3, 4, 5]


async def test_one_session_is_observed_alone(corral: Corral) -> None:
    everybody: list[str] = []
    of_ann: list[str] = []
    with (
        corral.observe(lambda event: everybody.append(event.user_id)),
        corral.observe(lambda event: of_ann.append(event.user_id), session_id="of-ann"),
    ):
        await corral.execute(PROGRAM, context=ANN)
        await corral.execute(PROGRAM, context=BOB)
    assert everybody == ["ann"] * 5 + ["bob"] * 5
    assert of_ann == ["ann"] * 5


async def test_on_event_the_handle_and_observers_receive_the_same_events(corral: Corral) -> None:
    heard: list[Event] = []
    observed: list[Event] = []
    with corral.observe(observed.append):
        async with corral.start(PROGRAM, on_event=heard.append) as run:
            iterated = [event async for event in run]
    assert len(iterated) == 5
    assert all(first is second is third for first, second, third in zip(iterated, heard, observed, strict=True))


async def test_nothing_is_received_after_the_end_of_an_observation(corral: Corral) -> None:
    seen: list[Event] = []
    observation = corral.observe(seen.append)
    await corral.execute(PROGRAM)
    observation.close()
    observation.close()
    await corral.execute(PROGRAM)
    assert len(seen) == 5


async def test_an_observer_that_comes_late_sees_by_the_numbers_what_it_missed(warm_deno: DenoSandbox) -> None:
    seen: list[int] = []
    began, observed = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> None:
        began.set()
        await observed.wait()

    corral = Corral([wait], sandbox=warm_deno, check=False)
    async with corral.start("await tools.wait()") as run:
        await began.wait()
        with corral.observe(lambda event: seen.append(event.number)):
            observed.set()
            await run.result()
    assert seen == [3, 4]


@both_loops
async def test_an_async_observer_gets_all_events_in_order(corral: Corral) -> None:
    seen: list[str] = []

    async def observe(event: Event) -> None:
        for _ in range(3 if event.type == "execution_started" else 1):
            await anyio.lowlevel.checkpoint()
        seen.append(event.type)

    async with corral.observe(observe):
        await corral.execute(PROGRAM)
    assert seen == TYPES


async def test_an_observer_that_fails_is_logged_and_disturbs_nobody(
    corral: Corral, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def fails(event: Event) -> None:
        raise ValueError(f"sync {event.type}")

    async def fails_later(event: Event) -> None:
        raise ValueError(f"async {event.type}")

    with caplog.at_level(logging.WARNING, "corral"):
        async with (
            corral.observe(fails),
            corral.observe(fails_later),
            corral.observe(lambda event: seen.append(event.type)),
        ):
            result = await corral.execute(PROGRAM)
    assert (result.value, seen) == (42, TYPES)
    assert all(f"ValueError: {kind} {each}" in caplog.text for kind in ("sync", "async") for each in TYPES)


@both_loops
async def test_no_execution_waits_for_a_slow_observer(
    corral: Corral, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("corral.events._FINISH_SECONDS", 0.01)
    ended: list[str] = []

    async def observe(event: Event) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(event.type)

    with caplog.at_level(logging.WARNING, "corral"):
        async with corral:
            corral.observe(observe)
            assert (await corral.execute(PROGRAM)).value == 42
            assert ended == []
    assert ended == ["execution_started"]
    assert "an observer did not end in time; 5 events were dropped" in caplog.text


async def test_a_slow_observer_misses_events_instead_of_piling_them_up(
    corral: Corral, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("corral.events._MOST_WAITING", 2)
    seen: list[int] = []
    go = anyio.Event()

    async def observe(event: Event) -> None:
        await go.wait()
        seen.append(event.number)

    async with corral.observe(observe):
        await corral.execute(PROGRAM)
        go.set()
    assert seen == [1, 2]
    assert "an observer is too slow; events are dropped from 'tool_call_started'" in caplog.text


def test_programs_without_an_event_loop_are_observed(corral: Corral) -> None:
    seen: list[str] = []

    async def observe(event: Event) -> None:
        seen.append(f"async {event.type}")

    with corral, corral.observe(lambda event: seen.append(event.type)), corral.observe(observe):
        corral.sync.execute(PROGRAM)
        corral.sync.execute("return 1")
    assert [each for each in seen if "async" not in each] == [*TYPES, "execution_started", "execution_finished"]
    assert [each for each in seen if "async" in each] == [
        f"async {each}" for each in (*TYPES, "execution_started", "execution_finished")
    ]


async def test_the_model_tool_passes_on_the_id_of_the_models_call(corral: Corral) -> None:
    seen: list[Event] = []
    with corral.observe(seen.append):
        await corral.model.tools()[0]({"code": PROGRAM}, ANN, tool_call_id="toolu_1")
        await corral.execute(PROGRAM)
    assert {each.tool_call_id for each in seen[:5]} == {"toolu_1"}
    assert {each.tool_call_id for each in seen[5:]} == {None}
    assert [each.source for each in seen if isinstance(each, ExecutionStarted)] == [PROGRAM, PROGRAM]

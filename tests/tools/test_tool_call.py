"""`ToolCall`: what a tool may know of the call that it serves, and the progress and the log of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from pydantic import BaseModel

from corral import Corral, ExecutionContext, Tool, ToolCall, define_tool, tool
from corral.errors import ToolDefinitionError
from corral.events import Event, ExecutionFinished, ToolCallFinished, ToolCallProgress
from corral.sandboxes import SandboxProvider
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.monty import MontySandbox
from corral.types import Language

pytestmark = pytest.mark.anyio

ADA = ExecutionContext(user_id="ada")
FORGED = "x\n2026-01-01 CRITICAL app: forged\x1b[2J"


class Item(BaseModel):
    id: int


def said(call: ToolCall) -> str:
    return f"{call.tool} {call.context.user_id} {call.sequence} {call.idempotency_key}"


@tool
async def plain(item: Item, context: ExecutionContext, call: ToolCall) -> str:
    assert context is call.context
    return said(call)


@tool
def threaded(call: ToolCall, id: int) -> str:
    return said(call)


@tool
async def many(call: ToolCall, id: int) -> AsyncIterator[str]:
    yield said(call)


@tool
def many_threaded(call: ToolCall | None = None, id: int = 0) -> Iterator[str]:
    assert call is not None
    yield said(call)


async def second(input: Item, call: ToolCall) -> str:
    return said(call)


async def both(input: Item, context: ExecutionContext, *, call: ToolCall) -> str:
    assert context is call.context
    return said(call)


class Store:
    async def reads(self, id: int, call: ToolCall) -> str:
        return said(call)


TOOLS: list[Tool] = [
    plain,
    threaded,
    many,
    many_threaded,
    define_tool(name="second", input_schema=Item, execute=second),
    define_tool(name="both", input_schema=Item, execute=both),
    tool(Store().reads),
]
INPUTS = {"plain": {"item": {"id": 1}}, **{each.name: {"id": 1} for each in TOOLS[1:]}}


@pytest.mark.parametrize("made", TOOLS, ids=[each.name for each in TOOLS])
async def test_every_form_of_tool_receives_its_call(made: Tool) -> None:
    assert "call" not in str(made.input_schema)
    call = ToolCall(ADA, execution_id="e", sequence=7, tool="ns.t")
    value = await made.execute(await made.parse_input(INPUTS[made.name]), call)
    assert value in ("ns.t ada 7 e:7", ["ns.t ada 7 e:7"])


async def test_one_parameter_takes_the_call() -> None:
    with pytest.raises(ToolDefinitionError, match="a and b both take the ToolCall"):

        @tool
        def twice(a: ToolCall, b: ToolCall) -> None: ...


TYPESCRIPT = "return await Promise.all([tools.threaded({id: 1}), tools.threaded({id: 2})])"
PYTHON = "import asyncio\nawait asyncio.gather(tools.threaded(id=1), tools.threaded(id=2))"


@pytest.mark.parametrize(
    ("sandbox", "language", "program"),
    [
        (DenoSandbox(pool_size=0), "typescript", TYPESCRIPT),
        (CPythonSandbox(), "python", PYTHON),
        (MontySandbox(), "python", PYTHON),
    ],
    ids=["typescript", "cpython", "monty"],
)
async def test_calls_at_the_same_time_have_keys_of_their_own(
    sandbox: SandboxProvider, language: Language, program: str
) -> None:
    async with Corral([threaded], sandbox=sandbox, check=False) as corral:
        result = await corral.execute(program, language=language, context=ADA)
    result.raise_for_error()
    assert set(result.value) == {f"threaded ada {n} {result.execution_id}:{n}" for n in (1, 2)}


async def test_calls_over_http_have_keys_of_their_own() -> None:
    corral = Corral([threaded], check=False)
    transport = httpx.ASGITransport(app=corral.remote.asgi_app())
    with corral.remote.grant(ADA) as execution:
        headers = {"authorization": f"Bearer {execution.token()}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            answers = [(await client.post("/tools/threaded", json={"id": 1})).json() for _ in range(2)]
            batch = [{"sequence": number, "tool": "threaded", "input": {"id": 1}} for number in (1, 2)]
            await client.post("/calls", json={"calls": batch})
            answers.append((await client.post("/tools/threaded", json={"id": 1})).json())
    assert answers == [f"threaded ada {n} {execution.execution_id}:{n}" for n in (1, 2, 5)]


# --- progress


async def events_of(made: Tool, program: str) -> list[Event]:
    events: list[Event] = []
    await Corral([made], check=False).execute(program, on_event=events.append)
    return events


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_progress_becomes_events_before_the_end_of_the_call(*, sync: bool) -> None:
    def report(call: ToolCall) -> None:
        call.progress(1, 2, "reading")
        call.progress(2)

    @tool(name="work")
    async def work(call: ToolCall) -> None:
        report(call)
        await anyio.to_thread.run_sync(call.progress, 3)

    @tool(name="work")
    def work_in_thread(call: ToolCall) -> None:
        report(call)
        call.progress(3)

    events = await events_of(work_in_thread if sync else work, "await tools.work()")
    kinds = [event.type for event in events]
    assert kinds == [
        "execution_started",
        "tool_call_started",
        "tool_call_progress",
        "tool_call_progress",
        "tool_call_progress",
        "tool_call_finished",
        "execution_finished",
    ]
    told = [event for event in events if isinstance(event, ToolCallProgress)]
    assert [(each.done, each.total, each.message) for each in told] == [
        (1, 2, "reading"),
        (2, None, None),
        (3, None, None),
    ]
    assert {(each.tool, each.sequence) for each in told} == {("work", 1)}


async def test_progress_is_bounded_in_number_and_size() -> None:
    @tool
    async def flood(call: ToolCall) -> None:
        for number in range(5_000):
            call.progress(number, message="x" * 100_000)

    told = [each for each in await events_of(flood, "await tools.flood()") if isinstance(each, ToolCallProgress)]
    assert len(told) == 1_000
    assert {len(each.message or "") for each in told} == {1_000}


async def test_a_thread_that_goes_on_after_its_call_reports_nothing() -> None:
    go_on, reported = threading.Event(), threading.Event()

    @tool(timeout_seconds=0.05)
    def slow(call: ToolCall) -> None:
        go_on.wait()
        call.progress(1)
        reported.set()

    events: list[Event] = []

    def see(event: Event) -> None:
        events.append(event)
        if isinstance(event, ToolCallFinished):
            go_on.set()

    await Corral([slow], check=False).execute("try { await tools.slow() } catch {}", on_event=see)
    await anyio.to_thread.run_sync(reported.wait)
    assert not any(isinstance(each, ToolCallProgress) for each in events)
    assert isinstance(events[-1], ExecutionFinished)


# --- logs


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    found: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler = Handler()
    logger = logging.getLogger("app")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@tool(namespace="crm")
def talk(call: ToolCall, text: str) -> None:
    call.logger.info(f"asked for {text}", extra={"mine": 1})
    call.logger.warning("asked for %s", text)


async def test_a_tool_logs_below_the_logger_of_its_corral(records: list[Any]) -> None:
    corral = Corral([talk], check=False, logger=logging.getLogger("app"))
    result = await corral.execute("await tools.crm.talk({text: 'sheep'})")
    assert [(each.name, each.levelname, each.getMessage()) for each in records] == [
        ("app.tools.crm.talk", "INFO", "asked for sheep"),
        ("app.tools.crm.talk", "WARNING", "asked for sheep"),
    ]
    assert {(each.execution_id, each.sequence) for each in records} == {(result.execution_id, 1)}
    assert records[0].mine == 1


async def test_the_text_of_a_program_cannot_forge_a_line_in_the_log_of_a_tool(records: list[Any]) -> None:
    made = await talk.parse_input({"text": FORGED})
    await talk.execute(made, ToolCall(ADA, tool="talk", logger=logging.getLogger("app")))
    assert len(records) == 2
    assert all(each.getMessage().isprintable() for each in records)


async def test_programs_are_logged_only_if_asked(
    records: list[logging.LogRecord], caplog: pytest.LogCaptureFixture
) -> None:
    app = logging.getLogger("app")
    await Corral(check=False, logger=app).execute("return 1")
    assert records == []
    caplog.set_level("INFO", logger="app.programs")
    await Corral(check=False, logger=app).execute(f"/* {FORGED} */ return 1")
    [record] = records
    assert (record.name, record.levelname) == ("app.programs", "INFO")
    _, *lines = record.getMessage().split("\n")
    assert "    | 2026-01-01 CRITICAL app: forged\\x1b[2J */ return 1" in lines
    assert all(line.startswith("    | ") for line in lines)

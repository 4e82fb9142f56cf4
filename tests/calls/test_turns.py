"""A sequential tool runs alone within its execution, and calls start in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, Limits, Tool, define_tool, tool
from corral.bridges import BridgeHost
from corral.calls import Call, Grant
from corral.calls.guards import sequence_calls
from corral.checking import Gate, Verdict
from corral.events import Event, ToolCallStarted
from corral.sandboxes import DenoSandbox
from corral.tools import ToolRegistry
from corral.types import CallRequest, Reply
from tests.calls.clocks import grant_here, seconds_left, use_up
from tests.until import until

pytestmark = pytest.mark.anyio

BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def named(name: str, *, sequential: bool = False) -> Tool:
    def execute(input: object) -> None: ...

    return define_tool(name=name, execute=execute, sequential=sequential)


class Desk:
    """One execution's calls, which run until they are let go."""

    def __init__(self) -> None:
        tools = ToolRegistry(named("a"), named("b"), named("alone", sequential=True))
        self.grant = Grant(context=ExecutionContext(), limits=Limits(), tools=tools)
        self.log: list[str] = []
        self.events: dict[str, anyio.Event] = {}
        self.handler = sequence_calls(self.work)

    async def work(self, call: Call) -> Reply:
        key = str(call.request.input)
        self.log.append(f"+{key}")
        try:
            await self.events.setdefault(key, anyio.Event()).wait()
        finally:
            self.log.append(f"-{key}")
        return Reply()

    def end(self, key: str) -> None:
        self.events.setdefault(key, anyio.Event()).set()

    def call(self, name: str, key: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def made() -> None:
            await self.handler(Call(CallRequest(name, key, 1), self.grant))

        return made


@BOTH_LOOPS
async def test_it_starts_when_all_before_it_have_ended_and_those_after_it_wait() -> None:
    desk = Desk()
    async with anyio.create_task_group() as tasks:
        for name, key in [("a", "1"), ("b", "2"), ("alone", "3"), ("a", "4"), ("b", "5"), ("alone", "6"), ("a", "7")]:
            tasks.start_soon(desk.call(name, key))
            await anyio.wait_all_tasks_blocked()
        assert desk.log == ["+1", "+2"]
        for key in "1235467":
            desk.end(key)
            await anyio.wait_all_tasks_blocked()
    assert desk.log[:6] == ["+1", "+2", "-1", "-2", "+3", "-3"]
    assert sorted(desk.log[6:8]) == ["+4", "+5"]  # both at once, and it is up to the event loop which one begins
    assert desk.log[8:] == ["-5", "-4", "+6", "-6", "+7", "-7"]


@BOTH_LOOPS
async def test_a_call_that_is_cancelled_while_it_waits_or_runs_holds_nobody_up() -> None:
    desk = Desk()
    async with anyio.create_task_group() as tasks:
        scopes = [anyio.CancelScope() for _ in range(3)]

        async def within(scope: anyio.CancelScope, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
            with scope:
                await call()

        for scope, name, key in zip(scopes, ["a", "alone", "a"], "123", strict=True):
            tasks.start_soon(within, scope, desk.call(name, key))
            await anyio.wait_all_tasks_blocked()
        assert desk.log == ["+1"]
        scopes[1].cancel()  # it waits
        await anyio.wait_all_tasks_blocked()
        assert desk.log == ["+1", "+3"]
        tasks.start_soon(desk.call("alone", "4"))
        await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()  # it runs
        scopes[2].cancel()
        await anyio.wait_all_tasks_blocked()
        assert desk.log[-1] == "+4"
        desk.end("4")
    assert desk.log[4:] == ["+4", "-4"]


@BOTH_LOOPS
async def test_a_turn_that_comes_in_the_moment_of_a_cancellation_passes_on() -> None:
    desk = Desk()
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def cancelled() -> None:
            with scope:
                await desk.call("alone", "2")()

        tasks.start_soon(desk.call("a", "1"))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(desk.call("a", "3"))
        await anyio.wait_all_tasks_blocked()
        desk.grant.turns.running -= 1
        desk.grant.turns.pass_on()  # as the end of the first does, in the very moment
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert "+3" in desk.log
        desk.grant.turns.running += 1
        desk.end("1")
        desk.end("3")


async def test_a_stream_that_asyncio_cancels_while_it_waits_for_its_turn_again_leaves_the_others_theirs() -> None:
    desk = Desk()
    turns, room = desk.grant.turns, anyio.Event()

    async def stream(_: Call) -> Reply:
        await turns.lend(room.wait(), alone=False)
        return Reply()

    async def call() -> None:
        await sequence_calls(stream)(Call(CallRequest("a", "stream", 1), desk.grant))

    streaming = asyncio.create_task(call())
    await anyio.wait_all_tasks_blocked()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.call("alone", "1"))
        await anyio.wait_all_tasks_blocked()
        room.set()
        await anyio.wait_all_tasks_blocked()
        streaming.cancel()
        await anyio.wait_all_tasks_blocked()
        desk.end("1")
    with pytest.raises(asyncio.CancelledError):
        await streaming
    assert (turns.running, turns.contended) == (0, False)


async def test_calls_that_come_as_the_check_ends_do_not_overtake_those_that_waited_for_it() -> None:
    class Checker:
        def begin(self, case: object) -> None: ...

        def reconsidered(self, case: object, verdict: Verdict) -> Verdict:
            return verdict

        async def verdict(self, case: object) -> Verdict:
            return Verdict(unchecked="no checker")

    log: list[object] = []

    async def work(call: Call) -> Reply:
        log.append(call.request.input)
        return Reply()

    async def call(number: int) -> None:
        await host.handle(Call(CallRequest("a", number, number), grant))

    grants: Any = None
    checker: Any = Checker()
    case: Any = SimpleNamespace(must=False)
    host = BridgeHost(work, grants)
    grant = Grant(context=ExecutionContext(), limits=Limits(), tools=ToolRegistry(named("a")))
    grant.gate = gate = Gate(checker, case)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, 1)
        tasks.start_soon(call, 2)
        await anyio.wait_all_tasks_blocked()
        await gate.decide()
        assert gate.is_open
        for number in range(3, 20):
            tasks.start_soon(call, number)
            await anyio.lowlevel.checkpoint()
    assert log == list(range(1, 20))
    assert (grant.gate, grant.held) == (None, 0)


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_programs_of_one_execution_find_it_alone_and_those_of_another_do_not_wait(
    language: Any, warm: Any
) -> None:
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    async def count(name: str) -> None:
        running[name] = running.get(name, 0) + 1
        most[name] = max(most.get(name, 0), sum(running.values()))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running[name] -= 1

    @tool
    async def together(n: int) -> int:
        await count("together")
        return n

    @tool(sequential=True)
    async def alone(n: int) -> int:
        await count("alone")
        return n

    programs = {
        "typescript": "return Promise.all([1,2,3,4,5,6,7,8].map(n => n % 3 ? tools.together({ n }) : tools.alone({ n })))",
        "python": "import asyncio\n"
        "await asyncio.gather(*(tools.together(n=n) if n % 3 else tools.alone(n=n) for n in range(1, 9)))",
    }
    async with Corral([together, alone], sandbox=warm, check=False) as corral:
        result = await corral.execute(programs[language], language=language)
    assert result.value == [1, 2, 3, 4, 5, 6, 7, 8]
    assert most["alone"] == 1
    assert most["together"] == 2


async def test_a_sequential_tool_may_run_a_program_of_its_own(warm_deno: DenoSandbox) -> None:
    corral = Corral(sandbox=warm_deno, check=False)

    @tool(sequential=True)
    async def outer() -> Any:
        return (await corral.execute("return await tools.inner()")).value

    @tool(sequential=True)
    async def inner() -> int:
        return 7

    async with corral:
        corral.tools.register(outer, inner)
        assert (await corral.execute("return await tools.outer()")).value == 7


async def test_waiting_counts_to_the_wall_clock_of_the_program(warm_deno: DenoSandbox) -> None:
    grants: list[Grant] = []
    left: list[float] = []

    @tool(sequential=True)
    async def stuck() -> None:
        grants.append(grant_here())
        await anyio.sleep_forever()

    @tool
    async def other() -> None: ...

    async def end(event: Event) -> None:
        if isinstance(event, ToolCallStarted) and event.call.name == "other":
            await until(lambda: grants)
            left.append(seconds_left(grants[0]))
            use_up(grants[0])

    corral = Corral([stuck, other], sandbox=warm_deno, check=False, limits=Limits(wall_seconds=60))
    result = await corral.execute("await Promise.all([tools.stuck(), tools.other()])", on_event=end)
    assert left[0] <= 60, "the clock does not stand"
    assert (result.status, [call.name for call in result.tool_calls]) == ("timed_out", ["stuck", "other"])

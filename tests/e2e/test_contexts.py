"""`DenoSandbox(isolation="context")`: what executions of one user share, what they never do, and how they end together."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from corral import (
    Corral,
    ExecutionContext,
    ExecutionResult,
    Limits,
    Run,
    ToolCallFinished,
    ToolCallStarted,
    define_tool,
)
from corral.events import Event
from corral.sandboxes import DenoSandbox
from corral.sandboxes.jailed.shared_guest import SharedGuest
from corral.types import TrustDomain
from tests.conftest import TOOLS
from tests.processes import assert_ending, guests

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann")
SECONDS = 20
"""For what takes a second; so long as to be a failure, not bad luck."""


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, {"use_uvloop": False} if request.param == "asyncio" else {}


@pytest.fixture
def sandbox() -> DenoSandbox:
    return DenoSandbox(isolation="context", pool_size=1)


class Meeting:
    """A tool in which programs wait until as many as there should be are there."""

    def __init__(self) -> None:
        self.size = 2
        self.everybody = anyio.Event()
        self.there = 0

    async def meet(self, input: object) -> None:
        self.there += 1
        if self.there >= self.size:
            self.everybody.set()
        await self.everybody.wait()


@pytest.fixture
async def meeting() -> Meeting:
    return Meeting()


@pytest.fixture
async def corral(sandbox: DenoSandbox, meeting: Meeting) -> AsyncIterator[Corral]:
    """Every test must leave it so that the next execution works, and ends with it."""
    others = guests()
    limits = Limits(wall_seconds=SECONDS, cpu_seconds=10)
    meet = define_tool(name="meet", execute=meeting.meet)
    with anyio.fail_after(3 * SECONDS):
        async with Corral([*TOOLS, meet], sandbox=sandbox, limits=limits, check=False) as corral:
            yield corral
            after = await corral.execute("return await tools.add({a: 1, b: 2})", context=ANN)
            assert after.value == 3, after.error
            assert shared(sandbox).keys() >= {TrustDomain(None, "ann")}
    assert shared(sandbox) == {}
    assert guests() <= others


def shared(sandbox: DenoSandbox) -> dict[TrustDomain, list[Any]]:
    """The guests that take executions, or have some, by whom they are for."""
    return {domain: list(each) for config, each in sandbox._servers._boxes.items() if (domain := config.trust_domain)}


def pids(sandbox: DenoSandbox, context: ExecutionContext = ANN) -> list[int]:
    """The processes that a next execution of this user may be in."""
    domain = TrustDomain(context.organization_id, context.user_id)
    return [guest.process.pid for guest in shared(sandbox).get(domain, []) if not guest.retired]


WAIT = "await tools.wait({seconds: 60})"


async def at_once(corral: Corral, *programs: str, limits: Limits | None = None) -> list[ExecutionResult]:
    """The results of programs that run at the same time, in their order."""
    results: dict[int, ExecutionResult] = {}

    async def one(number: int, program: str) -> None:
        results[number] = await corral.execute(program, context=ANN, limits=limits)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for number, program in enumerate(programs):
                tasks.start_soon(one, number, program)
    return [results[number] for number in range(len(programs))]


async def until(holds: Callable[[], bool]) -> None:
    """Turns of the event loop until something holds."""
    with anyio.fail_after(SECONDS):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def first_call(run: Run) -> None:
    """Waits until a program has called a tool."""
    with anyio.fail_after(SECONDS):
        events = cast("AsyncGenerator[Event]", aiter(run))
        async with aclosing(events):  # trio wants it closed
            async for event in events:
                if isinstance(event, ToolCallStarted):
                    return
    raise AssertionError("it ended without a call")


def code_of(result: ExecutionResult) -> str | None:
    return result.error and result.error.code


# --- who shares a process


async def test_users_and_organizations_never_share_a_process_but_the_same_user_does(
    corral: Corral, sandbox: DenoSandbox, meeting: Meeting
) -> None:
    whose = [
        ExecutionContext(user_id=user, organization_id=organization)
        for user, organization in [("ann", None), ("bob", None), ("ann", "x"), ("ann", "y"), ("", None), ("ann", "")]
    ]
    meeting.size = 2 * len(whose) + 1
    results: list[ExecutionResult] = []
    found: dict[TrustDomain, list[SharedGuest]] = {}

    async def one(context: ExecutionContext) -> None:
        results.append(await corral.execute("await tools.meet(); return 1", context=context))

    async with anyio.create_task_group() as tasks:
        for context in [*whose, *whose]:
            tasks.start_soon(one, context)
        await until(lambda: meeting.there == 2 * len(whose))
        found |= shared(sandbox)
        await meeting.meet(None)
    assert [result.value for result in results] == [1] * len(results)
    assert set(found) == {TrustDomain(context.organization_id, context.user_id) for context in whose}
    assert all(len(each) == 1 for each in found.values())
    processes = {each[0].process.pid for each in found.values()}
    assert len(processes) == len(whose)
    assert processes <= guests()


async def test_the_next_execution_of_a_user_has_the_same_process(corral: Corral, sandbox: DenoSandbox) -> None:
    await corral.execute("return 1", context=ANN)
    (process,) = pids(sandbox)
    for program in ["return 2", "throw new Error('x')", "tools.wait({seconds: 0.01})", "console.log(1)", "let x = ;"]:
        await corral.execute(program, context=ExecutionContext(user_id="ann", session_id=program, scopes={"a"}))
        assert pids(sandbox) == [process], program


async def test_more_at_once_than_one_process_serves_get_another(
    corral: Corral, sandbox: DenoSandbox, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.sandboxes.jailed.shared_guest._AT_ONCE", 3)
    meeting.size = 7
    results = await at_once(corral, *["await tools.meet(); return 1"] * 7)
    assert [result.value for result in results] == [1] * 7
    assert len(pids(sandbox)) == 3


async def test_a_process_takes_no_more_after_so_many_executions(
    corral: Corral, sandbox: DenoSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.sandboxes.jailed.shared_guest._EXECUTIONS", 5)
    used: list[int] = []
    for number in range(12):
        assert (await corral.execute(f"return {number}", context=ANN)).value == number
        used += pids(sandbox)
    assert [used.count(process) for process in dict.fromkeys(used)] == [5, 5, 2]
    assert_ending(set(used) - {used[-1]})


@pytest.mark.parametrize("megabytes", [1, 80])
async def test_a_process_that_holds_much_takes_no_more(corral: Corral, sandbox: DenoSandbox, megabytes: int) -> None:
    held = f"const held = new Uint8Array({megabytes} << 20).fill(1); await tools.nothing(); {WAIT}; return held.length"
    async with corral.start(held, context=ANN) as run:
        await first_call(run)
        used = pids(sandbox)
        assert (await corral.execute("return 1", context=ANN)).value == 1
        assert (pids(sandbox) == used) == (megabytes == 1)
        run.cancel()


async def test_only_so_many_idle_processes_are_kept(
    corral: Corral, sandbox: DenoSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.sandboxes.pool._MAX_IDLE", 2)
    used: list[int] = []
    for user in "abcdef":
        context = ExecutionContext(user_id=user)
        assert (await corral.execute("return 1", context=context)).value == 1
        used += pids(sandbox, context)
    assert len(set(used)) == 6
    assert_ending(used[:3])
    assert {*used[-2:]} <= guests()


# --- what they do not share


async def test_what_one_execution_sets_is_neither_in_the_next_nor_in_one_beside_it(
    corral: Corral, sandbox: DenoSandbox
) -> None:
    pollute = "globalThis.left = Object.prototype.left = Array.left = console.left = 1; "
    seen = "return [typeof left, {}.left, Array.left, console.left, Object.keys(globalThis).includes('left')]"
    clean = ["undefined", None, None, None, False]
    results = await at_once(
        corral, f"{pollute} await tools.meet(); return left", f"await tools.meet(); await tools.nothing(); {seen}"
    )
    assert [result.value for result in results] == [1, clean]
    (process,) = pids(sandbox)
    assert (await corral.execute(seen, context=ANN)).value == clean
    assert pids(sandbox) == [process]


async def test_many_at_once_get_their_own_replies_console_and_results(
    corral: Corral, sandbox: DenoSandbox, meeting: Meeting
) -> None:
    many = 64
    meeting.size = many
    program = """
        console.log('begins %d');
        await tools.meet();
        const got = await Promise.all(Array.from({ length: 20 }, (_, i) => tools.echo({ of: %d, i })));
        for (const { of, i } of got) console.log(of, i);
        return [%d, got.every((each, i) => each.of === %d && each.i === i), (await tools.echo('x'.repeat(%d))).length]
    """
    sizes = [1 + 3000 * number for number in range(many)]
    results = await at_once(corral, *[program % (n, n, n, n, sizes[n]) for n in range(many)])
    assert [result.value for result in results] == [[n, True, sizes[n]] for n in range(many)]
    for number, result in enumerate(results):
        assert result.output.splitlines() == [f"begins {number}", *(f"{number} {i}" for i in range(20))]
    assert len(pids(sandbox)) == 1


@pytest.mark.parametrize("size", [1, 60_000, 65_536, 131_072, 200_000, 900_000])
async def test_values_of_any_size_arrive_whole_beside_each_other(corral: Corral, size: int) -> None:
    program = f"await tools.meet(); console.log('%d'); return [%d, (await tools.echo('x'.repeat({size}))).length, 'y'.repeat({size})]"
    results = await at_once(corral, *[program % (n, n) for n in range(4)])
    assert [result.value for result in results] == [[n, size, "y" * size] for n in range(4)]
    assert [result.output for result in results] == ["0\n", "1\n", "2\n", "3\n"]


async def test_a_late_timer_of_one_execution_says_nothing_in_the_next(corral: Corral) -> None:
    await corral.execute("setTimeout(() => console.log('late'), 5); Promise.resolve().then(() => {})", context=ANN)
    after = await corral.execute("await tools.wait({seconds: 0.05}); return 1", context=ANN)
    assert (after.value, after.output) == (1, "")


# --- how they end

LOOP = "await tools.nothing(); while (true) {}"
HEAP_BOMB = "const a = []; for (;;) a.push({ x: [1, 2, 3] })"
BUFFER_BOMB = "const a = []; for (;;) a.push(new Uint8Array(8 << 20).fill(1))"


@pytest.mark.parametrize(
    ("program", "code", "limits"),
    [
        (WAIT, "program_timeout", Limits(wall_seconds=0.2)),
        (LOOP, "program_timeout", Limits(wall_seconds=0.2)),
        (LOOP, "program_timeout", Limits(cpu_seconds=0.2)),
        (HEAP_BOMB, "memory_exceeded", Limits(wall_seconds=20, cpu_seconds=10)),
    ],
    ids=["waits too long", "loops too long", "computes too long", "heap bomb"],
)
async def test_a_process_is_not_used_again_after_a_limit_ended_an_execution(
    corral: Corral, sandbox: DenoSandbox, program: str, code: str, limits: Limits
) -> None:
    await corral.execute("return 1", context=ANN)
    (process,) = pids(sandbox)
    result = await corral.execute(program, context=ANN, limits=limits)
    assert code_of(result) == code
    assert_ending([process])
    assert (await corral.execute("return 2", context=ANN)).value == 2
    assert pids(sandbox) != [process]


@pytest.mark.parametrize(
    "program",
    [
        "throw new Error('x')",
        "setTimeout(() => { throw new Error('x') }); await new Promise(() => {})",
        "tools.fail()",
        "return await tools.echo('x'.repeat(2_000_000))",
    ],
)
async def test_an_error_of_a_program_ends_nothing_but_it(corral: Corral, sandbox: DenoSandbox, program: str) -> None:
    results = await at_once(corral, f"await tools.meet(); {program}", "await tools.meet(); return await tools.echo(1)")
    assert [result.status for result in results] == ["failed", "succeeded"]
    (process,) = pids(sandbox)
    assert (await corral.execute("return 2", context=ANN)).value == 2
    assert pids(sandbox) == [process]


async def test_what_ran_beside_one_that_waited_too_long_comes_to_its_own_end(
    corral: Corral, sandbox: DenoSandbox
) -> None:
    async with corral.start("return await tools.wait({seconds: 0.6})", context=ANN) as beside:
        await first_call(beside)
        (process,) = pids(sandbox)
        late = await corral.execute(WAIT, context=ANN, limits=Limits(wall_seconds=0.1))
        assert code_of(late) == "program_timeout"
        assert pids(sandbox) == []
        assert process in guests()
        assert (await corral.execute("return 1", context=ANN)).value == 1
        assert pids(sandbox) != [process]
        assert (await beside.result()).value == 0.6
        assert_ending([process])


@pytest.mark.parametrize(
    ("program", "codes", "unharmed"),
    [
        (LOOP, {"program_timeout"}, set[str | None]()),
        (HEAP_BOMB, {"memory_exceeded", "program_timeout"}, set[str | None]()),
        # The engine refuses the buffer, which is an error of this program only; unless it needs memory itself just then.
        (BUFFER_BOMB, {"memory_exceeded", "program_timeout"}, {None}),
    ],
    ids=["loop", "heap bomb", "buffer bomb"],
)
async def test_what_ran_beside_a_bomb_is_lost_and_never_hangs(
    corral: Corral, meeting: Meeting, program: str, codes: set[str], unharmed: set[str | None]
) -> None:
    meeting.size = 6
    beside = [f"console.log({number}); await tools.meet(); await tools.wait({{seconds: 0.1}})" for number in range(5)]
    limits = Limits(wall_seconds=SECONDS + 10, cpu_seconds=1)
    bomb, *others = await at_once(corral, f"await tools.meet(); {program}", *beside, limits=limits)
    ends = [code_of(bomb), *(code_of(other) for other in others)]
    assert code_of(bomb) is not None
    # The first whose limit of processor time is up ends the process for all. Their limits are alike, so it may be any.
    assert set(ends) & codes
    assert set(ends) <= {"sandbox_lost", *codes, *unharmed}
    assert [other.output for other in others] == [f"{number}\n" for number in range(5)], "what they said is kept"


async def test_the_one_who_has_no_limit_to_blame_is_lost(corral: Corral) -> None:
    async with corral.start(f"await tools.nothing(); {WAIT}", context=ANN) as beside:
        await first_call(beside)
        loop = await corral.execute(LOOP, context=ANN, limits=Limits(cpu_seconds=0.2))
        assert code_of(loop) == "program_timeout"
        with anyio.fail_after(SECONDS):
            assert code_of(await beside.result()) == "sandbox_lost"


async def test_a_killed_process_loses_all_that_ran_in_it_once(corral: Corral, sandbox: DenoSandbox) -> None:
    runs: list[ExecutionResult] = []

    async def one() -> None:
        runs.append(await corral.execute(f"console.log('x'); {WAIT}", context=ANN))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(one)
            await until(lambda: sum(len(each[0].shares) for each in shared(sandbox).values()) == 8)
            (guest,) = shared(sandbox)[TrustDomain(None, "ann")]
            guest.process.kill()
    assert {code_of(run) for run in runs} == {"sandbox_lost"}
    assert len(runs) == 8


@pytest.mark.parametrize("program", [WAIT, LOOP, f"await tools.nothing(); {HEAP_BOMB}"], ids=["waits", "loops", "bomb"])
async def test_a_cancelled_execution_leaves_a_later_one_working(
    corral: Corral, sandbox: DenoSandbox, program: str
) -> None:
    async with corral.start(program, context=ANN) as run:
        await first_call(run)
        processes = pids(sandbox)
        run.cancel()
        assert (await run.result()).status == "cancelled"
    assert_ending(processes)


async def test_after_a_violation_a_process_takes_no_more_and_what_runs_beside_goes_on(
    corral: Corral, sandbox: DenoSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.sandboxes.framed.session._LEVELS", frozenset({"log"}))  # an error is a level unheard of
    async with corral.start("await tools.nothing(); return await tools.wait({seconds: 0.5})", context=ANN) as beside:
        await first_call(beside)
        (process,) = pids(sandbox)
        assert code_of(await corral.execute("console.error(1)", context=ANN)) == "malformed_message"
        assert pids(sandbox) == []
        assert (await beside.result()).value == 0.5
        assert_ending([process])


async def test_what_waits_for_its_turn_to_write_does_not_wait_for_a_guest_that_is_gone(
    corral: Corral, sandbox: DenoSandbox
) -> None:
    go = anyio.Event()

    async def big(input: object) -> str:
        await go.wait()
        return "x" * 3_000_000  # more than a pipe holds, for a guest that does not read: stuck in the middle

    async def nothing(input: object) -> None:
        pass

    tools = [define_tool(name="big", execute=big), define_tool(name="nothing", execute=nothing)]
    program = "tools.big(); await tools.nothing(); while (true) {}"
    async with corral.start(
        program, context=ANN, tools=tools, on_event=lambda event: _set_at(ToolCallFinished, event, go)
    ) as stuck:
        await until(lambda: any(guest.writer is not None for each in shared(sandbox).values() for guest in each))
        (guest,) = shared(sandbox)[TrustDomain(None, "ann")]
        async with corral.start("return 1", context=ANN) as second:
            await until(lambda: guest._written.statistics().tasks_waiting == 1)
            stuck.cancel()
            with anyio.fail_after(5):
                assert code_of(await second.result()) == "sandbox_lost"


# --- what TypeScript adds to JavaScript, and errors

SOURCES = [
    "enum E { A = 3 }\nreturn E[3]",
    "enum E { A }\n\n throw new TypeError('x' + E.A)",
    "enum E { A }\nconsole.log(E.A);\nreturn await tools.add({ a: E.A, b: 1 })",
    "@dec class A {}\nreturn 1",
    "const d = (f, c) => { throw new Error(c.name) };\nclass A {\n  @d m() {}\n}",
    "enum E { A }\nif (E.A === 0) { console.log(new Error('x')); }\nreturn 1",
    "enum E { A }\nif (E.A === 0) { console.log(1); }\ntry { await tools.fail({ message: 'no' }) } catch (e) { return e.name }",
    "enum E { A }\nif (E.A === 0) { console.log(1); }\nawait tools.fail({ message: 'no' })",
    "namespace N { export const f = () => { throw new Error('x') } }\nif (true) { [1].map(N.f) }",
    "class P { constructor(private x) { if (x) { console.trace(x) } } s() { return new Error('x').stack } }\nreturn new P(1).s()",
    "namespace N { export const a = 1 }\nreturn N.a",
    "class A { constructor(private x: number) {} get y() { return this.x } }\nreturn new A(3).y",
    "const x: number = 1;\n  null.x",
    "const f = () => { throw new RangeError('x') };\n\nf()",
    "await tools.fail({ message: 'no' })",
    "return 1 +",
    "\n  const = 1",
    "return /(/",
    "let a;\nlet a;",
    "let x = 1;\nlet y = 2; 'a'++;",
    "label: while (1) {\n break lable }",
    "class A { #x; #x }",
    "const { a, a } = {}",
    "super.x",
    "function f() { 'use strict'; with (a) {} }",
    "return await import('x')",
]


@pytest.mark.parametrize("source", SOURCES)
async def test_a_program_ends_as_in_a_process_of_its_own(corral: Corral, source: str) -> None:
    alone = DenoSandbox(pool_size=0)
    async with Corral(TOOLS, sandbox=alone, check=False) as other:
        expected = await other.execute(source)
    result = await corral.execute(source, context=ANN)
    assert (result.status, result.value, result.output) == (expected.status, expected.value, expected.output)
    assert result.error == expected.error
    assert result.diagnostics == expected.diagnostics


# --- from outside

# Tasks of trio cannot be cancelled one by one.
only_asyncio = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])


@only_asyncio
async def test_a_cancelled_task_leaves_nothing_and_what_runs_beside_goes_on(
    corral: Corral, sandbox: DenoSandbox
) -> None:
    async with corral.start("await tools.nothing(); return await tools.wait({seconds: 0.5})", context=ANN) as beside:
        await first_call(beside)
        task = asyncio.create_task(corral.execute(WAIT, context=ANN))
        await until(lambda: any(len(guest.shares) == 2 for each in shared(sandbox).values() for guest in each))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await beside.result()).value == 0.5
    assert shared(sandbox).get(TrustDomain(None, "ann"), []) == [] or pids(sandbox) == []


@only_asyncio
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_task_that_is_cancelled_again_while_it_ends_leaves_no_process(
    corral: Corral, sandbox: DenoSandbox, times: int
) -> None:
    started = anyio.Event()
    task = asyncio.create_task(
        corral.execute(LOOP, context=ANN, on_event=lambda event: _set_at(ToolCallStarted, event, started))
    )
    await started.wait()
    (guest,) = shared(sandbox)[TrustDomain(None, "ann")]
    for _ in range(times):
        task.cancel()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert guest.retired
    assert guest.shares == {}
    assert_ending([guest.process.pid])


def _set_at(kind: type, event: object, seen: anyio.Event) -> None:
    if isinstance(event, kind):
        seen.set()


def test_threads_without_event_loops_share_a_process_in_turns() -> None:
    others = guests()
    sandbox = DenoSandbox(isolation="context", pool_size=0)
    results: list[object] = []

    def work(number: int) -> None:
        for turn in range(5):
            program = f"return await tools.add({{a: {number}, b: {turn}}})"
            results.append((number, turn, corral.execute_sync(program, context=ANN).value))

    corral = Corral(TOOLS, sandbox=sandbox, check=False)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(map(str, results)) == sorted(str((n, t, n + t)) for n in range(4) for t in range(5))
    processes = guests() - others
    assert len(processes) <= 4
    anyio.run(sandbox.aclose)
    assert_ending(processes)


def test_threads_share_an_open_corral() -> None:
    others = guests()
    results: list[object] = []
    with Corral(TOOLS, sandbox=DenoSandbox(isolation="context"), check=False) as corral:

        def work(number: int) -> None:
            results.append(corral.execute_sync(f"return await tools.echo({number})", context=ANN).value)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert set(results) == set(range(8))
    assert guests() <= others


async def test_nothing_is_left_after_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    others = guests()
    await anyio.to_thread.run_sync(int)  # what the event loop itself keeps open for threads
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    async with Corral(TOOLS, sandbox=DenoSandbox(isolation="context"), check=False) as corral:
        programs = ["return 1", "throw 1", "await tools.fail()", "let x = ;", "return /(/", "enum E { A } return E.A"]
        await at_once(corral, *programs, *programs)
        for number, program in enumerate([*programs, LOOP, WAIT, "return 1", BUFFER_BOMB]):
            context = ExecutionContext(user_id=str(number % 3))
            await corral.execute(program, context=context, limits=Limits(wall_seconds=0.5))
    assert list(tmp_path.iterdir()) == []
    assert guests() <= others
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1


async def test_closing_ends_what_runs(meeting: Meeting) -> None:
    others = guests()
    results: list[ExecutionResult] = []
    meeting.size = 6
    corral = Corral(
        [*TOOLS, define_tool(name="meet", execute=meeting.meet)], sandbox=DenoSandbox(isolation="context"), check=False
    )

    async def one(user: str) -> None:
        context = ExecutionContext(user_id=user)
        results.append(await corral.execute(f"await tools.meet(); {WAIT}", context=context))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for user in ["a", "a", "a", "b", "b", "b"]:
                tasks.start_soon(one, user)
            await meeting.everybody.wait()
            await corral.aclose()
            assert guests() <= others
    assert [result.status for result in results] == ["cancelled"] * 6


def test_nothing_is_left_when_the_host_is_killed() -> None:
    script = (
        "import anyio\n"
        "from corral import Corral, ExecutionContext\n"
        "from corral.sandboxes import DenoSandbox\n"
        "async def main():\n"
        "    async with Corral(sandbox=DenoSandbox(isolation='context'), check=False) as corral:\n"
        "        async with anyio.create_task_group() as tasks:\n"
        "            for user in ('a', 'a', 'b'):\n"
        "                async def one(user=user):\n"
        "                    context = ExecutionContext(user_id=user)\n"
        "                    await corral.execute('console.log(1); while (true) {}', context=context,\n"
        "                        on_event=lambda event: print(event.type, flush=True))\n"
        "                tasks.start_soon(one)\n"
        "anyio.run(main)\n"
    )
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    try:
        # The second of user a waits behind the loop of the first.
        said = [host.stdout.readline().strip() for _ in range(5)]
        assert sorted(said) == ["console", "console", "started", "started", "started"]
        running = guests(host.pid)
        assert len(running) >= 2
    finally:
        with suppress(ProcessLookupError):
            host.send_signal(signal.SIGKILL)
        host.wait(SECONDS)
        host.stdout.close()
    assert_ending(running)

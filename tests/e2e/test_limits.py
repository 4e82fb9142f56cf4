"""Every limit holds: the outcome is named, what happened so far is kept, the host lives and the next execution works."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, Limits, ToolError, define_tool, tool
from corral.errors import StartFailed
from corral.events import ConsoleOutput, Event, ToolCallStarted
from corral.jail import Engine
from corral.sandboxes import DenoSandbox
from corral.sandboxes.jailed.guest_starter import GuestCommand
from tests.conftest import TOOLS
from tests.e2e.clocks import UNLIMITED, WallClock
from tests.forks import ForkedProcess
from tests.processes import assert_ending, descendants, guests
from tests.until import LIMIT_SECONDS
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Corral]:
    """Starts no engine in the background, since tests count those that are left."""
    limits = Limits(wall_seconds=60, cpu_seconds=10)
    async with Corral(TOOLS, sandbox=DenoSandbox(pool_size=0), limits=limits, check=False) as corral:
        yield corral


@pytest.fixture
async def corral(shared: Corral) -> AsyncIterator[Corral]:
    yield shared
    after = await shared.execute("return await tools.add({a: 1, b: 2})")
    assert after.value == 3, "the next execution works"


def code_of(result: ExecutionResult) -> str | None:
    return result.error and result.error.code


# --- time


@pytest.mark.parametrize(
    "loop",
    [
        "while (true) {}",
        "for (;;) await 0",
        "new Promise(() => {}).then(); (function f() { queueMicrotask(f) })(); await new Promise(() => {})",
        "try { while (true) {} } catch {} finally { while (true) {} }",
        *(
            pytest.param(each, marks=pytest.mark.matrix("as other loops, written another way"))
            for each in (
                "await 0; while (true) {}",
                "(function f() { Promise.resolve().then(f) })(); await new Promise(() => {})",
                "'a'.repeat(30).match(/^(a|a)*$/.source && /^(a|aa)+b$/); while (true) {}",
            )
        ),
    ],
)
async def test_an_endless_loop_ends_at_its_processor_limit(corral: Corral, loop: str) -> None:
    program = f"console.log('before'); await tools.add({{a: 1, b: 2}}); {loop}"
    result = await corral.execute(program, limits=Limits(cpu_seconds=0.1, wall_seconds=600))
    assert (result.status, code_of(result)) == ("timed_out", "program_timeout")
    assert "processor" in str(result.error)
    assert result.console == "before\n", "what was printed is kept"
    assert [call.output for call in result.tool_calls] == [3], "what was called is kept"


async def test_the_event_loop_turns_while_a_program_does_not_end(corral: Corral) -> None:
    async with corral.start("console.log('before'); while (true) {}") as run:
        async for event in run:
            if isinstance(event, ConsoleOutput):
                for _ in range(1_000):
                    await anyio.lowlevel.checkpoint()
                run.cancel()
    assert (await run.result()).status == "cancelled"


async def test_an_endless_loop_ends_at_its_wall_limit_too(corral: Corral) -> None:
    result = await corral.execute("while (true) {}", limits=Limits(wall_seconds=0.3))
    assert (result.status, code_of(result)) == ("timed_out", "program_timeout")
    assert "0.3 s" in str(result.error)


async def test_waiting_for_a_tool_uses_no_processor_time(corral: Corral) -> None:
    result = await corral.execute("return await tools.wait({seconds: 0.6})", limits=Limits(cpu_seconds=0.3))
    assert result.value == 0.6


async def test_waiting_for_a_tool_uses_wall_time(corral: Corral, wall_clock: WallClock) -> None:
    program = "console.log('x'); await tools.wait({seconds: 3600})"
    result = await corral.execute(program, limits=UNLIMITED, on_event=wall_clock.run_out_at(ToolCallStarted))
    assert (result.status, result.console) == ("timed_out", "x\n")
    [call] = result.tool_calls
    assert call.error is not None
    assert call.error.code == "cancelled"


async def test_a_program_that_waits_for_nothing_is_told_so_at_once(corral: Corral) -> None:
    result = await corral.execute("console.log('x'); await new Promise(() => {})")
    assert result.error is not None
    assert (result.error.name, code_of(result)) == ("Deadlock", "program_failed")


async def test_a_sleep_is_bounded_by_the_wall_clock(corral: Corral) -> None:
    result = await corral.execute(
        "await new Promise(resolve => setTimeout(resolve, 3_600_000))", limits=Limits(wall_seconds=0.3)
    )
    assert result.status == "timed_out"


async def test_a_tool_is_cancelled_with_its_execution(corral: Corral, wall_clock: WallClock) -> None:
    cancelled = anyio.Event()

    @tool
    async def hang() -> None:
        wall_clock.run_out()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise

    result = await corral.execute("await tools.hang()", tools=[hang], limits=UNLIMITED)
    assert result.status == "timed_out"
    assert cancelled.is_set()


# --- memory

MEMORY_ONLY = Limits(wall_seconds=300, cpu_seconds=100)
"""So that it is memory that ends a program on a busy machine too."""


@pytest.mark.parametrize(
    "bomb",
    [
        "const a = []; while (true) a.push({i: a.length, s: [1, 2, 3]})",
        "const a = []; for (;;) a.push(new ArrayBuffer(50_000_000))",
        "const a = new Uint8Array(1_000_000_000).fill(1); return a.length",
        *(
            pytest.param(each, marks=pytest.mark.matrix("as other bombs, of other objects"))
            for each in (
                "const a = []; while (true) a.push(new Array(1e6).fill(0.5))",
                "const m = new Map(); for (let i = 0; ; i++) m.set(i, `${i}`.repeat(100))",
                "let s = 'x'.repeat(1000); const a = []; while (true) a.push([...s])",
                "const held = []; await Promise.all(Array.from({length: 3e7}, () => new Promise(r => held.push(r))))",
            )
        ),
    ],
)
async def test_a_memory_bomb_ends_alone(corral: Corral, bomb: str) -> None:
    result = await corral.execute(f"console.log('before'); {bomb}", limits=MEMORY_ONLY)
    assert result.status == "failed"
    assert result.error is not None
    assert code_of(result) == "memory_exceeded" or result.error.name == "RangeError", result.error
    assert result.console == "before\n"


async def test_memory_runs_out_while_a_tool_is_running(corral: Corral) -> None:  # ex-oom-with-inflight-tool
    result = await corral.execute(
        "tools.wait({seconds: 300}); const a = []; while (true) a.push(new Array(1e6).fill(0.5))", limits=MEMORY_ONLY
    )
    assert code_of(result) == "memory_exceeded"
    assert [call.error is not None for call in result.tool_calls] == [True]


async def test_outputs_that_the_program_has_dropped_do_not_count(corral: Corral) -> None:
    @tool
    async def page() -> str:
        return "x" * 1_000_000

    result = await corral.execute(
        "let n = 0; for (let i = 0; i < 100; i++) n += (await tools.page()).length; return n", tools=[page]
    )
    assert result.value == 100_000_000, result.error


async def test_buffers_that_the_program_has_dropped_do_not_count(corral: Corral) -> None:
    result = await corral.execute(
        "const a = []; for (let i = 0; i < 500; i++) { a.push(new Uint8Array(7e5)); a.shift() } return 1"
    )
    assert result.value == 1, result.error


async def test_a_string_bomb_is_an_error(corral: Corral) -> None:  # ex-string-bomb
    result = await corral.execute("let s = 'x'; while (true) s += s")
    assert result.error is not None
    assert result.error.name == "RangeError"


async def test_endless_recursion_is_an_error_of_the_program(corral: Corral) -> None:
    result = await corral.execute("function f() { return f() + 1 }\ntry { f() } catch (e) { return e.name }")
    assert result.value == "RangeError"


# --- sizes and counts


async def test_a_large_result_is_refused(corral: Corral) -> None:  # ex-result-size
    result = await corral.execute("return 'x'.repeat(10_000_000)")
    assert code_of(result) == "output_exceeded"
    assert "1000000 bytes" in str(result.error)
    many = await corral.execute(
        "const a = ['x'.repeat(1000)]; for (let i = 0; i < 30; i++) a.push(a.slice()); return a"
    )
    assert code_of(many) == "output_exceeded", "a small graph that is large when written out"


async def test_a_result_counts_in_bytes_not_in_characters(corral: Corral) -> None:
    limits = Limits(value_bytes=3000)
    assert (await corral.execute("return 'x'.repeat(2990)", limits=limits)).success
    assert code_of(await corral.execute("return 'ü'.repeat(1600)", limits=limits)) == "output_exceeded"


async def test_console_output_is_cut_at_its_limit_and_said_so(corral: Corral) -> None:
    result = await corral.execute(
        "for (let i = 0; i < 1000; i++) console.log('x'.repeat(100_000)); return 'done'",
        limits=Limits(log_bytes=64_000),
    )
    assert result.value == "done"
    assert len(result.console) == 64_000
    assert result.truncated == ("99937000 bytes of console output over the limit were dropped",)
    assert "dropped" in result.model_text()


async def test_many_empty_log_lines_are_bounded_too(corral: Corral) -> None:
    result = await corral.execute(
        "for (let i = 0; i < 50_000; i++) console.log(''); return 1", limits=Limits(log_bytes=1000)
    )
    assert result.value == 1
    assert len(result.logs) <= 1000


async def test_a_large_input_is_refused_before_the_tool_runs(corral: Corral) -> None:
    result = await corral.execute(
        "try { await tools.echo('x'.repeat(2_000_000)) } catch (e) { return [e.code, e.message] }"
    )
    assert result.value[0] == "message_too_large"
    assert "1000000 bytes" in result.value[1]
    assert result.tool_calls == ()


async def test_a_large_output_is_refused_before_it_travels(corral: Corral) -> None:
    async def execute(input: Any) -> str:
        return "x" * input["size"]

    give = define_tool(name="give", execute=execute)
    result = await corral.execute(
        "try { await tools.give({size: 20000}) } catch (e) { return [e.code, e.message, (await tools.give({size: 10})).length] }",
        tools=[give],
        limits=Limits(tool_output_bytes=10_000),
    )
    code, message, length = result.value
    assert (code, length) == ("message_too_large", 10)
    assert "10000 are allowed" in message
    assert result.tool_calls[0].error is not None


async def test_a_tools_error_of_any_size_arrives_shortened(corral: Corral) -> None:
    @tool
    async def shout() -> None:
        raise ToolError("x" * 5_000_000)

    result = await corral.execute("try { await tools.shout() } catch (e) { return e.message.length }", tools=[shout])
    assert result.value < 8_100


async def test_tools_that_block_threads_do_not_keep_other_programs_from_running(warm_deno: DenoSandbox) -> None:
    release = threading.Event()
    blocked = threading.Semaphore(0)

    @tool
    def block() -> None:
        blocked.release()
        release.wait()

    async with Corral([block], sandbox=warm_deno, check=False) as corral, anyio.create_task_group() as tasks:
        program = "await Promise.all(Array.from({length: 45}, () => tools.block()))"
        tasks.start_soon(lambda: corral.execute(program))
        for _ in range(40):  # all the threads that anyio lends by default
            await anyio.to_thread.run_sync(blocked.acquire, limiter=anyio.CapacityLimiter(1))
        try:
            with anyio.fail_after(LIMIT_SECONDS):
                assert (await corral.execute("return 1")).value == 1
        finally:
            release.set()


async def test_calls_beyond_the_budget_throw_and_are_never_made(corral: Corral) -> None:
    made = 0

    @tool
    async def count() -> None:
        nonlocal made
        made += 1

    result = await corral.execute(
        """const all = await Promise.allSettled(Array.from({length: 2_000}, () => tools.count()));
        const failed = all.filter(each => each.status === "rejected");
        return [failed.length, failed[0].reason.name, failed[0].reason.code]""",
        tools=[count],
        limits=Limits(calls=100),
    )
    assert result.value == [1900, "CallBudgetExceeded", "call_budget_exceeded"]
    assert made == len(result.tool_calls) == 100


async def test_calls_beyond_those_in_flight_wait_and_do_not_fail(corral: Corral) -> None:  # ex-inflight-budget
    running = most = 0
    full = anyio.Event()

    @tool
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 32:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()  # for one too many to be seen
        running -= 1

    result = await corral.execute(
        "return (await Promise.all(Array.from({length: 1000}, () => tools.work()))).length",
        tools=[work],
        limits=Limits(calls=1000, calls_in_flight=32),
    )
    assert result.value == 1000
    assert most == 32


async def test_too_much_source_is_rejected_before_it_is_parsed(corral: Corral) -> None:
    result = await corral.execute("//" + "x" * 300_000)
    assert (result.status, code_of(result)) == ("rejected", "program_rejected")
    assert "256000 are allowed" in str(result.error)


@pytest.mark.parametrize(
    "source",
    [
        "(" * 100_000,
        "a" + "?.b" * 60_000,
        *(
            pytest.param(each, marks=pytest.mark.matrix("nested as deeply as in the gate, with other tokens"))
            for each in ("[" * 100_000 + "]" * 100_000, "!" * 200_000)
        ),
    ],
)
async def test_deeply_nested_source_is_refused_and_the_host_lives(corral: Corral, source: str) -> None:
    result = await corral.execute(source)
    assert not result.success
    assert result.error is not None


async def test_odd_sources_are_results_not_exceptions(corral: Corral) -> None:
    wrong = Wrong()
    for source in ["\0", "\ud800", "\ufeffreturn 1", "\u2028", "`", "'", "/*", "\\u{110000}"]:
        with wrong.case(source):
            result = await corral.execute(source)
            assert result.status in {"succeeded", "rejected", "failed"}
    assert wrong == []


# --- ends


async def test_the_host_cancels_a_run_in_the_middle_of_a_call(corral: Corral) -> None:  # ex-abort-signal
    cancelled = anyio.Event()

    @tool
    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with corral.start("console.log('x'); await tools.hang()", tools=[hang]) as run:
        async for event in run:
            if isinstance(event, ToolCallStarted):
                run.cancel()
        result = await run.result()
    assert (result.status, code_of(result)) == ("cancelled", "cancelled")
    assert result.console == "x\n"
    assert len(result.tool_calls) == 1
    assert cancelled.is_set()


async def test_cancelling_the_callers_task_ends_the_guest() -> None:
    def cancel(event: Event) -> None:
        if isinstance(event, ConsoleOutput):
            scope.cancel()

    others = guests()
    async with Corral(sandbox=DenoSandbox(isolation="process", pool_size=0), check=False) as corral:
        with anyio.CancelScope() as scope:
            await corral.execute("console.log(1); while (true) {}", on_event=cancel)
        assert scope.cancelled_caught
        assert_ending(guests() - others)


async def test_leaving_the_block_of_a_handle_ends_the_run() -> None:
    others = guests()
    async with Corral(sandbox=DenoSandbox(isolation="process", pool_size=0), check=False) as corral:
        with pytest.raises(KeyError, match="own error"):
            async with corral.start("while (true) {}"):
                raise KeyError("own error")
        assert_ending(guests() - others)


async def test_a_guest_that_is_killed_is_named_and_the_next_one_works() -> None:
    others = guests()
    async with Corral(TOOLS, sandbox=DenoSandbox(pool_size=0), check=False) as corral:
        async with corral.start("console.log('x'); await tools.wait({seconds: 3600})", limits=UNLIMITED) as run:
            async for event in run:
                if isinstance(event, ToolCallStarted):
                    killed = guests() - others  # those that wait for the next execution too
                    for guest in killed:
                        with suppress(ProcessLookupError):  # it has ended with its server
                            os.kill(guest, signal.SIGKILL)
                    assert_ending(killed)
            result = await run.result()
        assert (result.status, code_of(result)) == ("failed", "sandbox_lost")
        assert result.console == "x\n"
        assert (await corral.execute("return await tools.add({a: 1, b: 2})")).value == 3


async def test_many_executions_run_at_once(corral: Corral) -> None:
    values: list[object] = []

    async def one(number: int) -> None:
        result = await corral.execute(f"return (await tools.add({{a: {number}, b: 1}}))")
        values.append(result.value)

    async with anyio.create_task_group() as tasks:
        for number in range(24):
            tasks.start_soon(one, number)
    assert sorted(map(str, values)) == sorted(str(float(number + 1)).removesuffix(".0") for number in range(24))


async def test_a_missing_engine_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.sandboxes.deno._engine", lambda: Path("/nowhere/deno"))
    with pytest.raises(StartFailed, match="/nowhere/deno"):
        await Corral(sandbox=DenoSandbox(), check=False).execute("return 1")


async def test_an_engine_that_does_not_start_the_guest_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.sandboxes.deno._engine", lambda: Path("/bin/false"))
    with pytest.raises(StartFailed, match="the engine did not start: status 1"):
        await Corral(sandbox=DenoSandbox(), check=False).execute("return 1")


def test_an_interrupt_ends_a_script_and_its_guest(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "from corral import Corral\n"
        "from corral.sandboxes import DenoSandbox\n"
        "with Corral(sandbox=DenoSandbox(pool_size=0)) as corral:\n"
        "    corral.sync.execute('console.log(1); while (true) {}', on_event=lambda e: print(e.type, flush=True))\n"
    )
    process = ForkedProcess([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert [process.stdout.readline().strip() for _ in range(3)] == [
        "execution_started",
        "program_checked",
        "console_output",
    ]
    found = guests(process.pid)
    assert len(found) >= 2  # the engine, and the process that it has forked
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert "KeyboardInterrupt" in errors
    assert_ending(found)


def test_nothing_is_left_when_the_host_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import anyio\n"
        "from corral import Corral, tool\n"
        "from corral.sandboxes import DenoSandbox\n"
        "@tool\n"
        "async def hang() -> None:\n"
        "    print('called', flush=True)\n"
        "    await anyio.sleep(600)\n"
        "Corral([hang], sandbox=DenoSandbox(pool_size=0)).sync.execute('await tools.hang()')\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = ForkedProcess([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "called\n"
    left = descendants(process.pid)
    assert set(left) > guests(process.pid)
    assert {path.name[:7] for path in tmp_path.iterdir() if path.is_dir()} == {"corral-"}
    process.kill()
    process.wait()
    process.stdout.close()
    assert_ending(left)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [], (
        "the launchers have removed the guest's code and the checker's files"
    )


# --- what must not outlast a deadline


async def test_a_guest_that_closes_its_connection_and_lives_on_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = (b"\x00\x00\x00\x15\x10\x00" + bytes(16) + b"[1]").hex()
    script = (
        f"import os, signal\nos.write(1, bytes.fromhex({ready!r}))\nos.read(0, 65536)\nos.close(0)\nos.close(1)\n"
        "while True: signal.pause()\n"
    )

    command = GuestCommand(Engine(Path(sys.executable)), ("-I", "-S", "-c", script))

    def started(*_: object) -> GuestCommand:
        return command

    monkeypatch.setattr("corral.sandboxes.deno._command", started)
    sandbox = DenoSandbox(tier="none", isolation="process", pool_size=0)
    async with Corral(sandbox=sandbox, containment="none", check=False) as corral:
        with anyio.fail_after(LIMIT_SECONDS):
            result = await corral.execute("return 1")
    assert code_of(result) == "sandbox_lost"


async def test_places_that_a_program_invents_are_only_text(corral: Corral) -> None:
    wrong = Wrong()
    for program in [
        'console.log("corral:program.ts:" + "9".repeat(5000) + ":1"); return 1',
        'throw new Error("corral:program.ts:" + "9".repeat(5000) + ":1")',
        'const e = new Error("x"); e.stack = "corral:program.ts:" + "9".repeat(7000) + ":1"; throw e',
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.status in {"succeeded", "failed"}
            assert code_of(result) in {None, "program_failed"}
    assert wrong == []


async def test_a_console_full_of_places_takes_the_host_no_look_at_all_lines_for_each(corral: Corral) -> None:
    def looks(places: int) -> float:
        """Processor time of this process."""
        return measured[places][1] - measured[places][0]

    measured: dict[int, tuple[float, float]] = {}
    for places in (1, 20, 2_000):  # the first one is not counted
        before = time.process_time()
        source = "\n" * 200_000 + f'console.log("corral:program.ts:199999:1 ".repeat({places})); return 1'
        assert (await corral.execute(source)).value == 1
        measured[places] = before, time.process_time()
    assert looks(2_000) < 10 * looks(20), "all other work is the same, and a hundred times as many looks were it all"


async def test_an_outcome_survives_calls_that_outlast_the_deadline(corral: Corral, wall_clock: WallClock) -> None:
    wall_clock.run_out_in_grace()
    failed = await corral.execute(
        "await Promise.all([tools.fail({message: 'first'}), tools.wait({seconds: 3600})])", limits=UNLIMITED
    )
    assert failed.error is not None
    assert (failed.status, failed.error.message, failed.error.line) == ("failed", "first", 1)
    succeeded = await corral.execute("tools.wait({seconds: 3600}); return 42", limits=UNLIMITED)
    assert (succeeded.status, succeeded.value) == ("succeeded", 42)
    assert "cut short" in succeeded.model_text()


async def test_one_corral_starts_guests_from_several_threads() -> None:
    corral = Corral(TOOLS, check=False)

    def one() -> object:
        return corral.sync.execute("return 1").value

    results: list[object] = []

    async def in_thread() -> None:
        results.append(await anyio.to_thread.run_sync(one))

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(in_thread)
    assert results == [1] * 6


@pytest.mark.parametrize("isolation", ["fork", "process"])
async def test_the_guests_code_is_written_again_when_something_removed_it(
    isolation: Literal["fork", "process"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Corral(sandbox=DenoSandbox(isolation=isolation, pool_size=0), check=False) as corral:
        for user in ("ann", "bob"):  # each of whom needs an engine
            assert (await corral.execute("return 1", context=ExecutionContext(user_id=user))).value == 1
            for directory in tmp_path.iterdir():
                shutil.rmtree(directory)


async def test_no_place_for_temporary_files_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(StartFailed, match="temporary directory"):
        await Corral(check=False).execute("return 1")

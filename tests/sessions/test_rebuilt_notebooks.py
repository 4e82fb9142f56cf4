"""Notebooks whose cells are recorded: a lost process is rebuilt by running them again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from corral import (
    ApprovalRequest,
    Approved,
    ConfigError,
    Corral,
    ExecutionContext,
    ExecutionResult,
    Limits,
    Sessions,
    Tool,
    ToolCall,
    ToolError,
    tool,
)
from corral.errors import AccessDenied, StartFailed
from corral.ledger import Ledger, MemoryLedger, SqliteLedger
from corral.running.execution import Execution
from corral.sandboxes.selection import Sandboxes
from corral.types import Language, Program
from tests.running.random_programs import PROGRAMS
from tests.until import until

pytestmark = pytest.mark.anyio

MATRIX = pytest.mark.matrix("the gate rebuilds one notebook in each language; here the other causes and outcomes")
ANN = ExecutionContext(user_id="ann", session_id="talk", scopes=frozenset({"read"}))


class Host:
    """A Corral with sessions that keep variables, whose tools note what they did."""

    def __init__(self, corral: Corral, done: list[Any], language: Language) -> None:
        self.corral = corral
        self.done = done
        self._language: Language = language

    async def run(self, source: str, context: ExecutionContext = ANN, **options: Any) -> ExecutionResult:
        return await self.corral.execute(source, language=self._language, context=context, durable=True, **options)

    async def value(self, source: str, **options: Any) -> Any:
        result = await self.run(source, **options)
        result.raise_for_error()
        assert not result.diagnostics, result.model_text()
        return result.value

    async def lose(self) -> None:
        """Ends the processes of all notebooks."""
        await self.corral._runtime.notebooks.aclose()  # pyright: ignore[reportPrivateUsage]


def tools_noting(done: list[Any]) -> list[Tool]:
    @tool
    async def put(n: int, call: ToolCall) -> int:
        done.append(n)
        return n * 10

    @tool(needs_approval=True)
    async def pay(n: int) -> int:
        done.append(n)
        return n * 100

    return [put, pay]


@asynccontextmanager
async def host(
    sandbox: Sandboxes, ledger: Ledger, language: Language = "python", done: list[Any] | None = None, **options: Any
) -> AsyncGenerator[Host]:
    done = [] if done is None else done
    options = {"sessions": Sessions(keep="variables"), "check": False, **options}
    async with Corral(tools_noting(done), sandbox=sandbox, ledger=ledger, **options) as corral:
        yield Host(corral, done, language)


REBUILT: dict[Language, tuple[str, ...]] = {
    "python": (
        (
            "import random, time, uuid\nx = await tools.put(n=1)\ndef f(n):\n    return x + n\n"
            "began = time.time()\ndrawn = [random.random(), str(uuid.uuid4()), began]\nprint('once')\ndrawn"
        ),
        "y = await tools.put(n=2)\ny.nothing",
        "print('now')\n[f(1), y, drawn, time.time() >= began]",
        "(await tools.put(n=3)) + f(0) + random.random() * 0",
        "f(y)",
    ),
    "typescript": (
        (
            "const x = await tools.put({ n: 1 });\nconst f = (n: number) => x + n;\nconst began = Date.now();\n"
            "const drawn = [Math.random(), crypto.randomUUID(), began];\nconsole.log('once');\nreturn drawn"
        ),
        "let y = await tools.put({ n: 2 });\nthrow new Error('no');",
        "console.log('now');\nreturn [f(1), y, drawn, Date.now() >= began]",
        "return (await tools.put({ n: 3 })) + f(0) + Math.random() * 0",
        "return f(y)",
    ),
}
"""Cells that set variables, set one and fail, read all, call and read, and read after another loss."""


@pytest.mark.parametrize("language", REBUILT)
async def test_a_lost_notebook_is_rebuilt(warm: Sandboxes, language: Language) -> None:
    first, failing, reading, calling, last = REBUILT[language]
    async with host(warm, MemoryLedger(), language) as here:
        drawn = await here.value(first)
        failed = await here.run(failing)
        assert failed.status == "failed"
        await here.lose()
        again = await here.run(reading)
        assert (again.value, again.console, again.diagnostics) == ([11, 20, drawn, True], "now\n", ())
        assert [call.name for call in again.tool_calls] == []
        assert await here.value(calling) == 40
        await here.lose()
        assert await here.value(last) == 30
        assert here.done == [1, 2, 3]


@MATRIX
async def test_another_host_rebuilds_a_notebook(warm: Sandboxes, tmp_path: Path) -> None:
    done: list[Any] = []
    path = tmp_path / "runs.db"
    async with host(warm, SqliteLedger(path, keys={}), done=done) as one:
        await one.value("x = await tools.put(n=1)")
        async with host(warm, SqliteLedger(path, keys={}), done=done) as two:
            assert await two.value("y = x + 1\ny") == 11
            assert await one.value("z = y + 1\nz") == 12, "which the first host sees as well"
            assert await two.value("z") == 12
    async with host(warm, SqliteLedger(path, keys={}), done=done) as three:
        assert await three.value("[x, y, z]") == [10, 11, 12]
    assert done == [1]


@MATRIX
async def test_only_the_cell_that_was_cut_off_is_lost(warm: Sandboxes) -> None:
    async with host(warm, MemoryLedger()) as here:
        await here.value("x = await tools.put(n=1)")
        cut = await here.run("x = 5\ny = await tools.put(n=2)\nwhile True: pass", limits=Limits(wall_seconds=0.3))
        assert cut.status == "timed_out"
        gone = "The variables of program 2 of this session are gone, because "
        assert gone + "program 2 was cut off" in cut.model_text()
        after = await here.run("x")
        assert after.value == 10
        assert gone + "it did not end normally (timed_out). Define them again." in after.model_text()
        await here.lose()
        assert await here.value("'y' in globals()") is False
        assert here.done == [1, 2]


@MATRIX
async def test_a_killed_process_is_rebuilt(warm: Sandboxes) -> None:
    async with host(warm, MemoryLedger()) as here:
        await here.value("x = await tools.put(n=1)")
        notebooks = here.corral._runtime.notebooks  # pyright: ignore[reportPrivateUsage]
        (kept,) = notebooks._kept.values()  # pyright: ignore[reportPrivateUsage]
        assert kept.value is not None
        sandbox: Any = kept.value.sandbox
        sandbox._guest.process.kill()
        await until(lambda: sandbox._guest.process.ended)
        lost = await here.run("y = 1")
        assert lost.status == "failed"
        assert "program 2 was cut off" in lost.model_text()
        assert (await here.run("x")).value == 10
        assert here.done == [1]


@pytest.mark.parametrize("step", ["_run_in_sandbox", pytest.param("read_again", marks=MATRIX)])
async def test_a_cell_that_is_cancelled_while_others_run_again_loses_nothing(
    warm: Sandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    done: list[Any] = []
    path, original = tmp_path / "runs.db", getattr(Execution, step)
    async with host(warm, SqliteLedger(path, keys={}), done=done) as one:
        await one.value("x = await tools.put(n=1)")
        await one.value("y = x + 1\ny")
    async with host(warm, SqliteLedger(path, keys={}), done=done) as two:
        steps = 0

        async def cancel_in_second(execution: Execution, *arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == 2:
                scope.cancel()
                await anyio.lowlevel.checkpoint()
            return await original(execution, *arguments)

        with anyio.CancelScope() as scope, monkeypatch.context() as patch:
            patch.setattr(Execution, step, cancel_in_second)
            await two.run("x")
        assert scope.cancelled_caught
        assert not len(two.corral._runtime.notebooks)  # pyright: ignore[reportPrivateUsage]
        assert await two.value("[x, y]") == [10, 11]
    assert done == [1]


@MATRIX
async def test_a_process_that_does_not_start_loses_nothing(warm: Sandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Execution) -> Any:
        raise StartFailed("no room")

    async with host(warm, MemoryLedger()) as here:
        await here.value("x = await tools.put(n=1)")
        await here.lose()
        with monkeypatch.context() as patch:
            patch.setattr(Execution, "_start", fail)
            with pytest.raises(StartFailed, match="no room"):
                await here.run("x")
        assert await here.value("x") == 10
        assert here.done == [1]


@MATRIX
async def test_others_run_between_the_cells_that_are_read(warm: Sandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, original = 0, Execution.read_again
    seen: list[int] = []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def read_again(execution: Execution, bound: frozenset[str]) -> Any:
        seen.append(turns)
        return await original(execution, bound)

    async with host(warm, MemoryLedger()) as here:
        for n in range(4):
            await here.value(f"x{n} = {n}\n{n}")
        await here.lose()
        monkeypatch.setattr(Execution, "read_again", read_again)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            assert await here.value("[x0, x3]") == [0, 3]
            tasks.cancel_scope.cancel()
    assert len({*seen}) == 4


@MATRIX
@pytest.mark.parametrize("cell", ["x = 'a' * 9_000\nx", f"x = 1  # {'a' * 9_000}"])
async def test_cells_whose_records_are_too_large_do_not_run_again(
    warm: Sandboxes, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    monkeypatch.setattr("corral.running.notebooks._MOST_BYTES", 9_000)
    async with host(warm, MemoryLedger()) as here:
        assert (await here.run(cell)).success
        await here.lose()
        result = await here.run("'x' in globals()")
        assert result.value is False
        assert "of program 1 of this session are gone, because there are too many programs" in result.model_text()


@MATRIX
async def test_a_process_that_is_killed_while_cells_run_again_loses_nothing_until_the_third_time(
    warm: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Execution._run_in_sandbox  # pyright: ignore[reportPrivateUsage]

    async def kill(execution: Execution, program: Program) -> Any:
        if (sandbox := execution._sandbox) is not None:  # pyright: ignore[reportPrivateUsage]
            guest: Any = sandbox
            guest._guest.process.kill()
            await until(lambda: guest._guest.process.ended)
        return await original(execution, program)

    async with host(warm, MemoryLedger()) as here:
        await here.value("x = await tools.put(n=1)")
        await here.lose()
        for kills in (2, 3):
            with monkeypatch.context() as patch:
                patch.setattr(Execution, "_run_in_sandbox", kill)
                for _ in range(2):
                    with pytest.raises(StartFailed, match="lost while earlier programs of this session ran again"):
                        await here.run("x")
                result = await here.run("'x' in globals()") if kills == 3 else None
            if result is None:
                assert await here.value("x") == 10
                await here.lose()
        assert result is not None
        assert result.value is False
        assert "are gone, because 3 processes were lost while they ran again" in result.model_text()
        assert here.done == [1]


@MATRIX
@pytest.mark.parametrize("in_use", [False, True])
async def test_a_process_that_ends_during_the_check_of_a_cell_loses_nothing(
    warm: Sandboxes, monkeypatch: pytest.MonkeyPatch, in_use: bool
) -> None:
    original = Execution._prepare_and_run  # pyright: ignore[reportPrivateUsage]

    async with host(warm, MemoryLedger()) as here:
        await here.value("x = await tools.put(n=1)")
        notebooks = here.corral._runtime.notebooks  # pyright: ignore[reportPrivateUsage]

        async def make_room(execution: Execution) -> Any:
            for key, kept in [*notebooks._kept.items()]:  # pyright: ignore[reportPrivateUsage]
                if in_use or kept.users == 0:
                    await notebooks.close(key)
            return await original(execution)

        with monkeypatch.context() as patch:
            patch.setattr(Execution, "_prepare_and_run", make_room)
            if in_use:
                with pytest.raises(StartFailed, match="has just ended; run the program again"):
                    await here.run("x")
            else:
                assert await here.value("x + 1") == 11
        assert await here.value("x") == 10
        assert here.done == [1]


@MATRIX
async def test_a_cell_that_pauses_continues_behind_the_cells_before_it(warm: Sandboxes, tmp_path: Path) -> None:
    done: list[Any] = []
    path = tmp_path / "runs.db"
    async with host(warm, SqliteLedger(path, keys={}), done=done) as one:
        await one.value("x = await tools.put(n=1)")
        paused = await one.run("y = x + await tools.pay(n=2)\ny")
        assert paused.status == "paused"
        assert "are gone" not in paused.model_text()
        waiting = (await one.corral.executions.waiting())[0]
        await one.corral.executions.settle(waiting.execution_id, {1: Approved()}, by="bob")
    async with host(warm, SqliteLedger(path, keys={}), done=done) as two:
        assert (await two.corral.executions.resume(paused.execution_id)).value == 210
        assert await two.value("z = y\nz") == 210
        assert (await two.corral.executions.replay(paused.execution_id)).value == 210
        assert done == [1, 2]
        later = await two.run("w = await tools.pay(n=3)")
        missing = await two.run("[x, y, z]")
        assert missing.value == [10, 210, 210]
        assert "of program 4 of this session are missing, because it waits for a decision" in missing.model_text()
        await two.corral.executions.settle(later.execution_id, {1: Approved()}, by="bob")
        assert (await two.corral.executions.resume(later.execution_id)).success
        assert await two.value("[x, 'w' in globals()]") == [10, False]
        assert done == [1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"user_id": "bob"},
        pytest.param({"organization_id": "acme"}, marks=MATRIX),
        pytest.param({"session_id": "other"}, marks=MATRIX),
    ],
)
async def test_nobody_rebuilds_the_notebook_of_others(warm: Sandboxes, tmp_path: Path, change: dict[str, str]) -> None:
    path = tmp_path / "runs.db"
    async with host(warm, SqliteLedger(path, keys={})) as one:
        await one.value("x = await tools.put(n=1)")
    async with host(warm, SqliteLedger(path, keys={})) as two:
        result = await two.run("'x' in globals()", context=ANN.model_copy(update=change))
        assert (result.value, result.diagnostics, two.done) == (False, (), [])


async def test_scopes_never_grow_in_a_rebuilt_notebook(warm: Sandboxes) -> None:
    none = ANN.model_copy(update={"scopes": frozenset[str]()})
    async with host(warm, MemoryLedger()) as here:
        await here.value("x = 1\nx")
        await here.value("x", context=none)
        await here.lose()
        assert await here.value("x + 0", context=none) == 1
        await here.lose()
        result = await here.run("'x' in globals()")
        assert result.value is False, "the process has the fewest scopes of its cells"
        assert "because a program with more permissions does not share a process with them" in result.model_text()


@MATRIX
async def test_what_cannot_be_rebuilt_is_named_with_the_reason(warm: Sandboxes, tmp_path: Path) -> None:
    async with host(warm, ledger := MemoryLedger()) as here:
        await here.value("x = [object() for _ in range(9)]\nawait tools.put(n=id(x) % 10_007)")
        await here.lose()
        result = await here.run("'x' in globals()")
        assert result.value is False
        text = result.model_text()
        assert "The variables of program 1 of this session are gone, because program 1 did something else" in text
        assert await here.value("y = await tools.put(n=2)\n'x' in globals()") is False
        await here.lose()
        assert await here.value("y") == 20
        await here.lose()
        ledger.prune(ended_before=ledger.now() + 1, paused_before=None)
        result = await here.run("'y' in globals()")
        assert result.value is False
        assert "because the ledger does not have" in result.model_text()


@MATRIX
async def test_programs_that_are_not_durable_do_not_share_variables_with_those_that_are(warm: Sandboxes) -> None:
    async with host(warm, MemoryLedger()) as here:
        await here.value("x = await tools.put(n=1)")
        plain = await here.corral.execute("y = 1\n'x' in globals()", language="python", context=ANN)
        assert plain.value is False
        reason = "because programs with and without durable=True do not share a process"
        assert reason in plain.model_text()
        durable = await here.run("'y' in globals()")
        assert (durable.value, reason in durable.model_text()) == (False, True)


@MATRIX
async def test_work_that_a_recorded_cell_leaves_behind_stays_behind(warm: Sandboxes) -> None:
    async with host(warm, MemoryLedger()) as here:
        await here.run(
            "import asyncio\nlog = []\nasync def late():\n    try:\n        await asyncio.sleep(5)\n        log.append(await tools.put(n=8))\n"
            "    except BaseException as error:\n        log.append(type(error).__name__)\n        raise\n"
            "left = asyncio.ensure_future(late())\nasyncio.get_running_loop().call_later(60, log.append, 'timer')\n"
            "await asyncio.wait([left], timeout=0.2)\nNone"
        )
        await here.value(
            "began = asyncio.get_running_loop().time()\nawait asyncio.sleep(0.05)\nlog.append(await tools.put(n=1))\nlog"
        )
        await here.lose()
        first = await here.value("log")
        assert first == ["CancelledError", 10]
        assert await here.value("asyncio.get_running_loop().time() - began >= 0.05") is True
        clock = "import time\nbegan = time.monotonic()\nawait tools.put(n=2)\ntime.monotonic() > began"
        assert await here.value(clock) is True, "clocks of a cell continue from those of the cells before it"
        assert here.done == [1, 2]


async def test_models_are_not_told_of_files_that_recorded_cells_do_not_have(warm: Sandboxes) -> None:
    async with host(warm, MemoryLedger()) as here:
        assert "/workspace" in here.corral.model.tools("python")[0].description
        execute = here.corral.model.tools("python", durable=True)[0]
        assert "/workspace" not in execute.description
        assert "stay from one program to the next" in execute.description
        assert await execute({"code": "x = 1\nx"}, context=ANN)
        await here.lose()
        assert await here.value("import os\n[x, os.path.exists('/workspace')]") == [1, False]
        async with here.corral.session(context=ANN) as files:
            with pytest.raises(ConfigError, match="no session that keeps files"):
                here.corral.model.tools("python", session=files, durable=True)


@MATRIX
async def test_a_cell_whose_host_is_lost_continues_at_another(warm: Sandboxes, tmp_path: Path) -> None:
    done: list[Any] = []
    path = tmp_path / "runs.db"
    called = anyio.Event()
    results: list[ExecutionResult] = []

    @tool(idempotent=True)
    async def slow(n: int) -> int:
        if not called.is_set():
            called.set()
            await anyio.sleep_forever()
        done.append(n)
        return n

    async with anyio.create_task_group() as tasks, host(warm, SqliteLedger(path, keys={}), done=done) as one:
        await one.value("x = await tools.put(n=1)")

        async def run() -> None:
            results.append(await one.run("y = x + await tools.slow(n=2)\ny", tools=[slow]))

        tasks.start_soon(run)
        await called.wait()
    (lost,) = results
    assert lost.status == "cancelled"
    more = ANN.model_copy(update={"scopes": frozenset({"read", "write"})})
    async with host(warm, SqliteLedger(path, keys={}), done=done) as two:
        with pytest.raises(AccessDenied, match="with more permissions"):
            await two.corral.executions.resume(lost.execution_id, context=more, tools=[slow])
        assert (await two.corral.executions.resume(lost.execution_id, tools=[slow])).value == 12
        assert await two.value("[x, y]") == [10, 12]
    assert done == [1, 2]


@MATRIX
async def test_models_are_told_that_a_cell_on_a_lost_host_may_make_its_calls_later(warm: Sandboxes) -> None:
    ledger = MemoryLedger()
    with anyio.CancelScope() as scope:

        @tool
        async def hang() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        async with host(warm, ledger) as here:
            await here.value("x = await tools.put(n=1)")
            await here.run("y = await tools.hang()", tools=[hang])
    assert scope.cancelled_caught
    async with host(warm, ledger) as here:
        result = await here.run("[x, 'y' in globals()]")
        assert result.value == [10, False]
        assert "of program 2 of this session are missing, because its host was lost" in result.model_text()
        assert "look for their effects before you make them again" in result.model_text()


@pytest.mark.matrix("random cells and losses; the gate rebuilds one notebook in each language")
@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_random_cells_are_rebuilt_as_they_were(warm: Sandboxes, language: Language) -> None:
    chance = random.Random(7)  # noqa: S311 - repeatable
    effects: Counter[str] = Counter()

    @tool(read_only=True)
    async def get(key: str) -> str:
        if chance.random() < 0.7:
            await anyio.sleep(chance.random() * 0.004)
        return f"{key}:{chance.randrange(1000)}"

    @tool
    async def put(key: str) -> str:
        effects[key] += 1
        if chance.random() < 0.1:
            raise ToolError("no")
        return key

    @tool(needs_approval=True)
    async def ask(key: str) -> str:
        effects[key] += 1
        return key

    async def approve(_: ApprovalRequest) -> Approved:
        return Approved()

    sessions = Sessions(keep="variables")
    tools: list[Any] = [get, put, ask]
    ledger = MemoryLedger()
    async with Corral(tools, sandbox=warm, ledger=ledger, sessions=sessions, check=False, approve=approve) as corral:

        async def run(source: str, session_id: str) -> ExecutionResult:
            context = ANN.model_copy(update={"session_id": session_id})
            limits = Limits(calls=1_000)
            return await corral.execute(source, language=language, context=context, durable=True, limits=limits)

        for session_id in ("one", "two", "three"):
            values: list[Any] = []
            effects.clear()
            for cell in range(5):
                ended = "\nlate = [task('late') for _ in 'ab']\n" if language == "python" else "\nvoid sleep(1);\n"
                source = PROGRAMS[language].replace(".${trace", f".{cell}.${{trace").replace(".{len", f".{cell}.{{len")
                head, _, last = source.rstrip().rpartition("\n")
                result = await run(
                    f"{head}{ended}{'const ' if last[-1] == ';' else ''}kept{cell} = trace\n{last}", session_id
                )
                assert result.success, result.model_text()
                values.append(result.value)
                if chance.random() < 0.6:
                    await corral._runtime.notebooks.aclose()  # pyright: ignore[reportPrivateUsage]
            names = ", ".join(f"kept{cell}" for cell in range(5))
            kept = await run(f"{'' if language == 'python' else 'return '}[{names}]", session_id)
            assert (kept.value, kept.diagnostics) == (values, ())
            assert set(effects.values()) == {1}

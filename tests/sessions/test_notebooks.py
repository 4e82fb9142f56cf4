"""Sessions that keep variables: their programs are the cells of a notebook."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from typing_extensions import TypedDict

from corral import ConfigError, Corral, ExecutionContext, ExecutionResult, Limits, Session, Sessions, tool
from corral.events import ConsoleOutput, Event
from corral.programs import EarlierCell, earlier_cell, read_program, without_old_texts
from corral.running.notebooks import Notebooks
from corral.sandboxes.monty import MontySandbox
from corral.sandboxes.selection import Sandboxes
from corral.types import Language
from tests.processes import descendants, descriptors
from tests.until import until

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann", scopes=frozenset({"read"}))


class Sum(TypedDict):
    sum: int


@tool
async def add(a: int, b: int) -> Sum:
    """Adds."""
    return {"sum": a + b}


class Cells:
    """A session's cells in one language."""

    def __init__(self, session: Session, language: Language) -> None:
        self._session = session
        self._language: Language = language

    async def run(self, source: str, **options: Any) -> ExecutionResult:
        return await self._session.execute(source, language=self._language, **options)

    async def value(self, source: str, **options: Any) -> Any:
        result = await self.run(source, **options)
        result.raise_for_error()
        return result.value

    async def error(self, source: str, **options: Any) -> str:
        result = await self.run(source, **options)
        assert result.error is not None, result
        return result.error.message


@asynccontextmanager
async def notebook(sandbox: Sandboxes, language: Language = "python", *, check: bool = False) -> AsyncGenerator[Cells]:
    async with (
        Corral([add], sandbox=sandbox, check=check) as corral,
        corral.session(context=ANN, keep="variables") as session,
    ):
        yield Cells(session, language)


async def test_cells_see_what_earlier_ones_have_bound(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        assert await cells.value("import json as j\nfrom math import floor\nx = 1\ndef f(n):\n    return x + n\nx") == 1
        assert await cells.value("y = await tools.add(a=f(1), b=2)\ny['sum']") == 4
        assert await cells.value("x = 10\nj.dumps([f(1), floor(1.5)])") == "[11, 1]"
        assert await cells.value("class A:\n    def get(self):\n        return x\na = A()") is not None
        assert await cells.value(
            "def count():\n    global n\n    n = 7\ncount()\nif x:\n    return [a.get() for _ in 'ab']"
        ) == [10, 10]
        assert await cells.value("n") == 7
        assert (await cells.run("print(y)")).console == "{'sum': 4}\n"


async def test_the_value_of_a_cell_is_its_own(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        assert await cells.value("result = 5") == 5
        assert await cells.value("z = None\nfor _ in []:\n    pass") is None
        assert await cells.value("def helper(n):\n    return n") is None, "helpers are not called"
        assert await cells.value("def main():\n    return helper(3)") == 3
        again = await cells.run("result = 5")
        assert "Program 1 of this session was the same" in again.model_text()


async def test_an_error_names_the_cell_and_keeps_what_was_bound(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value("def f(n):\n    return n + 1\n1")
        failed = await cells.run("kept = 2\nf('x')")
        assert failed.error is not None
        assert (failed.error.line, failed.error.stack) == (
            2,
            '  File "program.py", line 2, in <module>\n  File "cell_1.py", line 2:12, in f',
        )
        assert "kept: continue from there" in failed.model_text()
        assert await cells.value("kept") == 2


async def test_a_cell_that_does_not_compile_changes_nothing(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value("x = 1")
        assert (await cells.run("x = 2\ndef f(:\n    pass")).status == "rejected"
        assert await cells.value("x") == 1


async def test_work_that_a_cell_leaves_behind_ends_with_it(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value(
            "import asyncio, threading\nlog = []\n"
            "async def stubborn():\n    while True:\n        try:\n            await gate.wait()\n            await tools.add(a=1, b=1)\n"
            "            log.append('called')\n        except asyncio.CancelledError:\n            continue\n"
            "        except Exception as error:\n            log.append(str(error))\n            return\n"
            "gate = asyncio.Event()\nasync def sleepy():\n    await asyncio.sleep(0.01)\n    log.append('slept')\n"
            "def call():\n    try:\n        asyncio.run(wait_and_call())\n    except BaseException as error:\n        log.append(str(error))\n"
            "async def wait_and_call():\n    ready.wait()\n    await tools.add(a=1, b=1)\n    log.append('called')\n"
            "ready = threading.Event()\nthread = threading.Thread(target=call)\nthread.start()\n"
            "left = [asyncio.ensure_future(stubborn()), asyncio.ensure_future(sleepy())]\n"
            "asyncio.get_running_loop().call_later(0.01, log.append, 'timer')\n"
            "await asyncio.wait(left, timeout=0)\nNone"
        )
        result = await cells.run("gate.set()\nready.set()\nawait asyncio.sleep(0.05)\nthread.join()\nlog")
        assert result.success, result.model_text()
        assert result.tool_calls == ()
        assert "slept" not in result.value
        assert "timer" not in result.value
        assert "called" not in result.value
        assert any("tools.add was not called: the program had ended" in each for each in result.value)
        assert await cells.value("(await tools.add(a=1, b=1))['sum']") == 2


async def test_helpers_and_locks_of_earlier_cells_work(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value(
            "import asyncio\nlimit = asyncio.Semaphore(1)\nread = tools.add\n"
            "async def one(n):\n    async with limit:\n        return (await read(a=n, b=1))['sum']\n"
            "await asyncio.gather(*(one(n) for n in range(3)))"
        )
        assert await cells.value("await asyncio.gather(*(one(n) for n in range(3)))") == [1, 2, 3]
        assert await cells.value("import asyncio\nawait asyncio.to_thread(sum, [1, 2])") == 3


async def test_each_cell_has_its_own_limits_calls_and_variables_of_the_environment(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        one = Limits(calls=1)
        assert (
            await cells.value("import os\nawait tools.add(a=1, b=1)\nos.environ['A']", limits=one, env={"A": "x"})
            == "x"
        )
        result = await cells.run("await tools.add(a=1, b=1)\nos.environ.get('A')", limits=one)
        assert result.value is None
        assert [call.sequence for call in result.tool_calls] == [1]
        assert "budget of 1" in await cells.error("await tools.add(a=1, b=1)\nawait tools.add(a=1, b=1)", limits=one)


async def test_cells_that_come_at_once_run_one_after_another(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value("log = []")
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(cells.value, f"log.append({number})\nawait tools.add(a=1, b=1)\nlog.append({number})")
        log = await cells.value("log")
        assert log[::2] == log[1::2]


async def test_a_cell_that_is_cut_off_ends_the_process_and_results_say_so(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value("x = 1")
        late = await cells.run("import time\ntime.sleep(60)", limits=Limits(wall_seconds=0.2))
        lost = "The variables of programs 1 to 2 of this session are gone, because program 2 was cut off"
        assert late.status == "timed_out"
        assert lost in late.model_text()
        after = await cells.run("x")
        assert after.error is not None
        assert after.error.message.startswith("name 'x' is not defined")
        assert lost in after.model_text()
        assert "gone" not in (await cells.run("y = 2")).model_text()
        assert (await cells.run("import os\nos._exit(1)")).status == "failed"
        assert "programs 3 to 5" in (await cells.run("1")).model_text()
        await cells.value("import array\nz = 1")
        assert (await cells.run("blocks = [bytearray(1 << 20) for _ in range(1000)]")).status == "failed"
        assert await cells.value("z") == 1, "a MemoryError is an error like any other"


async def test_a_cancelled_cell_ends_the_process(warm: Sandboxes) -> None:
    async with (
        Corral([add], sandbox=warm, check=False) as corral,
        corral.session(context=ANN, keep="variables") as session,
    ):
        await session.execute("x = 1", language="python")
        printed = anyio.Event()

        def note(event: Event) -> None:
            if isinstance(event, ConsoleOutput):
                printed.set()

        async with session.start("print(1)\nimport time\ntime.sleep(60)", language="python", on_event=note) as run:
            await printed.wait()
            run.cancel()
            assert (await run.result()).status == "cancelled"
        assert "are gone" in (await session.execute("1", language="python")).model_text()


async def test_more_scopes_than_earlier_cells_had_end_the_process(warm: Sandboxes) -> None:
    async with notebook(warm) as cells:
        await cells.value("x = 1")
        less = ANN.model_copy(update={"scopes": frozenset[str]()})
        assert await cells.value("x", context=less) == 1
        result = await cells.run("1")
        assert "more permissions" in result.model_text()


async def test_later_cells_are_checked_with_the_types_of_earlier_ones(warm: Sandboxes) -> None:
    async with notebook(warm, check=True) as cells:
        await cells.value("reply = await tools.add(a=1, b=2)\nimport json\nresult = 1")
        assert await cells.value("[reply['sum'], json.dumps(1)]") == [3, "1"]
        rejected = await cells.run("print(1)\nreply['total']")
        assert rejected.status == "rejected"
        assert rejected.error is not None
        assert rejected.error.line == 2
        assert "No program of this session has bound it" in await cells.error("nothing_of_this_name")
        assert await cells.value("reply = {'total': 4}\nreply['total']") == 4
        assert (await cells.run("reply = await tools.add(a=1, b=2)\nfirst = reply['sum']\n1 / 0")).status == "failed"
        assert (await cells.run("reply['anything']")).status == "failed", "its types are unknown now"
        assert await cells.value("first") == 3
        assert (await cells.run("if True:\n    return 1")).value == 1
        assert (await cells.run("return first")).value == 3
        assert (await cells.run("reply = await tools.add(a=1, b=2)\nreturn reply")).value == {"sum": 3}
        assert (await cells.run("reply['total']")).status == "rejected", "what follows a return is checked too"


def test_the_host_keeps_the_text_of_few_cells() -> None:
    long = read_program(f"a = 1\n#{'x' * 9_990}", "python", frozenset())
    cells: list[EarlierCell] = []
    for _ in range(20):
        cells = without_old_texts([*cells, earlier_cell(long, is_complete=True)])
    assert [each.typed is None for each in cells] == [True] * 16 + [False] * 4
    assert {each.binds for each in cells} == {("a",)}


async def test_idle_notebooks_end_and_say_so(warm: Sandboxes) -> None:
    sessions = Sessions(keep="variables", max_open=1, idle_seconds=3600)
    one, two = (ANN.model_copy(update={"session_id": name}) for name in ("one", "two"))
    async with Corral([add], sessions=sessions, sandbox=warm, check=False) as corral:
        await corral.execute("x = 1", language="python", context=one)
        assert (await corral.execute("x", language="python", context=one)).value == 1
        assert (await corral.execute("x", language="python", context=two)).status == "failed"
        assert (await corral.execute("x", language="python", context=one)).status == "failed"
        for bob in (ANN.model_copy(update={"user_id": "bob", "session_id": "one"}),):
            assert (await corral.execute("x = 2", language="python", context=bob)).success


async def test_an_idle_process_ends_before_its_session(warm: Sandboxes) -> None:
    async with (
        Corral([add], sandbox=warm, check=False) as corral,
        corral.session(context=ANN, keep="variables") as session,
    ):
        runtime = corral._runtime  # pyright: ignore[reportPrivateUsage]
        runtime.notebooks = Notebooks(idle_seconds=0.01)
        await session.execute("x = 1", language="python")
        await until(lambda: len(runtime.notebooks) == 0)
        assert "because their process was idle" in (await session.execute("1", language="python")).model_text()


async def test_nothing_is_left_of_a_session_that_has_ended(warm: Sandboxes) -> None:
    async with Corral([add], sandbox=warm, check=False) as corral:
        async with corral.session(context=ANN, keep="variables") as session:
            await session.execute("x = 1", language="python")
        before, open_ = descendants(), descriptors()
        async with corral.session(context=ANN, keep="variables") as session:
            await session.execute(
                "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()", language="python"
            )
            await session.execute("x = 1", language="python")
        await until(lambda: descendants().keys() <= before.keys())
        assert descriptors() == open_
        assert not corral._runtime.notebooks._notebooks  # pyright: ignore[reportPrivateUsage]


async def test_models_are_told_that_variables_stay(warm: Sandboxes) -> None:
    told = "Top-level variables, functions, classes and imports stay from one program to the next."
    async with Corral([add], sandbox=warm, check=False, sessions=Sessions(keep="variables")) as corral:
        assert told in corral.model.prompt(language="python")
        assert told in corral.model.tools("python")[0].description
        async with corral.session(context=ANN) as session:
            assert told not in corral.model.tools("python", session=session)[0].description


async def test_cells_in_typescript_see_what_earlier_ones_have_bound(warm: Sandboxes) -> None:
    async with notebook(warm, "typescript") as cells:
        await cells.value(
            "import path from 'node:path';\nimport { readFile as read, writeFile } from 'fs/promises';\n"
            "const x: number = 1, y = 2;\nlet unset;\nlet count = 0;\nconst increase = () => ++count;\n"
            "function f(n: number): number { return x + n; }\nenum Kind { One = 1, Two }\ninterface Row { id: number }\nf(1)"
        )
        assert await cells.value("const sum = await tools.add({a: f(1), b: y});\nreturn sum.sum;") == 4
        assert await cells.value(
            "let x = 10;\nreturn [f(1), f.name, unset, path.join('a', 'b'), typeof read, typeof writeFile]"
        ) == [
            11,
            "f",
            None,
            "a/b",
            "function",
            "function",
        ]
        assert (
            await cells.value(
                "const { sum: total, other = 5, ...rest } = sum, [a, [b]] = [1, [2]];\n"
                "class A { v = x; static make() { return new A(); } }\nincrease()"
            )
            == 1
        )
        assert await cells.value(
            "const row: Row = { id: increase() };\nreturn [count, total, other, rest, a, b, A.make().v, Kind.Two, row]"
        ) == [2, 4, 5, {}, 1, 2, 10, 2, {"id": 2}]
        assert await cells.value("function f(n) { return late(n); }\nfunction late(n) { return 100 + n; }\nf(1)") == 101
        assert await cells.value("const helper = (n) => n;") is None, "helpers are not called"
        assert await cells.value("async function main() { return helper(f(2)); }") == 102
        assert (await cells.run("console.log(x, [y])")).console == "10 [ 2 ]\n"


@pytest.mark.matrix("the same in Python is in the gate; here in TypeScript")
async def test_errors_in_typescript_name_the_cell_and_keep_what_was_bound(warm: Sandboxes) -> None:
    async with notebook(warm, "typescript") as cells:
        await cells.value("const before = 1;\nfunction f() {\n  return null.x;\n}\n1")
        failed = await cells.run("const kept = 2;\nf();\nconst after = 3;")
        assert failed.error is not None
        assert failed.error.line == 2
        assert (failed.error.stack or "").splitlines()[1:] == ["    at f (cell_1.ts:3)", "    at program.ts:2:1"]
        assert "kept: continue from there" in failed.model_text()
        assert await cells.value("[kept, after]") == [2, None]
        assert (await cells.run("const kept = 5;\nconst const = 1;")).status == "rejected"
        assert await cells.value("kept + before") == 3


async def test_work_that_a_cell_in_typescript_leaves_behind_ends_with_it(warm: Sandboxes) -> None:
    async with notebook(warm, "typescript") as cells:
        await cells.value(
            "const log = [];\nlet open;\nconst gate = new Promise((resolve) => { open = resolve; });\n"
            "const call = async (what) => { try { await tools.add({a: 1, b: 1}); log.push('called'); }"
            " catch (error) { log.push(`${what}: ${error.message}`); } };\n"
            "const waiting = gate.then(() => call('promise'));\n"
            "setInterval(() => call('timer'), 1);\nsetTimeout(() => log.push('slept'), 400);\n"
            "await Promise.race([waiting, 1]);\nreturn 0;"
        )
        result = await cells.run("open();\nawait new Promise((resolve) => setTimeout(resolve, 420));\nreturn log")
        assert result.tool_calls == ()
        assert not {"called", "slept"} & {*result.value}
        assert "promise: tools.add was not called: the program had ended" in result.value
        assert await cells.value("const { add } = tools;\nreturn (await add({a: 1, b: 1})).sum") == 2
        assert await cells.value("return (await add({a: 1, b: 2})).sum") == 3


@pytest.mark.matrix("the same in Python is in the gate; here in TypeScript")
async def test_each_cell_in_typescript_has_its_own_limits_calls_and_environment(warm: Sandboxes) -> None:
    async with notebook(warm, "typescript") as cells:
        one = Limits(calls=1)
        call = "await tools.add({a: 1, b: 1});\nreturn process.env.A ?? null"
        assert await cells.value(call, limits=one, env={"A": "x"}) == "x"
        result = await cells.run(call, limits=one)
        assert (result.value, [call.sequence for call in result.tool_calls]) == (None, [1])
        assert await cells.value(call, env={"A": "y"}) == "y"
        late = await cells.run("const z = 1;\nfor (;;) {}", limits=Limits(wall_seconds=0.2))
        assert late.status == "timed_out"
        assert "programs 1 to 4" in late.model_text()
        assert "not defined" in await cells.error("z")


@pytest.mark.matrix("the same in Python is in the gate; here in TypeScript")
async def test_later_cells_in_typescript_are_checked_with_the_types_of_earlier_ones(warm: Sandboxes) -> None:
    async with notebook(warm, "typescript", check=True) as cells:
        await cells.value("interface Row { id: number }\nconst reply = await tools.add({a: 1, b: 2});\nreturn 1;")
        assert await cells.value("const row: Row = { id: reply.sum };\nrow.id") == 3
        rejected = await cells.run("console.log(1);\nawait tools.add({ a: reply, b: 1 })")
        assert rejected.status == "rejected"
        assert rejected.error is not None
        assert rejected.error.line == 2
        assert "No program of this session has bound it" in await cells.error("nothingOfThisName")
        assert await cells.value("const reply = { total: 4 };\nreply.total") == 4
        failed = await cells.run("const reply = await tools.add({a: 1, b: 2});\nconst first = reply.sum;\nnull.x;")
        assert failed.status == "failed"
        assert await cells.value("[reply.anything, first]") == [None, 3], "its types are unknown now"
        assert await cells.value("let count = 0;\nimport path from 'path';\ncount") == 0
        assert await cells.value("count += first;\npath.join('a', `${count}`)") == "a/3"


async def test_other_sandboxes_refuse(warm: Sandboxes) -> None:
    async with (
        Corral([add], sandbox={"python": MontySandbox()}, check=False) as corral,
        corral.session(context=ANN, keep="variables") as session,
    ):
        with pytest.raises(ConfigError, match="cannot keep variables"):
            await session.execute("1", language="python")

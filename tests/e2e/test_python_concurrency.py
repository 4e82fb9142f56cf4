"""Python programs that do several things at once: calls, tasks, threads, timeouts, and what is left over at the end."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import pytest

from corral import Limits, tool
from tests.e2e.clocks import UNLIMITED, at_once
from tests.e2e.python_engines import Python, code_of
from tests.until import LIMIT_SECONDS
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("calls", [20, 100])
async def test_calls_of_a_gather_are_under_way_together(python: Python, calls: int) -> None:
    program = f"import asyncio\nawait asyncio.gather(*[tools.meet(calls={calls}) for _ in range({calls})])"
    assert await python.value(program) == [calls] * calls


async def test_results_of_a_gather_come_in_the_order_of_its_arguments(python: Python) -> None:
    program = "import asyncio\nawait asyncio.gather(*[tools.wait(seconds=s) for s in (0.03, 0.0, 0.01)])"
    assert await python.value(program) == [0.03, 0.0, 0.01]


async def test_only_so_many_calls_are_in_flight_and_the_others_wait(python: Python) -> None:
    now, most = 0, 0
    full = anyio.Event()

    @tool
    async def count() -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 3:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()  # for one too many to be seen
        now -= 1
        return now

    program = "import asyncio\nlen(await asyncio.gather(*[tools.count() for _ in range(30)]))"
    assert await python.value(program, tools=[count], limits=Limits(calls_in_flight=3)) == 30
    assert most == 3


async def test_over_the_budget_no_call_reaches_the_host(python: Python) -> None:
    """Of a gather of 10,000 with a budget of 100, a hundred calls are made."""
    program = "import asyncio\nawait asyncio.gather(*[tools.echo(n=n) for n in range(10_000)])"
    result = await python.run(program, limits=Limits(calls=100))
    assert code_of(result) == "call_budget_exceeded"
    assert len(result.tool_calls) == 100


async def test_one_that_fails_ends_a_gather_and_the_others_are_joined(python: Python, lasting_grace: None) -> None:
    result = await python.run(
        "import asyncio\nawait asyncio.gather(tools.fail(message='no'), tools.wait(seconds=0.02))"
    )
    assert (code_of(result), result.error and result.error.message) == ("tool_error", "no")
    assert [call.error is None for call in result.tool_calls] == [False, True]


async def test_asyncio_and_threads_work_as_anywhere(cpython: Python) -> None:
    wrong = Wrong()
    for program, value in [
        ("t = [asyncio.create_task(tools.meet(calls=2)) for _ in range(2)]\n[await each for each in t]", [2, 2]),
        (
            (
                "async with asyncio.TaskGroup() as group:\n"
                "    t = [group.create_task(tools.meet(calls=2)) for _ in range(2)]\n[each.result() for each in t]"
            ),
            [2, 2],
        ),
        ("[await each for each in asyncio.as_completed([tools.echo(1), tools.echo(1)])]", [1, 1]),
        ("await asyncio.shield(tools.echo(1))", 1),
        ("await asyncio.wait_for(tools.echo(1), 5)", 1),
        (
            "await asyncio.gather(tools.fail(message='no'), tools.echo(1), return_exceptions=True)",
            [{"name": "ToolError", "message": "no"}, 1],
        ),
        (
            (
                "turns = asyncio.Semaphore(2)\nasync def one(n):\n    async with turns:\n        return await tools.echo(n)\n"
                "await asyncio.gather(*map(one, range(5)))"
            ),
            [0, 1, 2, 3, 4],
        ),
        (
            (
                "queue, out = asyncio.Queue(), []\nasync def work():\n    while True:\n"
                "        out.append(await tools.echo(await queue.get()))\n        queue.task_done()\n"
                "workers = [asyncio.create_task(work()) for _ in range(3)]\nfor n in range(6): queue.put_nowait(n)\n"
                "await queue.join()\nfor each in workers: each.cancel()\nsorted(out)"
            ),
            [0, 1, 2, 3, 4, 5],
        ),
        (
            "async def count():\n    for n in range(3):\n        yield await tools.echo(n)\n[n async for n in count()]",
            [0, 1, 2],
        ),
        (
            (
                "import contextvars\nown = contextvars.ContextVar('own')\nasync def one(n):\n    own.set(n)\n"
                "    await tools.meet(calls=3)\n    return own.get()\nawait asyncio.gather(*map(one, range(3)))"
            ),
            [0, 1, 2],
        ),
        ("await asyncio.to_thread(sum, [1, 2])", 3),
        ("await asyncio.get_running_loop().run_in_executor(None, sum, [1, 2])", 3),
        (
            (
                "import threading\nloop, done = asyncio.get_running_loop(), asyncio.Event()\n"
                "threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set)).start()\nawait done.wait()"
            ),
            True,
        ),
        (
            (
                "loop = asyncio.get_running_loop()\ndef ask():\n"
                "    return asyncio.run_coroutine_threadsafe(tools.echo(7), loop).result()\nawait asyncio.to_thread(ask)"
            ),
            7,
        ),
        (
            (
                "import threading\nout = []\nthread = threading.Thread(target=lambda: out.append(asyncio.run(tools.echo(7))))\n"
                "thread.start()\nthread.join()\nout"
            ),
            [7],
        ),
        (
            (
                "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as pool:\n"
                "    out = list(pool.map(abs, [-1, -2]))\nout"
            ),
            [1, 2],
        ),
        ("def ask():\n    return asyncio.run(tools.echo(7))\nask()", 7),
        ("def ask():\n    return asyncio.new_event_loop().run_until_complete(tools.echo(7))\nask()", 7),
        ("async def main():\n    return await tools.echo(7)\nasyncio.run(main())", 7),
        ("async def main():\n    return await tools.echo(7)\nasyncio.get_event_loop().run_until_complete(main())", 7),
        (
            (
                "async def both():\n    return await asyncio.gather(tools.echo(7), tools.echo(8))\n"
                "def main():\n    return asyncio.run(both())\nmain()"
            ),
            [7, 8],
        ),
        ("def ask(n):\n    return asyncio.run(tools.echo(n))\n[ask(1), await tools.echo(2), ask(3)]", [1, 2, 3]),
        (
            (
                "async def one(n):\n    await asyncio.sleep(0)\n    return asyncio.run(tools.echo(n))\n"
                "await asyncio.gather(*map(one, range(40)))"
            ),
            [*range(40)],
        ),
        (
            (
                "def ask():\n    loop = asyncio.get_event_loop()\n"
                "    return loop.run_until_complete(asyncio.gather(tools.echo(7), tools.echo(8)))\nawait tools.echo(1)\nask()"
            ),
            [7, 8],
        ),
        (
            (
                "def ask():\n    loop = asyncio.new_event_loop()\n    asyncio.set_event_loop(loop)\n    try:\n"
                "        return loop.run_until_complete(tools.echo(7))\n    finally:\n        loop.close()\n"
                "await tools.echo(1)\nask()"
            ),
            7,
        ),
        (
            (
                "def ask(late):\n    try:\n        return asyncio.run(asyncio.wait_for(late, 0.01))\n"
                "    except TimeoutError:\n        return 'late'\nawait tools.echo(1)\nask(tools.wait(seconds=60))"
            ),
            "late",
        ),
        (
            (
                "from concurrent.futures import ThreadPoolExecutor\ndef ask(n):\n    return asyncio.run(tools.echo(n))\n"
                "with ThreadPoolExecutor(4) as pool:\n    out = list(pool.map(ask, range(20)))\nout"
            ),
            [*range(20)],
        ),
        (
            (
                "import threading\nout = []\nasync def ask(n):\n    for each in range(20):\n"
                "        out.append(await tools.echo(20 * n + each))\n"
                "threads = [threading.Thread(target=lambda n=n: asyncio.run(ask(n))) for n in range(5)]\n"
                "for each in threads: each.start()\nfor each in range(20): await tools.echo(each)\n"
                "for each in threads: each.join()\nsorted(out)"
            ),
            [*range(100)],
        ),
    ]:
        with wrong.case(program):
            assert await cpython.value(f"import asyncio\n{program}") == value
    assert wrong == []


async def test_what_monty_lacks_of_asyncio_is_named(python: Python) -> None:
    result = await python.run("import asyncio\nawait asyncio.wait_for(asyncio.sleep(0), 1)\n1")
    if python.engine == "cpython":
        assert result.value == 1
    else:
        assert result.error is not None
        assert "wait_for" in result.error.message
        assert "CPythonSandbox" in result.error.message


async def test_what_fails_inside_a_loop_that_runs_within_another_is_where_it_failed(cpython: Python) -> None:
    result = await cpython.run(
        "import asyncio\nawait tools.nothing()\ndef ask():\n    return asyncio.run(tools.fail(message='no'))\nask()"
    )
    assert result.error is not None
    assert (result.error.message, result.error.line) == ("no", 4)


# --- giving up


async def test_a_call_that_was_given_up_neither_holds_the_program_nor_counts_as_forgotten(cpython: Python) -> None:
    wrong = Wrong()
    for program in [
        "try:\n    await asyncio.wait_for(tools.wait(seconds=3600), 0.01)\nexcept TimeoutError:\n    out = 'late'\nout",
        "try:\n    async with asyncio.timeout(0.01):\n        await tools.wait(seconds=3600)\nexcept TimeoutError:\n    out = 'late'\nout",
        (
            "done, left = await asyncio.wait([asyncio.create_task(tools.echo('late')), asyncio.create_task(tools.wait(seconds=3600))],"
            " return_when=asyncio.FIRST_COMPLETED)\nfor each in left: each.cancel()\ndone.pop().result()"
        ),
    ]:
        with wrong.case(program):
            result = await at_once(cpython.run(f"import asyncio\n{program}", limits=UNLIMITED))
            assert (result.value, result.unawaited, result.diagnostics) == ("late", (), ())
    assert wrong == []


async def test_a_call_that_was_given_up_before_it_was_sent_is_not_made(cpython: Python) -> None:
    result = await cpython.run(
        "import asyncio\ntasks = [asyncio.create_task(tools.wait(seconds=n / 100)) for n in (2, 1, 0)]\n"
        "await asyncio.sleep(0)\ntasks[1].cancel()\nawait asyncio.gather(tasks[0], tasks[2])",
        limits=Limits(calls_in_flight=1),
    )
    assert result.value == [0.02, 0.0]
    assert [call.input for call in result.tool_calls] == [{"seconds": 0.02}, {"seconds": 0.0}]


async def test_calls_left_behind_are_joined_though_another_was_given_up(cpython: Python, lasting_grace: None) -> None:
    result = await cpython.run(
        "import asyncio\ntask = asyncio.create_task(tools.wait(seconds=0.05))\ntry:\n"
        "    await asyncio.wait_for(tools.wait(seconds=60), 0.01)\nexcept TimeoutError:\n    pass\nresult = 1\nresult"
    )
    assert (result.value, result.diagnostics) == (1, ())
    assert [(call.tool, call.line, call.error) for call in result.unawaited] == [("wait", 2, None)]
    assert [call.output for call in result.tool_calls if call.error is None] == [0.05]


# --- what nobody waits for


async def test_a_call_that_nobody_awaits_is_finished_and_listed(cpython: Python, lasting_grace: None) -> None:
    result = await cpython.run(
        "import asyncio\n\ntask = asyncio.create_task(tools.wait(seconds=0.05))\nawait asyncio.sleep(0)\n1"
    )
    assert result.value == 1
    assert [(call.tool, call.line, call.column, call.error) for call in result.unawaited] == [("wait", 3, 28, None)]
    assert [call.output for call in result.tool_calls] == [0.05]
    assert "did not wait for them; do not repeat them: wait" in result.model_text()


async def test_a_value_is_written_when_all_tasks_that_the_program_began_have_ended(cpython: Python) -> None:
    wrong = Wrong()
    for program in [
        "for n in (1, 2): asyncio.create_task(add(n))",
        "kept = [asyncio.create_task(add(n)) for n in (1, 2)]\nawait asyncio.sleep(0)",
        "later = asyncio.gather(add(1), add(2), return_exceptions=True)",
        "async def both():\n    await asyncio.gather(add(1), add(2))\nasyncio.ensure_future(both())",
        (
            "try:\n    await asyncio.gather(tools.fail(message='x'), tools.wait(seconds=3600))\nexcept Exception:\n"
            "    pass\nawait add(1)\nasyncio.create_task(add(2))"
        ),
    ]:
        add = "async def add(n):\n    await tools.echo(n)\n    await asyncio.sleep(n / 100)\n    done.append(await tools.echo(n))"
        with wrong.case(program):
            result = await at_once(cpython.run(f"import asyncio\ndone = []\n{add}\n{program}\ndone", limits=UNLIMITED))
            assert (result.value, result.diagnostics) == ([1, 2], ())
    assert wrong == []


async def test_what_a_failed_gather_leaves_behind_neither_holds_the_result_nor_counts_as_forgotten(
    python: Python,
) -> None:
    gather = "await asyncio.gather(tools.fail(message='no'), tools.wait(seconds=3600))"
    for program in (gather, f"try:\n    {gather}\nexcept Exception:\n    seen = 1\nseen"):
        result = await at_once(python.run(f"import asyncio\n{program}", limits=UNLIMITED))
        assert (result.success, result.unawaited) == (program != gather, ())
        assert {call.name: call.error and call.error.code for call in result.tool_calls} == {
            "fail": "tool_error",
            "wait": "cancelled",
        }


async def test_tasks_that_nobody_awaits_begin_and_without_a_value_they_end(cpython: Python) -> None:
    wrong = Wrong()
    for start in ["asyncio.create_task", "asyncio.ensure_future"]:
        with wrong.case(start):
            program = (
                "import asyncio\nasync def later():\n    await asyncio.sleep(0.3)\n    print(await tools.echo('late'))\n"
                f"await tools.echo(0)\n{start}(tools.wait(seconds=0.4))\nkept = {start}(later())\n"
            )
            result = await cpython.run(f"{program}print('end')")
            assert result.console == "end\nlate\n"
            assert [(call.name, call.error) for call in result.tool_calls] == [
                ("echo", None),
                ("wait", None),
                ("echo", None),
            ]
            with_value = await cpython.run(f"{program}5")
            assert (with_value.value, with_value.console) == (5, "late\n")
            assert [call.name for call in with_value.tool_calls] == ["echo", "wait", "echo"]
    assert wrong == []


async def test_a_task_that_waits_for_ever_does_not_hold_a_program_without_a_value(cpython: Python) -> None:
    result = await cpython.run(
        "import asyncio\nqueue = asyncio.Queue()\nasync def work():\n    while True:\n"
        "        print(await tools.echo(await queue.get()))\n        queue.task_done()\n"
        "worker = asyncio.create_task(work())\nqueue.put_nowait('a')\nawait queue.join()\nprint('end')"
    )
    assert (result.status, result.console) == ("succeeded", "a\nend\n")


async def test_the_losers_of_a_wait_do_not_hold_the_result(cpython: Python) -> None:
    program = (
        "import asyncio\ntasks = [asyncio.create_task(tools.wait(seconds=n)) for n in (0, 3600)]\n"
        "done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)\nprint(len(done))"
    )
    result = await at_once(cpython.run(program, limits=UNLIMITED))
    assert (result.console, result.unawaited) == ("1\n", ())
    assert any("tools.wait" in each.message for each in result.diagnostics)


async def test_a_call_that_was_given_up_but_must_finish_is_waited_for(python: Python) -> None:
    ended: list[str] = []
    paying = anyio.Event()

    @tool(must_finish=True)
    async def pay() -> None:
        paying.set()
        await anyio.sleep(0.4)
        ended.append("paid")

    @tool
    async def begun() -> None:
        await paying.wait()

    program = (
        "task = asyncio.ensure_future(tools.pay())\nawait tools.begun()\n"
        "try:\n    await asyncio.wait_for(task, 0.01)\nexcept TimeoutError:\n    late = 1\nlate"
        if python.engine == "cpython"
        else "task = tools.pay()\n1"
    )
    result = await python.run(f"import asyncio\n{program}", tools=[pay, begun])
    assert (result.value, ended) == (1, ["paid"])
    assert {call.error for call in result.tool_calls} == {None}


async def test_a_call_that_was_never_started_does_not_run_in_cpython_and_does_in_monty(python: Python) -> None:
    python.received.clear()
    result = await python.run("forgotten = tools.accept(1)\n5")
    assert result.value == 5
    [left] = result.unawaited
    assert (left.tool, left.line, left.column) == ("accept", 1, 13)
    if python.engine == "cpython":
        assert (left.error, python.received) == ("it was not awaited, so it did not run", [])
    else:
        assert (left.error, python.received) == (None, [1])
    assert "destroyed" not in result.console


async def test_a_task_that_fails_and_that_nobody_awaits_is_remarked(cpython: Python) -> None:
    wrong = Wrong()
    for kept in ["task = ", ""]:
        with wrong.case(kept):
            result = await cpython.run(
                f"import asyncio\nasync def lost():\n    raise ValueError('unseen')\n{kept}asyncio.create_task(lost())\nawait asyncio.sleep(0)\n1"
            )
            assert result.value == 1
            assert [each.message for each in result.diagnostics] == [
                "a task failed and nothing awaited it: ValueError: unseen"
            ]
    assert wrong == []


async def test_an_error_that_was_seen_is_not_remarked(cpython: Python) -> None:
    result = await cpython.run(
        "import asyncio\nasync def lost():\n    raise ValueError('seen')\ntask = asyncio.create_task(lost())\n"
        "try:\n    await task\nexcept ValueError:\n    pass\nresult = 1\nresult"
    )
    assert (result.value, result.diagnostics) == (1, ())


async def test_waiting_for_what_nothing_will_bring_is_named_at_once(cpython: Python) -> None:
    wrong = Wrong()
    for wait in ["asyncio.Event().wait()", "asyncio.get_running_loop().create_future()", "asyncio.Queue().get()"]:
        with wrong.case(wait):
            result = await cpython.run(f"import asyncio\nprint('x')\nawait {wait}")
            assert result.error is not None
            assert (result.error.name, code_of(result), result.console) == ("Deadlock", "program_failed", "x\n")
    assert wrong == []


async def test_an_execution_may_be_awaited_by_many_at_once(python: Python) -> None:
    """24 executions at the same time: each has its own variables, budget and console."""

    results: dict[int, tuple[object, str]] = {}

    async def one(number: int) -> None:
        program = f"own = {number}\nprint(own)\nawait tools.meet(calls=24)\nown"
        result = await python.run(program, limits=Limits(calls=1))
        results[number] = result.value, result.console

    async with anyio.create_task_group() as tasks:
        for number in range(24):
            tasks.start_soon(one, number)
    assert results == {number: (number, f"{number}\n") for number in range(24)}


async def test_a_sync_tool_that_blocks_does_not_block_the_event_loop(python: Python) -> None:
    meeting = threading.Barrier(3, timeout=LIMIT_SECONDS)

    @tool
    def block() -> int:
        return meeting.wait()  # passes only if three run at the same time

    program = "import asyncio\nsorted(await asyncio.gather(*[tools.block() for _ in range(3)]))"
    assert await python.value(program, tools=[block]) == [0, 1, 2]

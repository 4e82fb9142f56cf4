"""MontySandbox with a real Monty: programs in, exits out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from corral.errors import ConfigError, StartFailed
from corral.plugins import load_by_name
from corral.programs import prepare_python
from corral.sandboxes.base import Job
from corral.sandboxes.monty import MontySandbox
from corral.types import (
    CallError,
    CallRequest,
    Exit,
    Limits,
    LogEntry,
    Owner,
    PipeEndpoint,
    Program,
    Reply,
    RequestHandler,
    SandboxConfig,
    ToolName,
)
from tests.until import until

pytestmark = pytest.mark.anyio

ATTACKS = json.loads((Path(__file__).parents[1] / "cases" / "attacks.json").read_text(encoding="utf-8"))["attacks"]
HARMLESS = {"py-hang-03", "py-hang-09"}
"""Monty's expressions do not backtrack, and it does not print what leaves it."""
OURS = Owner(None, "ours")
THEIRS = Owner(None, "theirs")
TOOLS = (ToolName(None, "echo"), ToolName(None, "fail"), ToolName(None, "wait"), ToolName("ns", "echo"))


async def answer(call: CallRequest) -> Reply:
    match call.tool.rpartition(".")[2]:
        case "fail":
            error = CallError(code="rate_limited", name="RateLimited", message="too many", retry_after_seconds=2)
            return Reply(error=error)
        case "wait":
            await anyio.sleep(cast("dict[str, float]", call.input)["seconds"])
            return Reply()
        case _:
            return Reply(value=call.input)


class Bench:
    """Runs programs in one provider, and keeps their output."""

    def __init__(self, provider: MontySandbox) -> None:
        self.provider = provider
        self.logs: list[tuple[str, str]] = []
        self.held: list[Exit] = []

    async def run(
        self,
        code: str,
        *,
        handler: RequestHandler = answer,
        env: dict[str, str] | None = None,
        domain: Owner | None = OURS,
        memory_mb: int = 32,
        prepared: bool = False,
        **limits: Any,
    ) -> Exit:
        bounds = Limits(memory_mb=memory_mb, **limits)
        job = Job(
            execution_id="execution",
            program=prepare_python(code) if prepared else program_of(code),
            limits=bounds,
            tools=TOOLS,
            env=env,
            on_log=lambda entry: self._log(entry),
            on_outcome=self.held.append,
        )
        config = SandboxConfig(language="python", memory_mb=memory_mb, owner=domain)
        async with await self.provider.start(config) as sandbox:
            return await sandbox.execute(job, PipeEndpoint(handler=handler))

    async def value(self, code: str, **options: Any) -> Any:
        exit = await self.run(code, **options)
        assert exit.error is None, exit.error
        return exit.value

    def _log(self, entry: LogEntry) -> None:
        self.logs.append((entry.level, entry.text))


def program_of(code: str) -> Program:
    return Program(
        language="python",
        source=code,
        code=code,
    )


def workers() -> set[int]:
    """Processes of Monty that are ours."""
    pids: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name.endswith("(monty") and int(parent) == os.getpid() and state != "Z":
            pids.add(int(path.parent.name))
    return pids


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    provider = MontySandbox(pool_size=1)
    await provider.warm(SandboxConfig(language="python", memory_mb=32))
    try:
        yield Bench(provider)
    finally:
        await provider.aclose()


# --- values ------------------------------------------------------------------------------------------------------------

# tests/docs/test_values.py runs the table of conversions in docs/values.md. These are the cases it does not cover.


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{'a': [1, 2.5, True, 'x', None]}", {"a": [1, 2.5, True, "x", None]}),
        ("float('inf')", float("inf")),
        ("{1: 'a', 2.5: 'b', True: 'c'}", {"true": "c", "2.5": "b"}),
        ("Point(1, [Point(2, 3)])", {"x": 1, "y": [{"x": 2, "y": 3}]}),
        ("['range(0, 3)', '[...]', {'a': '<function x>'}]", ["range(0, 3)", "[...]", {"a": "<function x>"}]),
        ("asyncio.run(tools.echo(a=1))", {"a": 1}),
    ],
)
async def test_a_value_is_what_it_is_from_cpython(bench: Bench, expression: str, value: object) -> None:
    prelude = "import asyncio\nfrom dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n    y: object\n"
    assert await bench.value(f"{prelude}_corral_result = {expression}") == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("{'a': [1, lambda: 1]}", "result.a[1]: a function cannot leave the sandbox; call it, or return its result"),
        ("[print]", "result[0]: a function cannot leave the sandbox; call it, or return its result"),
        ("cycle", "result.self: a cycle: the value contains itself"),
        ("deep", "result[0][0][0][0][0][0][0][0] …: nested deeper than 100 levels"),
        ("tools", "result: a function cannot leave the sandbox; call it, or return its result"),
        (
            "asyncio.gather(tools.echo())",
            "result: a gather: await it first",
        ),
        ("tools.echo(a=1)", "result: tools.echo(...) was not awaited: write `await tools.echo(...)`"),
        ("f'{tools.echo(a=1)} it is'", "result: tools.echo(...) was not awaited: write `await tools.echo(...)`"),
    ],
)
async def test_what_cannot_leave_is_named_by_its_path(bench: Bench, expression: str, message: str) -> None:
    prelude = "import asyncio\ncycle = {}\ncycle['self'] = cycle\ndeep = []\nfor _ in range(150):\n    deep = [deep]\n"
    exit = await bench.run(f"{prelude}_corral_result = {expression}")
    assert exit.error is not None
    assert (exit.status, exit.error.code, exit.error.message) == ("failed", "program_failed", message)


async def test_a_few_bytes_that_stand_for_a_huge_tree_are_refused(bench: Bench) -> None:
    code = "a = []\nfor _ in range(60):\n    a = [a, a]\n"
    exit = await bench.run(f"{code}_corral_result = a", value_bytes=10_000)
    assert exit.error is not None
    assert exit.error.code == "output_exceeded"
    exit = await bench.run(f"{code}await tools.echo(a=a)", tool_input_bytes=10_000)
    assert exit.error is not None
    assert exit.error.code == "message_too_large"
    text = "text = 'x' * 1_000_000\n_corral_result = [{text: text} for _ in range(10_000)]"
    exit = await bench.run(text)
    assert exit.error is not None
    assert exit.error.code == "output_exceeded"


async def test_what_a_tool_returns_arrives_as_python_has_it(bench: Bench) -> None:
    async def handler(_: CallRequest) -> Reply:
        return Reply(value={"b": b"\x01", "n": float("nan"), "i": 2**70, "o": {"$bytes": 1}, "z": -0.0})

    code = (
        "v = await tools.echo()\n"
        "_corral_result = [v['b'] == b'\\x01', v['n'] != v['n'], v['i'] == 2 ** 70, v['o'], str(v['z'])]"
    )
    assert await bench.value(code, handler=handler) == [True, True, True, {"$bytes": 1}, "-0.0"]


# --- calls -------------------------------------------------------------------------------------------------------------


async def test_tools_are_reached_in_every_way_that_a_program_may_write(bench: Bench) -> None:
    code = (
        "from tools import ns\nimport codemode as other\nf = tools.echo\nspace = tools.ns\n"
        "_corral_result = [await tools.echo(a=1), await tools.echo({'b': 2}), await tools.echo([3]), await tools.echo(),\n"
        "  await tools.ns.echo(c=4), await f(d=5), await space.echo(e=6), await ns.echo(f=7), await other.echo(g=8),\n"
        "  await getattr(tools, 'echo')(h=9), await codemode.echo(i=10)]"
    )
    expected = [{"a": 1}, {"b": 2}, [3], {}, {"c": 4}, {"d": 5}, {"e": 6}, {"f": 7}, {"g": 8}, {"h": 9}, {"i": 10}]
    assert await bench.value(code) == expected


async def test_unknown_names_are_asked_of_the_host(bench: Bench) -> None:
    seen: list[str] = []

    async def handler(call: CallRequest) -> Reply:
        seen.append(call.tool)
        return Reply()

    await bench.value("await tools.eco()\nawait tools.nss.echo()\nawait tools.ns.eco()", handler=handler)
    assert seen == ["eco", "nss.echo", "ns.eco"]


async def test_a_failed_call_can_be_caught_and_its_text_has_its_name(bench: Bench) -> None:
    code = "try:\n    await tools.fail()\nexcept PermissionError as error:\n    _corral_result = str(error)"
    assert await bench.value(code) == "RateLimited: too many"
    exit = await bench.run("async def f():\n    return await tools.fail()\nawait f()")
    assert exit.error is not None
    assert (exit.error.code, exit.error.name, exit.error.message) == ("rate_limited", "RateLimited", "too many")
    assert (exit.error.line, exit.error.stack) == (
        2,
        '  File "program.py", line 3, in <module>\n  File "program.py", line 2, in f',
    )


async def test_arguments_that_make_no_input_are_refused(bench: Bench) -> None:
    exit = await bench.run("await tools.echo(1, 2)")
    assert exit.error is not None
    assert exit.error.code == "invalid_arguments"
    assert exit.error.message == "tools.echo takes keyword arguments, or its whole input as the only argument"
    exit = await bench.run("await tools.echo(a=[print])")
    assert exit.error is not None
    assert exit.error.message.startswith("tools.echo: input.a[0]: a function")


async def test_a_hundred_calls_are_under_way_at_once(bench: Bench) -> None:
    under_way = 0
    all_are = anyio.Event()

    async def meet(_: CallRequest) -> Reply:
        nonlocal under_way
        under_way += 1
        if under_way == 100:
            all_are.set()
        await all_are.wait()
        return Reply()

    with anyio.fail_after(20):
        await bench.value("import asyncio\nawait asyncio.gather(*[tools.wait() for _ in range(100)])", handler=meet)


async def test_tasks_go_on_while_others_wait(bench: Bench) -> None:
    order = ["c", "d", "a", "b"]

    async def answer(call: CallRequest) -> Reply:
        """Answers when the program has said that it has the answers before."""
        name = cast("dict[str, str]", call.input)["name"]
        await until(lambda: [text for _, text in bench.logs] == order[: order.index(name)])
        return Reply()

    code = (
        "import asyncio\nasync def two(first, second):\n    await tools.meet(name=first)\n    print(first)\n"
        "    await tools.meet(name=second)\n    print(second)\n"
        "await asyncio.gather(two('a', 'b'), two('c', 'd'), asyncio.sleep(0.1))"
    )
    await bench.value(code, handler=answer)
    assert bench.logs == [("log", name) for name in order]


async def test_calls_awaited_at_once_and_later_give_their_values(bench: Bench) -> None:
    code = (
        "late = tools.ns.echo(a=0)\nfound = []\nfor i in range(2):\n    await tools.echo(a=i)\n"
        "    found += [['é', await  tools.echo(a=i)], [await codemode.ns.echo(a=j) for j in range(i)]]\n"
        "async def nested():\n    try:\n        await tools.fail()\n    except PermissionError as error:\n"
        "        return [str(error), await tools.echo(b=2)]\nif not found:\n    return 1\n"
        "return [*found, await nested(), await late]"
    )
    expected: list[Any] = [
        ["é", {"a": 0}],
        [],
        ["é", {"a": 1}],
        [{"a": 0}],
        ["RateLimited: too many", {"b": 2}],
        {"a": 0},
    ]
    assert await bench.value(code, prepared=True) == expected


@pytest.mark.parametrize(
    "code", ["x = 1\nx = 2, await tools.fail()", "async def f():\n\n  await tools.fail()\nawait f()"]
)
async def test_a_failed_call_ends_the_program_at_its_await(bench: Bench, code: str) -> None:
    exit = await bench.run(code, prepared=True)
    assert exit.error is not None
    line = next(number for number, text in enumerate(code.split("\n"), 1) if "fail" in text)
    column = code.split("\n")[line - 1].index("await") + 1
    assert (exit.error.code, exit.error.line, exit.error.column) == ("rate_limited", line, column)


async def test_what_a_program_puts_among_the_tools_is_awaited(bench: Bench) -> None:
    code = "async def own():\n    return 'own'\ntools.echo = own\nx = await tools.echo()\nx"
    assert await bench.value(code, prepared=True) == "own"


async def test_sleeps_that_nobody_awaits_any_longer_do_not_hold_the_program(bench: Bench) -> None:
    exit = await bench.run("import asyncio\nawait asyncio.gather(asyncio.sleep(1000), tools.fail())")
    assert exit.error is not None
    assert exit.error.name == "RateLimited"


async def test_only_so_many_calls_run_at_the_same_time(bench: Bench) -> None:
    running: list[int] = []
    most = 0

    async def handler(_: CallRequest) -> Reply:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await until(lambda: most >= 3)
        await anyio.sleep(0.01)
        running.pop()
        return Reply()

    code = "import asyncio\nawait asyncio.gather(*[tools.echo() for _ in range(20)])"
    await bench.value(code, handler=handler, calls_in_flight=3)
    assert most == 3


async def test_calls_that_nobody_awaited_are_finished_and_listed(bench: Bench) -> None:
    exit = await bench.run("x = 1\ntools.echo(a=1)\nif x: tools.fail()\n_corral_result = 5")
    assert exit.value == 5
    assert [(call.tool, call.sequence, call.error, call.line, call.column) for call in exit.unawaited] == [
        ("echo", 1, None, 2, 1),
        ("fail", 2, "RateLimited: too many", 3, 7),
    ]


async def test_the_outcome_is_told_before_the_last_calls_have_ended(bench: Bench) -> None:
    release = anyio.Event()

    async def handler(_: CallRequest) -> Reply:
        await release.wait()
        return Reply()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: bench.run("tools.echo()\n_corral_result = 5", handler=handler))
        await until(lambda: bench.held)
        assert bench.held[0].value == 5
        release.set()


@pytest.mark.parametrize(
    "use", ["x['a']", "x.name", "x + 1", "len(x)", "for _ in x: pass", "import json; json.dumps(x)"]
)
async def test_a_forgotten_await_is_named_at_the_line_of_the_use(bench: Bench, use: str) -> None:
    exit = await bench.run(f"x = tools.echo(a=1)\n{use}")
    assert exit.error is not None
    assert exit.error.message == "tools.echo(...) was not awaited: write `await tools.echo(...)`"
    assert (exit.error.name, exit.error.line) == ("NotAwaited", 2)


# --- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [("x = (1,", 1, 8), ("x = 1\ny = 5 5", 2, 7), ("if True:", 1, 9), ("a = '😀'; b = = 2", 1, 15)],
)
async def test_what_does_not_parse_is_rejected_at_its_place(bench: Bench, code: str, line: int, column: int) -> None:
    exit = await bench.run(code)
    assert exit.error is not None
    assert (exit.status, exit.error.code, exit.error.name) == ("rejected", "program_rejected", "SyntaxError")
    assert (exit.error.line, exit.error.column) == (line, column)


@pytest.mark.parametrize(
    ("code", "status", "named"),
    [
        ("class A(Exception): pass", "rejected", "class inheritance"),
        ("def f():\n    yield 1", "rejected", "yield expressions"),
        ("del x", "rejected", "'del' statement"),
        ("import numpy", "failed", 'no module numpy; CPythonSandbox(packages=["numpy"]) has'),
        ("import subprocess", "failed", "no module subprocess; CPythonSandbox has"),
        ("from collections import OrderedDict", "failed", "collections has no OrderedDict"),
        ("import asyncio\nasyncio.create_task(1)", "failed", "asyncio.gather"),
        ("bytearray(3)", "failed", "no built-in bytearray"),
        ("'a'.translate({})", "failed", "Monty's str has no translate"),
        ("raise ValueError(1)", "failed", "Monty cannot do this"),
    ],
)
async def test_what_monty_lacks_is_named_with_what_has_it(bench: Bench, code: str, status: str, named: str) -> None:
    exit = await bench.run(code)
    assert exit.error is not None
    assert exit.status == status
    assert named in exit.error.message
    assert "CPythonSandbox" in exit.error.message


async def test_errors_have_the_place_and_frames_of_the_program(bench: Bench) -> None:
    code = "def f(n):\n    return '😀', 1 / n\nasync def _corral_program():\n    return f(0)\n_corral_result = await _corral_program()"
    exit = await bench.run(code)
    assert exit.error is not None
    assert (exit.error.name, exit.error.message) == ("ZeroDivisionError", "division by zero")
    assert (exit.error.line, exit.error.column) == (2, 18)
    assert exit.error.stack == (
        '  File "program.py", line 5, in <module>\n  File "program.py", line 4, in <module>\n'
        '  File "program.py", line 2, in f'
    )


async def test_endless_recursion_is_an_error_with_a_short_stack(bench: Bench) -> None:
    exit = await bench.run("def f(n):\n    return f(n + 1)\nf(0)")
    assert exit.error is not None
    assert exit.error.name == "RecursionError"
    assert len((exit.error.stack or "").splitlines()) == 20


# --- console and environment -------------------------------------------------------------------------------------------


async def test_printed_lines_are_entries_in_order(bench: Bench) -> None:
    await bench.value(
        "import sys\nprint('a', 1)\nprint('b', end='')\nawait tools.echo()\nprint('c\\nd')\n"
        "print('e', file=sys.stderr)\nprint('f', end='')"
    )
    assert bench.logs == [("log", "a 1"), ("log", "bc"), ("log", "d"), ("error", "e"), ("log", "f")]


async def test_console_output_over_its_limit_is_cut_and_counted(bench: Bench) -> None:
    exit = await bench.run("print('a' * 30)\nprint('b')", log_bytes=20)
    assert bench.logs == [("log", "a" * 19)]
    assert exit.dropped_log_bytes == 11 + 2


async def test_the_environment_is_what_the_job_says(bench: Bench) -> None:
    code = "import os\n_corral_result = [dict(os.environ), os.getenv('A'), os.getenv('HOME')]"
    assert await bench.value(code, env={"A": "1"}) == [{"A": "1"}, "1", None]
    exit = await bench.run(code)
    assert exit.error is not None


# --- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "limits", "status", "error"),
    [
        ("while True: pass", {"cpu_seconds": 0.2}, "timed_out", "program_timeout"),
        ("a = 'x' * 10 ** 9", {}, "failed", "memory_exceeded"),
        ("a = []\nwhile True: a.append('x' * 1000)", {}, "failed", "memory_exceeded"),
        ("_corral_result = 'x' * 2000", {"value_bytes": 1000}, "failed", "output_exceeded"),
        ("await tools.echo(a='x' * 2000)", {"tool_input_bytes": 1000}, "failed", "message_too_large"),
        ("await tools.echo(a='x' * 2000)", {"tool_output_bytes": 1000}, "failed", "message_too_large"),
        ("for _ in range(5): await tools.echo()", {"calls": 3}, "failed", "call_budget_exceeded"),
    ],
)
async def test_a_limit_ends_the_program_with_its_own_code(
    bench: Bench, code: str, limits: dict[str, Any], status: str, error: str
) -> None:
    exit = await bench.run(code, **limits)
    assert exit.error is not None
    assert (exit.status, exit.error.code) == (status, error)
    assert await bench.value("_corral_result = 1") == 1


async def test_waiting_takes_no_processor_time(bench: Bench) -> None:
    code = "import time, asyncio\ntime.sleep(0.2)\nawait asyncio.sleep(0.2)\nawait tools.wait(seconds=0.2)"
    await bench.value(code, cpu_seconds=0.15)


async def test_no_program_outlives_its_memory(bench: Bench) -> None:
    exit = await bench.run("try:\n    a = 'x' * 10 ** 9\nexcept BaseException:\n    _corral_result = 1")
    assert exit.error is not None
    assert exit.error.code == "memory_exceeded"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(10 ** 6)",
        "await tools.wait(seconds=1000)",
        "tools.wait(seconds=1000)",
    ],
)
async def test_a_cancelled_execution_leaves_no_process(bench: Bench, code: str) -> None:
    await bench.provider.aclose()
    before = workers()
    with anyio.move_on_after(0.3):
        await bench.run(code)
    assert workers() == before


async def test_a_killed_worker_is_an_error_and_the_next_program_runs(bench: Bench) -> None:
    await bench.provider.aclose()
    before = workers()

    async def handler(_: CallRequest) -> Reply:
        for pid in workers() - before:
            os.kill(pid, signal.SIGKILL)
        return Reply()

    exit = await bench.run("await tools.echo()\n_corral_result = 1", handler=handler)
    assert exit.error is not None
    assert exit.error.code == "sandbox_lost"
    assert await bench.value("_corral_result = 1") == 1


async def test_a_worker_that_dies_while_a_call_runs_is_noticed_at_once(bench: Bench) -> None:
    await bench.provider.aclose()
    before = workers()

    async def handler(_: CallRequest) -> Reply:
        for pid in workers() - before:
            os.kill(pid, signal.SIGKILL)
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(30):
        exit = await bench.run("await tools.echo()\n_corral_result = 1", handler=handler)
    assert exit.error is not None
    assert exit.error.code == "sandbox_lost"
    assert await bench.value("_corral_result = 1") == 1


async def test_a_tool_that_breaks_ends_the_execution(bench: Bench) -> None:
    async def handler(_: CallRequest) -> Reply:
        raise LookupError("not a reply")

    with pytest.raises(ExceptionGroup) as caught:
        await bench.run("await tools.echo()", handler=handler)
    assert caught.group_contains(LookupError)


# --- workers -----------------------------------------------------------------------------------------------------------


async def test_a_worker_serves_the_same_user_again_and_no_other() -> None:
    before = workers()
    provider = MontySandbox(pool_size=0)
    bench = Bench(provider)
    await provider.warm(SandboxConfig(language="python", memory_mb=32))
    try:
        await bench.value("_corral_result = 1")
        ours = workers() - before
        await bench.value("_corral_result = 1")
        assert workers() - before == ours
        running: list[set[int]] = []

        async def handler(_: CallRequest) -> Reply:
            running.append(workers() - before)
            return Reply()

        await bench.value("await tools.echo()", handler=handler, domain=THEIRS)
        assert len(running[0]) == 2
        await bench.value("await tools.echo()", handler=handler, domain=None)
        assert len(running[1]) == 3
        assert workers() - before == running[0]
    finally:
        await provider.aclose()


async def test_an_execution_finds_nothing_of_the_one_before(bench: Bench) -> None:
    await bench.value("import sys, random\nleft = 1\nrandom.seed(1)\ntools.left = 1\nprint('x', end='')")
    exit = await bench.run("_corral_result = left")
    assert exit.error is not None
    assert exit.error.message == "name 'left' is not defined"
    draw = "import random\n_corral_result = random.random()"
    assert await bench.value(draw) != await bench.value(draw)
    assert (
        await bench.value("_corral_result = tools.__dict__.get('left') if hasattr(tools, '__dict__') else None") is None
    )
    assert bench.logs == [("log", "x")]


@pytest.mark.parametrize("anyio_backend", ["trio", ("asyncio", {"use_uvloop": True})], ids=["trio", "uvloop"])
async def test_it_runs_on_every_event_loop(bench: Bench) -> None:
    code = (
        "import asyncio\nprint('begun')\na = await tools.echo(a=1)\n"
        "_corral_result = [a, *await asyncio.gather(tools.echo(b=2), tools.wait(seconds=0.01), asyncio.sleep(0.01))]"
    )
    assert await bench.value(code) == [{"a": 1}, {"b": 2}, None, None]
    assert bench.logs == [("log", "begun")]
    exit = await bench.run("while True: pass", cpu_seconds=0.1)
    assert exit.status == "timed_out"
    await bench.provider.aclose()
    before = workers()
    with anyio.move_on_after(0.2):
        await bench.run("await tools.wait(seconds=1000)")
    assert workers() == before


async def test_closing_leaves_no_process() -> None:
    before = workers()
    provider = MontySandbox(pool_size=1)
    await provider.warm(SandboxConfig(language="python", memory_mb=32))
    await Bench(provider).value("_corral_result = 1")
    assert workers() - before
    await provider.aclose()
    assert workers() == before


async def test_the_catalog_knows_it_and_a_wrong_size_is_refused() -> None:
    assert isinstance(load_by_name("corral.sandboxes", "monty", pool_size=0), MontySandbox)
    with pytest.raises(ConfigError):
        MontySandbox(pool_size=-1)


async def test_a_tier_that_monty_does_not_have_is_refused(bench: Bench) -> None:
    with pytest.raises(StartFailed, match="containment='landlock'"):
        await bench.provider.start(SandboxConfig(language="python", required_tier="namespaces"))


# --- attacks -----------------------------------------------------------------------------------------------------------


async def test_no_attack_leaves_the_interpreter(bench: Bench, tmp_path: Path) -> None:
    secret = "canary-4d1f9a"
    path = tmp_path / "secret"
    path.write_text(secret)
    texts = {"${SECRET}": str(path), "${SECRETJSON}": str(path), "${PORT}": "9", "${HOSTPID}": str(os.getpid())}
    outcomes: dict[str, str] = {}
    for attack in ATTACKS:
        if attack["language"] != "py":
            continue
        code: str = attack["code"]
        for name, text in texts.items():
            code = code.replace(name, text)
        exit = None
        with anyio.move_on_after(1):
            exit = await bench.run(
                f"result = None\n{code}\n_corral_result = result", memory_mb=16, cpu_seconds=0.1, domain=None
            )
        outcomes[attack["id"]] = "timeout" if exit is None or exit.status == "timed_out" else exit.status
        shown = f"{exit!r}{bench.logs}"
        assert secret not in shown, attack["id"]
        assert "root:" not in shown, attack["id"]
        if attack["class"] in ("hang", "memory"):
            assert outcomes[attack["id"]] != "succeeded" or attack["id"] in HARMLESS, attack["id"]
    assert path.read_text() == secret
    assert len(outcomes) == 80
    assert await bench.value("_corral_result = 1", memory_mb=16) == 1

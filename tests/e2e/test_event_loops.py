"""The same program on every event loop that corral runs on, started as each loop's own users start it."""

from __future__ import annotations

import sys

import pytest

from tests.forks import run_forked

SCRIPT = """
import anyio
from corral import Corral, tool

arrived = 0

@tool
async def meet(name: str) -> str:
    global arrived, met
    arrived += 1
    if arrived == 1:
        met = anyio.Event()
        await met.wait()
    else:
        met.set()
    return name

@tool
async def hang() -> None:
    await anyio.sleep_forever()

@tool
def double(n: int) -> int:
    return 2 * n

PROGRAM = '''
console.log("hello");
const met = await Promise.all(["a", "b"].map(name => tools.meet({name})));
return [met, await tools.double({n: 21})];
'''

async def main():
    async with Corral([meet, hang, double]) as corral:
        async with corral.start(PROGRAM) as run:
            print([event.type async for event in run])
        print((await run.result()).value)
        async with corral.start("console.log('x'); while (true) {}") as run:
            async for event in run:
                if event.type == "console_output":
                    run.cancel()
        print((await run.result()).status)
        print((await corral.execute("await tools.hang()", limits=limits)).status)

from corral import Limits
limits = Limits(wall_seconds=0.1)
"""

EXPECTED = """\
['execution_started', 'program_checked', 'console_output', 'tool_call_started', 'tool_call_started', 'tool_call_finished', 'tool_call_finished', 'tool_call_started', 'tool_call_finished', 'execution_finished']
[['a', 'b'], 42]
cancelled
timed_out
"""


ALIKE = pytest.mark.matrix("to corral this loop is asyncio's")


@pytest.mark.parametrize(
    "start",
    [
        "import asyncio; asyncio.run(main())",
        "import trio; trio.run(main)",
        pytest.param("anyio.run(main)", marks=ALIKE),
        pytest.param("import uvloop; uvloop.run(main())", marks=ALIKE),
    ],
)
def test_a_program_runs_on_every_event_loop(start: str) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT + start]
    shown = run_forked(command)
    assert shown.stdout == EXPECTED, shown.stderr
    assert shown.stderr == ""


SYNC = """
from corral import Corral, tool

@tool
def double(n: int) -> int:
    return 2 * n

corral = Corral([double])
print(corral.sync.execute("return await tools.double({n: 1})").value)
with Corral([double]) as corral:
    print([corral.sync.execute(f"return await tools.double({{n: {n}}})").value for n in (2, 3)])
"""


def test_programs_run_without_an_event_loop_of_the_callers() -> None:
    command = [sys.executable, "-W", "error", "-c", SYNC]
    shown = run_forked(command)
    assert (shown.stdout, shown.stderr) == ("2\n[4, 6]\n", "")


@pytest.mark.parametrize("start", ["asyncio.run(main())", "trio.run(main)"])
@pytest.mark.parametrize("opening", ["corral.sync.execute('return 1')", "corral.__enter__()"])
def test_the_sync_api_inside_a_loop_is_a_clear_error(opening: str, start: str) -> None:
    script = (
        f"import asyncio, trio\nfrom corral import Corral\nasync def main():\n    corral = Corral()\n    {opening}\n"
    )
    command = [sys.executable, "-c", f"{script}{start}"]
    shown = run_forked(command)
    assert "ConfigError: `Corral.sync` and `with` do not work in a thread that runs" in shown.stderr
    assert "await" in shown.stderr

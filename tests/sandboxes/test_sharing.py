"""Providers, hosts and machines that several executions share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel
import pytest

from corral import Corral, tool
from corral.events import ConsoleOutput
from corral.sandboxes import DenoSandbox
from tests.forks import run_forked
from tests.processes import assert_ending, guests

pytestmark = pytest.mark.anyio
both_isolations = pytest.mark.parametrize(
    "isolation",
    ["fork", pytest.param("process", marks=pytest.mark.matrix("`fork` shares all that `process` shares, and servers"))],
)


@tool
async def echo(text: str) -> str:
    return text


@tool
async def wait(seconds: float) -> None:
    await anyio.sleep(seconds)


@both_isolations
async def test_two_corrals_open_and_close_on_one_provider(isolation: Literal["fork", "process"]) -> None:
    provider = DenoSandbox(isolation=isolation)
    values: list[object] = []

    async def churn() -> None:
        for _ in range(2):
            async with Corral([echo], sandbox=provider, check=False) as corral:
                values.append((await corral.execute("return await tools.echo({ text: 'a' })")).value)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(churn)
    assert values == ["a"] * 4


async def test_what_an_entered_provider_keeps_ready_serves_one_corral_after_the_other() -> None:
    others = guests()

    async def served(sandbox: DenoSandbox) -> set[int]:
        async with Corral([echo], sandbox=sandbox, check=False) as corral:
            assert (await corral.execute("return await tools.echo({ text: 'a' })")).value == "a"
            await sandbox.settled()
        return guests() - others

    async with DenoSandbox(isolation="fork") as sandbox:
        first = await served(sandbox)
        async with sandbox:
            second = await served(sandbox)
        assert first & second & guests(), "its server outlives Corrals and inner blocks"
    assert_ending(first | second)
    unentered = DenoSandbox(isolation="fork")
    assert_ending(await served(unentered))


@both_isolations
def test_a_fork_leaves_its_parents_sandboxes_alone(isolation: str, tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import atexit, os\n"
        "from corral import Corral, ExecutionContext\n"
        "from corral.sandboxes import DenoSandbox\n"
        f"corral = Corral(sandbox=DenoSandbox(isolation={isolation!r})).__enter__()\n"
        "mine = ExecutionContext(user_id='u')\n"
        "assert corral.sync.execute('return 1', context=mine).value == 1\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    atexit._run_exitfuncs()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "for _ in range(4):\n"
        "    result = corral.sync.execute('return 2', context=mine)\n"
        "    assert result.value == 2, result.error\n"
        "corral.__exit__(None, None, None)\n"
        "print('done')\n"
    )
    done = run_forked([sys.executable, str(script)])
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


async def test_few_large_inputs_are_decoded_at_a_time() -> None:
    running = most = 0
    sent = anyio.Event()

    @tool
    async def hold(text: str) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await sent.wait()
        for _ in range(100):  # in which others would come
            await anyio.lowlevel.checkpoint()
        running -= 1
        return len(text)

    program = """
        const text = "a".repeat(800_000);
        const all = Promise.all(Array.from({ length: 16 }, () => tools.hold({ text })));
        console.log("sent");
        return await all;
    """
    async with Corral([hold], check=False) as corral, corral.start(program) as run:
        async for event in run:
            if isinstance(event, ConsoleOutput):
                sent.set()
        result = await run.result()
    assert result.value == [800_000] * 16, result.error
    assert most < 10, "8 MB of input at a time"


async def test_many_programs_run_at_once_each_in_a_process_of_its_own() -> None:
    there, all_there = 0, anyio.Event()

    @tool
    async def meet() -> None:
        nonlocal there
        there += 1
        if there == 20:
            all_there.set()
        await all_there.wait()

    values: list[object] = []
    async with Corral([meet], sandbox=DenoSandbox(), check=False) as corral:

        async def one() -> None:
            values.append((await corral.execute("await tools.meet(); return 1")).value)

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one)
    assert values == [1] * 20
